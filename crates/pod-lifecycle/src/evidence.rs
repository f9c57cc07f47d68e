//! What podshim knows of a planned container's end when its task is gone: who asked for it, how it ended, whether it
//! counts.
//!
//! CRI deletes a task as soon as it has exited (F6), so the task itself cannot keep this. Owns T12 (which ends are
//! evidence of a stop of the pod) and when evidence goes stale. Sends no signal.

use std::time::Duration;

use pod_spec::{RestartPolicy, Role};

use crate::action::Action;
use crate::container::{Container, Intent, Phase, Program};
use crate::event::Exit;
use crate::history::SignalCause;
use crate::member::MemberState;
use crate::pod::Pod;
use crate::shutdown::{FLOOR, StopCause};
use crate::time::PodTime;

/// How a caller asked for a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Signal,
    Kill,
}

/// A caller's request for a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    how: Ask,
    /// Another stop that comes until then may belong to the same stop of the pod (T16).
    fresh_until: PodTime,
}

/// The end of a member's newest task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    real: Exit,
    /// The code that counts for the pod: of a main the one that callers see (J3, J10).
    code: u32,
    /// Until then it is evidence of a stop of the pod, whatever else lives (T12).
    evident_until: PodTime,
    /// Until then its caller may recreate it (T15).
    replace_by: PodTime,
    standing: Standing,
    ran: Program,
    /// The round in which it ended (J11).
    round: u32,
}

/// Whether an end counts (T15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Its caller stopped it alone, and may recreate it.
    Open,
    Counts,
}

/// Who ended a task, for T15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Its caller, who may recreate it.
    CallerAlone,
    /// Itself, podshim, or a stop of the pod.
    Other,
}

impl Asked {
    pub(crate) fn is_signal(self) -> bool {
        self.how == Ask::Signal
    }

    /// Whether both may belong to the same stop of the pod: at most one window lies between them.
    pub(crate) fn may_belong_with(self, other: Self, window: Duration) -> bool {
        self.fresh_until <= other.fresh_until + window && other.fresh_until <= self.fresh_until + window
    }
}

impl Ended {
    /// The exit of the program.
    pub(crate) fn real(&self) -> Exit {
        self.real
    }

    /// Its code, once it counts (T15).
    pub(crate) fn counted_code(&self) -> Option<u32> {
        (self.standing == Standing::Counts).then_some(self.code)
    }

    /// When it will count, if it does not yet.
    pub(crate) fn open_until(&self) -> Option<PodTime> {
        (self.standing == Standing::Open).then_some(self.replace_by)
    }

    /// Until when its caller may recreate it.
    pub(crate) fn replace_by(&self) -> PodTime {
        self.replace_by
    }

    /// Whether its program ran and exited with 0, and that counts.
    pub(crate) fn is_success(&self) -> bool {
        self.ran == Program::HasRun && self.counted_code() == Some(0)
    }

    pub(crate) fn is_of_round(&self, round: u32) -> bool {
        self.round == round
    }

    /// Its caller's time to recreate it is over (T15).
    pub(crate) fn counts_now(&mut self) {
        self.standing = Standing::Counts;
    }
}

impl MemberState {
    /// A caller asks for the end. The time of the first request counts: a kubelet's SIGKILL comes a grace period later.
    pub(crate) fn ask(&mut self, how: Ask, fresh_until: PodTime) {
        let first = self.asked.unwrap_or(Asked { how, fresh_until });
        let how = if first.is_signal() { Ask::Signal } else { how };
        self.asked = Some(Asked { how, ..first });
    }
}

impl Pod {
    /// Records the end of a member's newest task. If that task never ran, a main of a job keeps its earlier end (J11).
    pub(crate) fn note_end(&mut self, index: usize, real: Exit, shown: Exit, by: EndedBy, ran: Program) {
        let is_main = self.members[index].member.role == Role::Main;
        if is_main && ran == Program::NeverRan && self.members[index].ended.is_some() {
            return;
        }
        let standing = match by {
            EndedBy::CallerAlone => Standing::Open,
            EndedBy::Other => Standing::Counts,
        };
        self.members[index].ended = Some(Ended {
            real,
            code: if is_main { shown.code } else { real.code },
            evident_until: self.now + self.lone_stop_window(),
            replace_by: self.now + self.replace_wait(),
            standing,
            ran,
            round: self.round,
        });
    }

