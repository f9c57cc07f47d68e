//! Holds: what a held container waits for, in words, and the lines that its own log gets about it (U7, U13).
//!
//! Owns the reasons and when they are written. `startup` decides which container is held, and until when.

use std::time::Duration;

use pod_spec::{RestartPolicy, Role};

use crate::action::{Action, Tell};
use crate::container::{Container, Phase, Program};
use crate::event::ContainerId;
use crate::pod::Pod;
use crate::time::PodTime;

/// A hold that is shorter, or a reason that lasts shorter, is not written (U7).
const LINE_AFTER: Duration = Duration::from_secs(1);
/// The reason is written again when a hold has lasted this long (U13).
const REPEATS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3600)];

/// A hold (U7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    since: PodTime,
    waits_for: Option<Wait>,
    /// When the next line is due.
    line_due: Option<PodTime>,
    /// How many of [`REPEATS`] are over.
    repeats: usize,
}

/// What a held container waits for. A change of this is worth a line in its log (U13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// T11: the end of the pod's stop.
    EndOfStop,
    /// V1: its turn; it is the standby of that member.
    StandbyOf(usize),
    /// A member that has not done yet what the container waits for.
    Member(usize, Obstacle),
}

/// Why a member has not done yet what others wait for. What it does meanwhile (its restarts, what its probe reports)
/// does not change this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// U10.
    NotCreated,
    /// Its Create or Start failed.
    CouldNotStart,
    /// T15: its caller stopped it.
    StoppedByCaller,
    /// It has ended, and its caller has seen that.
    Ended,
    NotStarted,
    Held,
    /// podshim is at work on it: it starts, runs or restarts it, or probes its gate.
    AtWork,
}

impl Hold {
    pub(crate) fn new(now: PodTime) -> Self {
        Self { since: now, waits_for: None, line_due: None, repeats: 0 }
    }

    /// U6 counts from here.
    pub(crate) fn since(&self) -> PodTime {
        self.since
    }

    /// T14: the hold counts from now on, as only now it waits for its gates.
    pub(crate) fn counts_from(&mut self, now: PodTime) {
        self.since = now;
    }

    pub(crate) fn line_due(&self) -> Option<PodTime> {
        self.line_due
    }

    /// Notes what it waits for; a change is written once it has lasted.
    fn waits_for(&mut self, wait: Option<Wait>, now: PodTime) -> Change {
        if self.waits_for == wait {
            return Change::None;
        }
        self.waits_for = wait;
        self.line_due = wait.map(|_| now + LINE_AFTER);
        Change::Waits
    }

    /// A line was written.
    fn written(&mut self, now: PodTime) {
        while REPEATS.get(self.repeats).is_some_and(|after| self.since + *after <= now) {
            self.repeats += 1;
        }
        self.line_due = REPEATS.get(self.repeats).map(|after| self.since + *after);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Waits,
}

impl Pod {
    /// Writes what a held container waits for: after a second, when that changes, and after 1, 10 and 60 minutes.
    pub(crate) fn hold_timer(&mut self, id: &ContainerId) {
        let now = self.now;
        let Some(container) = self.containers.get(id) else { return };
        let Phase::Held(mut hold) = container.phase else { return };
        let wait = self.wait_of(container);
        let changed = hold.waits_for(wait, now) == Change::Waits;
        let due = hold.line_due.is_some_and(|at| now >= at);
        if !changed && !due {
            return;
        }
        if due {
            let line = format!("held: waiting for {}", self.blocker(container).unwrap_or_default());
            hold.written(now);
            self.act(Action::Tell { container: id.clone(), line, to: Tell::Log });
        }
        if let Some(container) = self.containers.get_mut(id) {
            container.phase = Phase::Held(hold);
        }
    }

    /// What a held container waits for, in words.
    pub(crate) fn blocker(&self, container: &Container) -> Option<String> {
        Some(match self.wait_of(container)? {
            Wait::EndOfStop => "the end of the pod's stop".to_owned(),
            Wait::StandbyOf(other) => {
                format!("its turn, it is the standby of {}", self.members[other])
            }
            Wait::Member(index, obstacle) => {
                format!("{}: {}", self.members[index], self.obstacle_in_words(index, obstacle))
            }
        })
    }

