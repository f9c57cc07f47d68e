//! What a stop does with pause, on which everybody's network namespace hangs.
//!
//! Owns K13, K16 and K17's part in them: pause goes last, and then it does go. The stop itself is `shutdown`'s.

use pod_spec::Signal;

use crate::action::Reach;
use crate::container::Part;
use crate::event::ContainerId;
use crate::history::SignalCause;
use crate::pod::Pod;
use crate::shutdown::{FLOOR, StopCause};

/// How the sandbox came into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SandboxEnd {
    /// K13: the signal waits until nothing else is left.
    Killed(Signal),
    /// K13, done.
    Signalled,
    /// K16.
    Died,
}

impl Pod {
    /// K13: pause goes when everything else has gone, or could not be made to.
    pub(crate) fn end_sandbox(&mut self) {
        let Some(stop) = &self.stop else { return };
        let Some(id) = self.sandbox.clone() else { return };
        let alone = self
            .containers
            .values()
            .all(|container| container.part == Part::Sandbox || !container.is_ending());
        if !alone {
            return;
        }
        match stop.cause {
            StopCause::Sandbox(SandboxEnd::Killed(signal)) => {
                if let Some(stop) = &mut self.stop {
                    stop.cause = StopCause::Sandbox(SandboxEnd::Signalled);
                }
                self.signal_sandbox(&id, signal, Reach::Process, SignalCause::Turn);
            }
            StopCause::Requested => {
                let Some(container) = self.containers.get_mut(&id) else { return };
                if container.has_process() && container.stop.term_at.is_none() {
                    container.stop.kill_by(self.now + FLOOR);
                    self.deliver_stop(&id, None);
                }
            }
            _ => {}
        }
    }

    /// K17 holds for pause too.
    pub(crate) fn signal_sandbox(
        &mut self,
        id: &ContainerId,
        signal: Signal,
        reach: Reach,
        cause: SignalCause,
    ) {
        if signal == Signal::KILL {
            return self.kill_now(id, reach, cause);
        }
        self.signal_init(id, signal, reach, cause);
        self.thaw(id);
    }

    /// Whether pause has had the signal that ends it (K13): what comes now is for itself.
    pub(crate) fn sandbox_is_signalled(&self) -> bool {
        let signalled = StopCause::Sandbox(SandboxEnd::Signalled);
        self.stop.as_ref().is_some_and(|stop| stop.cause == signalled)
    }

    /// K16: its exit has been reported; now the rest.
    pub(crate) fn sandbox_ended(&mut self) {
        self.sandbox_gone = true;
        if self.plan.is_some() {
            self.begin_stop(StopCause::Sandbox(SandboxEnd::Died));
        }
    }
}
