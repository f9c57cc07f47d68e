//! Gates and their probes (U-rules).

use std::time::Duration;

use pod_spec::Gate;

use crate::container::Container;
use crate::container::ending::NextExit;
use crate::container::gate_probe::ProbeStage;
use crate::container::gate_probe::{EXECUTED_TIMEOUT, GateProbe, probe_check};
use crate::interface::action::{Action, Tell};
use crate::interface::exit::KILLED;
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::operation::{Check, Operation};
use crate::member::{Awaited, GateState, WasOpen};
use crate::questions::grace::grace_of;
use crate::questions::restarts::restarts_after;
use crate::rules::standby::{successor_is_ready, takeover_failed};
use crate::state::State;
use crate::steps::hooks::stop_after_hooks;

/// The program of a container has been started: from now on podshim checks its gate, if that is closed (U1, U2,
/// U11).
pub(crate) fn program_started(pod: &mut State, id: &ContainerId) {
    let now = pod.now;
    let stopping = pod.stop.is_some();
    let Some(container) = pod.containers.get_mut(id) else { return };
    let Some(index) = container.member() else { return };
    let state = &mut pod.members[index];
    if state.is_awaited == Awaited::ByNobody || state.gate == GateState::Open || stopping {
        return;
    }
    match state.member.gate {
        Gate::Skip => open_gate(pod, index),
        // T11: its own stop came while it was being started. If the gate opened now, it would start mains whose
        // sidecar is gone in a moment.
        Gate::Running | Gate::Probe { .. } if container.ending.next_exit == NextExit::Final => {}
        Gate::Running | Gate::Probe { .. } => {
            container.probe = Some(GateProbe::starting(now));
            pod.mark_changed();
        }
    }
}

/// U1: a program that exited with 0 before podshim saw it has been exec'd all the same, because a runtime's init
/// never exits with 0. Otherwise a sidecar that lives for a millisecond would hold its mains for ever.
pub(crate) fn exited_zero_before_exec_was_seen(pod: &mut State, id: &ContainerId) {
    let Some(index) = pod.containers.get(id).and_then(Container::member) else { return };
    if pod.members[index].member.gate == Gate::Running {
        open_gate(pod, index);
    } else {
        note_executed(pod, index);
    }
}

/// U1: the program has been exec'd.
pub(crate) fn note_executed(pod: &mut State, index: usize) {
    let gate = &mut pod.members[index].gate;
    *gate = (*gate).max(GateState::Started);
    pod.mark_changed();
}

pub(crate) fn open_gate(pod: &mut State, index: usize) {
    let state = &mut pod.members[index];
    if state.gate == GateState::Open {
        return;
    }
    state.gate = GateState::Open;
    state.was_open = WasOpen::Before;
    let line = format!("gate of {state} is open");
    if let Some(id) = state.current.clone()
        && let Some(container) = pod.containers.get_mut(&id)
    {
        container.probe = None;
        pod.record(&id, Milestone::GateOpened);
        pod.emit_change(Action::Note(line));
        return successor_is_ready(pod, &id);
    }
    pod.emit_change(Action::Note(line));
}

/// U4: podshim stops the sidecar within its own grace and restarts it; its gate stays closed.
pub(crate) fn gate_failed(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.containers.get_mut(id) else { return };
    let reason = container.probe.take().and_then(|probe| probe.last_failure).unwrap_or_default();
    pod.record(id, Milestone::GateFailed { reason: reason.clone() });
    let Some(container) = pod.containers.get_mut(id) else { return };
    if container.takeover.is_some() {
        return takeover_failed(pod, id, &format!("it did not get ready: {reason}"));
    }
    container.ending.next_exit = NextExit::Restart;
    let Some(container) = pod.containers.get(id) else { return };
    let then = if restarts_after(pod, container, KILLED) { "restarting" } else { "stopping" };
    let line = format!("did not get ready: {reason}; {then}");
    pod.emit_change(Action::Tell { container: id.clone(), line, to: Tell::Log });
    let grace = grace_of(pod, id);
    stop_after_hooks(pod, id, None, Some(grace));
}

pub(crate) fn send_check(pod: &mut State, id: &ContainerId, index: usize) {
    let Some(probe) = pod.containers.get(id).and_then(|c| c.probe.as_ref()) else { return };
    let (check, period) = match (probe.stage, &pod.members[index].member.gate) {
        (ProbeStage::Probe, Gate::Probe { action, timing }) => probe_check(action, timing, probe.failures),
        _ => (Check::Executed { timeout: EXECUTED_TIMEOUT }, Duration::ZERO),
    };
    let op = pod.run(id, Operation::Check(check));
    let next_at = pod.now + period;
    if let Some(probe) = pod.containers.get_mut(id).and_then(|c| c.probe.as_mut()) {
        probe.in_flight = Some(op);
        probe.next_at = next_at;
    }
}
