//! Gates: when they are probed, what opens them, and what a gate that does not open means (U1 to U4, U11).
//!
//! Owns what follows from a probe's verdict. Never counts results, which `container::gate_probe` does; what waits for a
//! gate is `questions::order`. Changes: container, probe, ending, gate.

use pod_spec::Gate;

use crate::container::Container;
use crate::container::gate_probe::GateProbe;
use crate::interface::action::{Action, LineTarget};
use crate::interface::exit::KILLED;
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::operation::Operation;
use crate::interface::time::PodTime;
use crate::questions::grace::grace_of;
use crate::questions::restarts::restarts_after;
use crate::rules::standby::{successor_is_ready, takeover_failed};
use crate::state::State;
use crate::steps::hooks::stop_after_hooks;

/// The program of a container has been started: from now on podshim checks its gate, if that is closed (U1, U2,
/// U11).
pub(crate) fn program_started(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let Some(index) = container.member() else { return };
    let state = pod.member(index);
    if !state.is_awaited() || state.gate.is_open() || pod.is_stopping() {
        return;
    }
    match state.member().gate {
        // T11, H8, U11: its own stop came while it was being started. If the gate opened now, it would start mains whose
        // sidecar is gone in a moment.
        _ if container.ending.is_final() || container.ending.is_signalled() => {}
        // U4: it ends in order to be restarted, although the pod's stop was taken back meanwhile (T12).
        _ if container.ending.ends_for_restart() => {}
        Gate::Skip => open_gate(pod, index),
        Gate::Running | Gate::Probe { .. } => {
            if let Some(container) = pod.container_mut(id) {
                container.watch_gate(now);
            }
            pod.mark_changed();
        }
    }
}

/// U1: a program that exited with 0 before podshim saw it has been exec'd all the same, because a runtime's init
/// never exits with 0. Otherwise a sidecar that lives for a millisecond would hold its mains for ever.
pub(crate) fn exited_zero_before_exec_was_seen(pod: &mut State, id: &ContainerId) {
    let Some(index) = pod.container(id).and_then(Container::member) else { return };
    if pod.member(index).member().gate == Gate::Running {
        open_gate(pod, index);
    } else {
        note_executed(pod, index);
    }
}

/// U1: the program has been exec'd.
fn note_executed(pod: &mut State, index: usize) {
    pod.member_mut(index).gate.note_executed();
    pod.mark_changed();
}

/// What waited for the member may go on (U1, U2).
pub(crate) fn open_gate(pod: &mut State, index: usize) {
    if !pod.member_mut(index).gate.open() {
        return;
    }
    let line = format!("gate of {} is open", pod.member(index));
    if let Some(id) = pod.member(index).current().cloned()
        && let Some(container) = pod.container_mut(&id)
    {
        container.stop_probing();
        pod.record(&id, Milestone::GateOpened);
        pod.note(line);
        return successor_is_ready(pod, &id);
    }
    pod.note(line);
}

/// U4: podshim stops the sidecar within its own grace and restarts it; its gate stays closed.
pub(crate) fn gate_failed(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container_mut(id) else { return };
    let reason = container
        .stop_probing()
        .and_then(|probe| probe.last_failure().map(str::to_owned))
        .unwrap_or_default();
    pod.record(id, Milestone::GateFailed { reason: reason.clone() });
    let Some(container) = pod.container_mut(id) else { return };
    if container.takeover.is_under_way() {
        return takeover_failed(pod, id, &format!("it did not get ready: {reason}"));
    }
    container.ending.end_for_restart();
    let Some(container) = pod.container(id) else { return };
    let then = if restarts_after(pod, container, KILLED) { "restarting" } else { "stopping" };
    let line = format!("did not get ready: {reason}; {then}");
    pod.emit_change(Action::WriteLine { container: id.clone(), line, to: LineTarget::Log });
    let grace = grace_of(pod, id);
    stop_after_hooks(pod, id, None, Some(grace));
}

/// U2: when a closed gate is checked next.
pub(crate) fn probe_due(_: &State, container: &Container) -> Option<PodTime> {
    container.probe().and_then(GateProbe::deadline)
}

/// Begins the check of a closed gate that is due.
pub(crate) fn send_check(pod: &mut State, id: &ContainerId) {
    let (Some(container), now) = (pod.container(id), pod.now()) else { return };
    let (Some(probe), Some(state)) = (container.probe(), pod.member_of(container)) else { return };
    let gate = state.member().gate.clone();
    let op = pod.run(id, Operation::Check(probe.next_check(&gate)));
    if let Some(probe) = pod.container_mut(id).and_then(Container::probe_mut) {
        probe.check_began(op, &gate, now);
    }
}
