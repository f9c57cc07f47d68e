//! What a stop does with the pause container, which holds the network namespace of all containers.
//!
//! Owns K13, K16 and pause's part of K17: in a stop for good pause goes last, and always goes. `shutdown` owns the stop
//! itself.

use pod_spec::Signal;

use crate::action::Reach;
use crate::container::Part;
use crate::event::ContainerId;
use crate::history::SignalCause;
use crate::pod::Pod;
use crate::shutdown::{FLOOR, StopCause};

/// How a stop involves the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SandboxEnd {
    /// K13: a caller stops it; the signal waits until nothing else is left.
    Killed(Signal),
    /// K13: pause has got its signal.
    Signalled,
    /// K16: it died by itself.
    Died,
}

impl Pod {
    /// K13: pause goes when everything else has gone, or could not be ended.
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

    /// Sends a signal to pause; K17 holds for pause too.
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

    /// Whether pause has had the signal that ends it (K13): a signal that comes now is for pause itself.
    pub(crate) fn sandbox_is_signalled(&self) -> bool {
        let signalled = StopCause::Sandbox(SandboxEnd::Signalled);
        self.stop.as_ref().is_some_and(|stop| stop.cause == signalled)
    }

    /// K16: pause's exit has been reported; now the rest of the pod stops.
    pub(crate) fn sandbox_ended(&mut self) {
        self.sandbox_gone = true;
        if self.plan.is_some() {
            self.begin_stop(StopCause::Sandbox(SandboxEnd::Died));
        }
    }
}
