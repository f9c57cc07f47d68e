//! The result of a gate's check (U1, U2, U4).

use std::time::Duration;

use pod_spec::{Gate, Role};

use crate::container::gate_probe::EXECUTED_RETRY;
use crate::container::gate_probe::ProbeStage;
use crate::interface::id::ContainerId;
use crate::interface::outcome::{Failure, Outcome};
use crate::member::GateState;
use crate::rules::gate::{gate_failed, open_gate};
use crate::state::State;

/// A gate's check has a result.
pub(crate) fn gate_check_ended(pod: &mut State, id: ContainerId, outcome: Outcome) {
    let now = pod.now;
    let Some(container) = pod.containers.get_mut(&id) else { return };
    let (Some(index), Some(probe)) = (container.member(), container.probe.as_mut()) else { return };
    probe.in_flight = None;
    let state = &mut pod.members[index];
    let (gate, role) = (&state.member.gate, state.member.role);
    let opened = match (&outcome, probe.stage, gate) {
        (Outcome::Failed(_), ProbeStage::Executed, _) => {
            // The process is still the runtime's init: check again as long as it lives.
            probe.next_at = now + EXECUTED_RETRY;
            false
        }
        (_, ProbeStage::Executed, Gate::Probe { action, timing }) => {
            probe.stage = ProbeStage::Probe;
            // A log line or a notification may come during the delay: podshim waits at once, and the first wait is
            // longer.
            let delay = if action.is_waited_for() { Duration::ZERO } else { timing.delay };
            probe.next_at = now + delay;
            state.gate = state.gate.max(GateState::Started);
            false
        }
        (_, ProbeStage::Executed, _) => true,
        (Outcome::Failed(Failure { message, .. }), ProbeStage::Probe, Gate::Probe { timing, .. }) => {
            probe.successes = 0;
            probe.failures = probe.failures.saturating_add(1);
            probe.last_failure = Some(message.clone());
            // The caller restarts a main (R8): podshim goes on probing it.
            if probe.failures >= timing.failures && role == Role::Sidecar {
                return gate_failed(pod, &id);
            }
            false
        }
        (_, ProbeStage::Probe, Gate::Probe { timing, .. }) => {
            probe.failures = 0;
            probe.successes = probe.successes.saturating_add(1);
            probe.successes >= timing.successes
        }
        (_, ProbeStage::Probe, _) => false,
    };
    pod.mark_changed();
    if opened {
        open_gate(pod, index);
    }
}
