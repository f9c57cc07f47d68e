//! What a stop does with the pause container, which holds the network namespace of all containers.
//!
//! Owns K13, K16 and pause's part of K17: in a stop for good pause goes last, and always goes. Never signals another
//! container. Changes: ending, sandbox, stop.

use pod_spec::Signal;

use crate::container::phase::Part;
use crate::interface::id::ContainerId;
use crate::interface::milestone::SignalCause;
use crate::interface::operation::Reach;
use crate::interface::stop_cause::{SandboxEnd, StopCause};
use crate::rules::stop::begin_stop;
use crate::state::State;
use crate::steps::signal::{deliver_stop, kill_now, signal_init, thaw};
use crate::stop::MIN_KILL_DELAY;

/// K13: pause goes when everything else has gone, or could not be ended.
pub(crate) fn end_sandbox(pod: &mut State) {
    let Some(stop) = pod.stop() else { return };
    let Some(id) = pod.sandbox.id().cloned() else { return };
    let alone = pod.containers().all(|container| container.part() == Part::Sandbox || !container.is_ending());
    if !alone {
        return;
    }
    match stop.cause() {
        StopCause::Sandbox(SandboxEnd::Killed(signal)) => {
            if let Some(stop) = pod.stop_mut() {
                stop.signal_sandbox();
            }
            signal_sandbox(pod, &id, signal, Reach::Process, SignalCause::Turn);
        }
        StopCause::Requested => {
            let kill_at = pod.now() + MIN_KILL_DELAY;
            let Some(container) = pod.container_mut(&id) else { return };
            if container.has_process() && !container.ending.is_signalled() {
                container.ending.kill_by(kill_at);
                deliver_stop(pod, &id, None);
            }
        }
        _ => {}
    }
}

/// Sends a signal to pause; K17 holds for pause too.
pub(crate) fn signal_sandbox(
    pod: &mut State,
    id: &ContainerId,
    signal: Signal,
    reach: Reach,
    cause: SignalCause,
) {
    if signal == Signal::KILL {
        return kill_now(pod, id, reach, cause);
    }
    signal_init(pod, id, signal, reach, cause);
    thaw(pod, id);
}

/// K16: pause's exit has been reported; now the rest of the pod stops.
pub(crate) fn detect_sandbox_end(pod: &mut State) {
    if pod.sandbox.take_end() && pod.has_plan() {
        begin_stop(pod, StopCause::Sandbox(SandboxEnd::Died));
    }
}
