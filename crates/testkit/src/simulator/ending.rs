//! The end of a run: whatever came before, a caller can get rid of everything, and every request gets its answer.

use std::time::Duration;

use pod_lifecycle::{ContainerId, Reach, Request, Status, Target};
use pod_spec::Signal;

use super::{RunError, Simulator};
use crate::command::Command;
use crate::trace::show_request;

/// Rounds of SIGKILL: later ones reach containers that a crash or a restart hid from the first.
const ROUNDS: usize = 3;
/// Longer than any program, operation or budget of a random pod.
const LONG: Duration = Duration::from_secs(200);

impl Simulator {
    pub(super) fn end(&mut self) -> Result<(), RunError> {
        // The node works again; earlier faults stay done.
        self.world.heal();
        for signal in std::iter::once(Signal::TERM).chain([Signal::KILL; ROUNDS]) {
            for id in self.live() {
                let target = Target::init(id);
                self.execute(&Command::Kill(target.clone(), signal, Reach::Process))?;
                // A container that is not restored yet has no process to kill.
                if signal == Signal::KILL
                    && self.pod.view(&target).is_ok_and(|view| view.status == Status::Created)
                {
                    self.execute(&Command::Delete(target))?;
                }
            }
            self.execute(&Command::Advance(LONG))?;
        }
        self.none_is_left(self.live(), "killed")?;
        self.check_idle()?;
        for id in self.containers() {
            self.execute(&Command::Delete(Target::init(id)))?;
            self.execute(&Command::Advance(LONG))?;
        }
        self.none_is_left(self.containers(), "deleted")?;
        self.check_idle()
    }

    pub(super) fn none_is_left(&self, left: Vec<ContainerId>, done: &'static str) -> Result<(), RunError> {
        match left.is_empty() {
            true => Ok(()),
            false => {
                let containers = left.iter().map(ToString::to_string).collect();
                Err(RunError::Left { now: self.now, done, containers })
            }
        }
    }

    /// The containers whose exit has not been shown.
    pub(super) fn live(&self) -> Vec<ContainerId> {
        self.pod.containers().filter(|id| !self.exited.contains(id)).cloned().collect()
    }

    fn containers(&self) -> Vec<ContainerId> {
        self.pod.containers().cloned().collect()
    }

    /// What must hold when no request is to come and nothing is left to happen.
    pub(super) fn check_idle(&self) -> Result<(), RunError> {
        for request in self.requests.values() {
            let waits = matches!(request, Request::Wait(target) if self.pod.view(target).is_ok_and(|view| view.exit.is_none()));
            if !waits {
                return Err(RunError::Unanswered { now: self.now, request: show_request(request) });
            }
        }
        Ok(())
    }
}
