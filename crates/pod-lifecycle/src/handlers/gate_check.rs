//! The result of a gate's check (U1, U2, U4).
//!
//! Owns for which role a verdict counts. Never decides what follows from it, which `rules::gate` does, and never counts results: how
//! many make a verdict is `container::gate_probe`. Changes: container, probe, gate.

use pod_spec::Role;

use crate::container::Container;
use crate::container::gate_probe::Verdict;
use crate::interface::id::ContainerId;
use crate::interface::outcome::Outcome;
use crate::rules::gate::{gate_failed, open_gate};
use crate::state::State;

/// A gate's check has a result.
pub(crate) fn gate_check_ended(pod: &mut State, id: ContainerId, outcome: Outcome) {
    let now = pod.now();
    let Some(container) = pod.container(&id) else { return };
    let Some(index) = container.member() else { return };
    let gate = pod.member(index).member().gate.clone();
    let probe = pod.container_mut(&id).and_then(Container::probe_mut);
    let Some(verdict) = probe.map(|probe| probe.check_ended(&outcome, &gate, now)) else { return };
    match verdict {
        Verdict::Failed if pod.member(index).role() == Role::Sidecar => gate_failed(pod, &id),
        // The caller restarts a main (R8): podshim goes on probing it.
        Verdict::Failed | Verdict::Closed => {}
        Verdict::Executed => pod.member_mut(index).gate.note_executed(),
        Verdict::Ready => open_gate(pod, index),
    }
}