    fn wait_of(&self, container: &Container) -> Option<Wait> {
        if self.stop.is_some() {
            return Some(Wait::EndOfStop);
        }
        if self.stands_by(container) {
            return Some(Wait::StandbyOf(self.partner(container.member()?)?));
        }
        let index = self.first_blocker(container.member()?)?.earlier;
        Some(Wait::Member(index, self.obstacle(index)))
    }

    fn obstacle(&self, index: usize) -> Obstacle {
        let state = &self.members[index];
        if self.is_gone(index) {
            return match &state.ended {
                _ if state.start_failure.is_some() => Obstacle::CouldNotStart,
                Some(_) if state.asked.is_some() => Obstacle::StoppedByCaller,
                Some(_) => Obstacle::Ended,
                None => Obstacle::NotCreated,
            };
        }
        match self.current(index).map(|container| (&container.phase, container.program)) {
            Some((Phase::Created, _)) if state.start_failure.is_some() => Obstacle::CouldNotStart,
            Some((Phase::Creating { .. } | Phase::Created, _)) => Obstacle::NotStarted,
            Some((Phase::Held(_), Program::NeverRan)) => Obstacle::Held,
            _ => Obstacle::AtWork,
        }
    }

    /// The words are those of `podshim ps` for the same state.
    fn obstacle_in_words(&self, index: usize, obstacle: Obstacle) -> String {
        let state = &self.members[index];
        let code = state.ended.as_ref().map_or(0, |ended| ended.real().code);
        match obstacle {
            Obstacle::NotCreated => "not created yet".to_owned(),
            Obstacle::CouldNotStart => {
                format!("could not be created: {}", state.start_failure.as_deref().unwrap_or_default())
            }
            Obstacle::StoppedByCaller => match self.given_up_in(index) {
                Some(left) => {
                    format!(
                        "stopped by its caller, recreated within {} or the pod fails",
                        show_duration(left)
                    )
                }
                None => "stopped by its caller, not recreated yet".to_owned(),
            },
            Obstacle::Ended => match self.given_up_in(index) {
                Some(left) => {
                    format!("exited with {code}, recreated within {} or the pod fails", show_duration(left))
                }
                None => format!("exited with {code}, not recreated yet"),
            },
            Obstacle::NotStarted => "created, not started yet".to_owned(),
            Obstacle::Held => "held itself".to_owned(),
            Obstacle::AtWork => self.work_in_words(index),
        }
    }

    fn work_in_words(&self, index: usize) -> String {
        let Some(container) = self.current(index) else { return String::new() };
        match (&container.phase, &container.probe) {
            (Phase::BackingOff { last, .. }, _) => format!("exited with {}, backing off", last.code),
            (Phase::Recreating { last, .. }, _) => format!("exited with {}, restarting", last.code),
            (_, Some(probe)) => probe.last_failure().unwrap_or("not ready yet").to_owned(),
            _ if self.members[index].member.role == Role::Sidecar => "not ready yet".to_owned(),
            _ => "still running".to_owned(),
        }
    }

    /// I8: how long until a member that does not come back fails its pod.
    fn given_up_in(&self, index: usize) -> Option<Duration> {
        let by = self.replacement_deadline_of(index)?;
        (self.policy() == RestartPolicy::Never).then(|| by.since(self.now))
    }
}

/// A duration in words: whole minutes and seconds, below a second milliseconds.
pub(crate) fn show_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match (seconds / 60, seconds % 60, millis) {
        (0, seconds, 0) => format!("{seconds}s"),
        (0, 0, millis) => format!("{millis}ms"),
        (0, ..) => format!("{}ms", duration.as_millis()),
        (minutes, 0, _) => format!("{minutes}m"),
        (minutes, seconds, _) => format!("{minutes}m{seconds}s"),
    }
}