    /// T12a: a caller stops a main and a sidecar, or all planned containers that live, if these are several.
    pub(crate) fn detect_callers_stop(&mut self) {
        if self.stop.is_some() || !self.stop_was_asked() {
            return;
        }
        let evident: Vec<_> = (0..self.members.len()).filter(|index| self.is_evidence(*index)).collect();
        let asked = |role| evident.iter().any(|index| self.members[*index].member.role == role);
        let living = || self.planned().filter(|(_, container)| container.lives_for_callers());
        let all = living().next().is_some() && living().all(|(state, _)| state.asked.is_some());
        if (all && evident.len() > 1) || (asked(Role::Main) && asked(Role::Sidecar)) {
            self.begin_stop(StopCause::Caller);
        }
    }

    /// T12: a kubelet that stops a pod creates nothing in it. So its stops were stops of single containers.
    pub(crate) fn give_up_callers_stop(&mut self) {
        if self.stop.as_ref().is_some_and(|stop| stop.cause == StopCause::Caller) {
            self.act(Action::Note("the pod was not stopped: its kubelet creates a container".to_owned()));
            self.take_back_turns();
            self.end_round();
        }
    }

    /// Sidecars that had their turn in a stop that turned out to be no stop of the pod, and that no caller has stopped:
    /// they have their signal, so they end, and are started again (R2).
    fn take_back_turns(&mut self) {
        let stopped = self.planned_where(|state, container| {
            state.member.role == Role::Sidecar
                && state.asked.is_none()
                && container.has_process()
                && container.stop.term_at.is_some()
        });
        for id in stopped {
            let grace = self.grace_of(&id).max(FLOOR);
            let Some(container) = self.containers.get_mut(&id) else { continue };
            if let Phase::Starting { signals, .. } = &mut container.phase {
                // The signal has not been sent yet.
                signals.retain(|(_, _, cause)| *cause == SignalCause::Caller);
                container.stop.taken_back();
            } else {
                container.stop.intent = Intent::Restart;
                container.stop.kill_by(self.now + grace);
            }
        }
    }

    /// Whether a caller has asked for a graceful end of any member in this round, and that still is evidence (K11).
    pub(crate) fn stop_was_asked(&self) -> bool {
        let by_signal = |index: usize| self.members[index].asked.is_some_and(Asked::is_signal);
        (0..self.members.len()).any(|index| by_signal(index) && self.is_evidence(index))
    }

    /// T12: whether a member's stop is evidence of a stop of the pod. A stop of a member that ended a while ago and was
    /// not recreated is none while a main lives that no caller stopped: it was a stop of that container alone.
    fn is_evidence(&self, index: usize) -> bool {
        let state = &self.members[index];
        if state.asked.is_none() {
            return false;
        }
        let Some(ended) = state.ended.filter(|_| self.is_gone(index)) else { return true };
        let unasked_main = |(other, container): (&MemberState, &Container)| {
            other.member.role == Role::Main && other.asked.is_none() && container.lives_for_callers()
        };
        self.now <= ended.evident_until || !self.planned().any(unasked_main)
    }

    /// Whether a member has no task that could still do something.
    pub(crate) fn is_gone(&self, index: usize) -> bool {
        self.current(index).is_none_or(Container::is_final)
    }

    /// Whether callers never recreate a container whose exit they have seen.
    pub(crate) fn recreates_nothing(&self) -> bool {
        self.policy() == RestartPolicy::Never
    }
}

impl Container {
    /// Whether a caller that stops the pod would stop this container too: started, and not ended in the caller's eyes,
    /// held or not. A completed init that is hidden (I5) does not count.
    pub(crate) fn lives_for_callers(&self) -> bool {
        match self.phase {
            Phase::Held(_)
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::Ending { .. }
            | Phase::Draining { .. }
            | Phase::BackingOff { .. }
            | Phase::Recreating { .. } => true,
            Phase::Creating { .. }
            | Phase::Created
            | Phase::Spent { .. }
            | Phase::Prepared
            | Phase::Restoring { .. }
            | Phase::Hidden { .. }
            | Phase::Stopped { .. }
            | Phase::Removing { .. } => false,
        }
    }
}
