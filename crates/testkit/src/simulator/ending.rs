//! The end of a run: whatever came before, a caller that means it gets rid of everything, and nobody is left waiting.

use std::time::Duration;

use pod_lifecycle::{ContainerId, Reach, Request, Status, Target};
use pod_spec::Signal;

use super::{RunError, Simulator};
use crate::command::Command;
use crate::trace::show_request;

/// The second one is for what a crash or a restart in the middle of the first one hid from it.
const ROUNDS: usize = 3;
/// Longer than any program, operation or budget of a random pod.
const LONG: Duration = Duration::from_secs(200);

impl Simulator {
    pub(super) fn end(&mut self) -> Result<(), RunError> {
        // The node works again; what it did before stays done.
        self.world.heal();
        for signal in std::iter::once(Signal::TERM).chain([Signal::KILL; ROUNDS]) {
            for id in self.live() {
                let target = Target::init(id);
                self.execute(&Command::Kill(target.clone(), signal, Reach::Process))?;
                // One that is not restored yet has nothing to kill.
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

    /// Those whose end has not been shown.
    pub(super) fn live(&self) -> Vec<ContainerId> {
        self.pod.containers().filter(|id| !self.exited.contains(id)).cloned().collect()
    }

    fn containers(&self) -> Vec<ContainerId> {
        self.pod.containers().cloned().collect()
    }

    /// What must hold when nobody asks anything more and nothing is left to happen.
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
