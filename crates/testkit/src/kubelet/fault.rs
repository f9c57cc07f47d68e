//! The faults that can befall a pod under a kubelet, and the kubelet's reaction. Owns the faults and the line of each
//! in a scenario.

use std::fmt;
use std::time::Duration;

use pod_lifecycle::PodTime;

use super::order::EndOrder;
use super::setup::{PodContainer, SpecPart};
use super::status::State;
use super::{Kubelet, WorkerState};
use crate::operation_kind::OperationKind;
use crate::text::{parse_duration, show_duration};

/// A fault that befalls the pod now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The liveness probe of a container that runs has failed.
    Liveness(String),
    /// Its startup probe has failed.
    Startup(String),
    /// The container's image in the spec changes.
    Image(String),
    /// Its image cannot be pulled for that long.
    Pull(String, Duration),
    /// Its dead containers are removed.
    Forget(String),
    /// Its command does not exist: the operation fails each time.
    Broken(String, OperationKind),
    /// Its program exits with that code.
    Crash(String, u32),
    /// The kernel kills its program for memory.
    OutOfMemory(String),
    /// `kubectl debug` adds a container of that name.
    Debug(String),
    /// crictl stops the container, with that time; without one it sends SIGKILL alone (F5).
    Crictl(String, Duration),
    /// A restart rule has matched (KEP-5532): the kubelet ends and removes all containers, and makes them again.
    RestartAll,
    /// The kubelet ends and is back after that time.
    Restart(Duration),
    /// The pod is deleted with that grace.
    Delete(Duration),
    /// The pod is evicted.
    Evict,
}

impl Fault {
    /// The container that it befalls; `None` for a fault of the whole pod.
    pub(crate) fn name(&self) -> Option<&str> {
        match self {
            Self::Liveness(name)
            | Self::Startup(name)
            | Self::Image(name)
            | Self::Pull(name, _)
            | Self::Forget(name)
            | Self::Broken(name, _)
            | Self::Crash(name, _)
            | Self::Crictl(name, _)
            | Self::OutOfMemory(name) => Some(name),
            Self::Debug(_) | Self::RestartAll | Self::Restart(_) | Self::Delete(_) | Self::Evict => None,
        }
    }

    /// Reads `liveness c0`, `pull c0 30s`, `restart 2s`, ...
    pub(crate) fn parse(words: &[&str]) -> Result<Self, String> {
        let word =
            |index: usize| words.get(index).copied().ok_or_else(|| format!("word {} is missing", index + 2));
        let name = || word(1).map(str::to_owned);
        let duration = |index: usize| {
            let text = word(index)?;
            parse_duration(text).ok_or_else(|| format!("{text:?} is no duration"))
        };
        Ok(match word(0)? {
            "liveness" => Self::Liveness(name()?),
            "startup" => Self::Startup(name()?),
            "image" => Self::Image(name()?),
            "pull" => Self::Pull(name()?, duration(2)?),
            "forget" => Self::Forget(name()?),
            "broken" => Self::Broken(name()?, OperationKind::parse(word(2)?)?),
            "crash" => {
                let code = word(2)?;
                Self::Crash(name()?, code.parse().map_err(|_| format!("{code:?} is no exit code"))?)
            }
            "oom" => Self::OutOfMemory(name()?),
            "debug" => Self::Debug(name()?),
            "crictl" => Self::Crictl(name()?, duration(2)?),
            "restart-all" => Self::RestartAll,
            "restart" => Self::Restart(duration(1)?),
            "delete" => Self::Delete(duration(1)?),
            "evict" => Self::Evict,
            other => return Err(format!("unknown fault {other:?}")),
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Liveness(name) => write!(f, "liveness {name}"),
            Self::Startup(name) => write!(f, "startup {name}"),
            Self::Image(name) => write!(f, "image {name}"),
            Self::Pull(name, time) => write!(f, "pull {name} {}", show_duration(*time)),
            Self::Forget(name) => write!(f, "forget {name}"),
            Self::Broken(name, kind) => write!(f, "broken {name} {kind}"),
            Self::Crash(name, code) => write!(f, "crash {name} {code}"),
            Self::OutOfMemory(name) => write!(f, "oom {name}"),
            Self::Debug(name) => write!(f, "debug {name}"),
            Self::Crictl(name, time) => write!(f, "crictl {name} {}", show_duration(*time)),
            Self::RestartAll => f.write_str("restart-all"),
            Self::Restart(time) => write!(f, "restart {}", show_duration(*time)),
            Self::Delete(grace) => write!(f, "delete {}", show_duration(*grace)),
            Self::Evict => f.write_str("evict"),
        }
    }
}

impl Kubelet {
    /// The kubelet's reaction to a fault. It does not see faults of the world alone.
    pub(crate) fn apply_fault(&mut self, now: PodTime, fault: &Fault) {
        match fault {
            Fault::Liveness(name) | Fault::Startup(name) => {
                let running = self.newest(name).filter(|newest| newest.state == State::Running);
                let Some(id) = running.map(|newest| newest.id.clone()) else { return };
                if !matches!(self.worker, WorkerState::Down | WorkerState::Over)
                    && self.failed_probes.insert(id)
                {
                    self.relist(now);
                }
            }
            Fault::Image(name) => {
                if let Some(container) = self.index_of(name) {
                    self.images[container] += 1;
                    self.relist(now);
                }
            }
            Fault::Pull(name, time) => {
                if let Some(container) = self.index_of(name) {
                    self.pulls.insert(container, now + *time);
                }
            }
            Fault::Forget(name) => {
                if let Some(container) = self.index_of(name)
                    && self.cri.remove_dead(container)
                {
                    self.relist(now);
                }
            }
            Fault::Broken(name, _) => self.broken.extend(self.index_of(name)),
            Fault::Debug(name) => self.debug(now, name),
            Fault::Crictl(name, time) => self.crictl_stops(now, name, *time),
            Fault::RestartAll => self.order_restart_of_all(now),
            Fault::Restart(time) => self.restart(now, *time),
            Fault::Delete(grace) => self.order_end(now, EndOrder::Delete(*grace)),
            Fault::Evict => self.order_end(now, EndOrder::Evict),
            Fault::Crash(..) | Fault::OutOfMemory(_) => {}
        }
    }

    /// After the restart it knows what CRI lists, and nothing else.
    fn restart(&mut self, now: PodTime, time: Duration) {
        if matches!(self.worker, WorkerState::Over) {
            return;
        }
        self.note("kubelet is gone".to_owned());
        self.cri.client_is_gone(now);
        self.ledger.forget_stops();
        self.failed_probes.clear();
        self.back_off.forget();
        self.forget_ending();
        self.worker = WorkerState::Down;
        self.due = now + time;
    }

    /// The kubelet learns of it by the exit only.
    fn crictl_stops(&mut self, now: PodTime, name: &str, time: Duration) {
        if let Some(id) = self.running_of(name).cloned() {
            self.ledger.killed.insert(id.clone());
            self.ledger.crictl_killed |= time.is_zero();
            self.cri.stop_container(now, id, time);
        }
    }

    fn debug(&mut self, now: PodTime, name: &str) {
        if self.index_of(name).is_some() || matches!(self.worker, WorkerState::Over | WorkerState::Ending) {
            return;
        }
        let part = SpecPart::Ephemeral;
        self.setup.containers.push(PodContainer { part, ..PodContainer::named(name) });
        self.images.push(0);
        self.attempts.push(0);
        self.relist(now);
    }

    /// All faults are over.
    pub(crate) fn heal(&mut self) {
        self.pulls.clear();
    }
}
