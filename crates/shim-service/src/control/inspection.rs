//! Translates an inspection of the pod into the control API's messages. Owns nothing and decides nothing.

use std::time::Duration;

use control_api::container::{GateState, Role as WireRole, State as WireState};
use control_api::{Budget, Container, Cost, InspectResponse, Names, Outcome, StopReason, VERSION};
use pod_lifecycle::{
    BudgetLeft, Exit, GateProgress, InspectedContainer, InspectedPart, InspectedState, InspectedStop,
    Inspection, PodOutcome, StopCause,
};
use pod_spec::Role;
use streams::head::HandsAttention;
use threads::busy::LongestRound;

use crate::identity::Identity;

/// The answer to Inspect.
pub(crate) fn response(
    identity: Identity,
    inspection: Inspection,
    fault: Option<String>,
    away: LongestRound,
    streams: HandsAttention,
    cost: Cost,
) -> InspectResponse {
    let (stop_reason, budget, left) = inspection.stop.map_or_else(Default::default, stop);
    InspectResponse {
        version: VERSION,
        release: control_api::release(),
        started_at_ms: identity.started_at_ms,
        id: identity.id,
        namespace: identity.namespace,
        pod_name: identity.pod_name,
        pod_namespace: identity.pod_namespace,
        pod_uid: identity.pod_uid,
        stop_reason: stop_reason.into(),
        budget: budget.into(),
        budget_left_ms: milliseconds(left),
        containers: inspection.containers.into_iter().map(container).collect(),
        longest_away_us: Some(microseconds(away.time)),
        longest_away_on: away.on.to_owned(),
        outcome: match inspection.outcome {
            None => Outcome::NOT_ENDED,
            Some(PodOutcome::Succeeded) => Outcome::SUCCEEDED,
            Some(PodOutcome::Failed) => Outcome::FAILED,
        }
        .into(),
        fault: fault.unwrap_or_default(),
        kubelets_own: inspection.kubelets_own.map(|names| Names { names, ..Default::default() }).into(),
        cost: Some(cost).into(),
        streams_longest_away_us: Some(microseconds(streams.longest_away)),
        streams_away_us: Some(microseconds(streams.away_for.unwrap_or_default())),
        ..Default::default()
    }
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Why a stop began.
pub(super) fn reason(cause: StopCause) -> StopReason {
    match cause {
        StopCause::Caller => StopReason::CALLER,
        StopCause::Sandbox(_) => StopReason::SANDBOX_ENDED,
        StopCause::Requested => StopReason::REQUESTED,
        StopCause::ZeroGrace => StopReason::ZERO_GRACE,
        StopCause::Completed => StopReason::MAINS_DONE,
        StopCause::InitFailed => StopReason::INIT_FAILED,
        StopCause::SidecarFailed => StopReason::SIDECAR_FAILED,
        StopCause::Fatal => StopReason::FATAL,
        StopCause::Restart => StopReason::RESTART,
    }
}

/// Why a stop began, who counts its time, and how much is left of it.
pub(crate) fn stop(stop: InspectedStop) -> (StopReason, Budget, Duration) {
    let reason = reason(stop.cause);
    let (budget, left) = match stop.budget {
        BudgetLeft::Callers => (Budget::CALLERS, Duration::ZERO),
        BudgetLeft::Until(left) => (Budget::ENFORCED, left),
        BudgetLeft::LastCall(left) => (Budget::LAST_CALL, left),
        BudgetLeft::Spent => (Budget::SPENT, Duration::ZERO),
    };
    (reason, budget, left)
}

fn container(container: InspectedContainer) -> Container {
    let code = |exit: Option<Exit>| exit.map(|exit| exit.code);
    let (gate, gate_state) = match container.gate {
        Some((gate, progress)) => (gate.to_string(), progress),
        None => (String::new(), GateProgress::Closed),
    };
    Container {
        id: container.id.map(|id| id.to_string()).unwrap_or_default(),
        name: container.name,
        role: role(container.part).into(),
        state: match container.real_exit {
            // Its caller has deleted the task.
            Some(_) if container.state == InspectedState::NotCreated => WireState::EXITED,
            _ => state(container.state),
        }
        .into(),
        pid: container.pid.unwrap_or_default(),
        gate,
        gate_state: match gate_state {
            GateProgress::Closed => GateState::CLOSED,
            GateProgress::Started => GateState::STARTED,
            GateProgress::Open => GateState::OPEN,
        }
        .into(),
        after: container.after.into_iter().map(|(name, until)| format!("{name}={}", until.word())).collect(),
        held_for: container.held_for.unwrap_or_default(),
        restarts: container.restarts,
        restarts_total: Some(container.restarts_total),
        real_exit_code: code(container.real_exit),
        shown_exit_code: code(container.shown_exit),
        pending_signal: container.pending_signal.map_or(0, |signal| signal.number().into()),
        kill_in_ms: container.kill_in.map(milliseconds),
        restart_in_ms: container.restart_in.map(milliseconds),
        exited_at_ms: container.real_exit.and_then(exited_at),
        ..Default::default()
    }
}

/// When that was, in milliseconds since 1970; `None` if it is not known.
pub(super) fn exited_at(exit: Exit) -> Option<i64> {
    i64::try_from(exit.at.0.as_millis()).ok().filter(|at| *at > 0)
}

fn role(part: InspectedPart) -> WireRole {
    match part {
        InspectedPart::Sandbox => WireRole::SANDBOX,
        InspectedPart::Passthrough => WireRole::PASSTHROUGH,
        InspectedPart::Planned(Role::Init) => WireRole::INIT,
        InspectedPart::Planned(Role::Sidecar) => WireRole::SIDECAR,
        InspectedPart::Planned(Role::Main) => WireRole::MAIN,
        InspectedPart::Standby => WireRole::STANDBY,
    }
}

fn state(state: InspectedState) -> WireState {
    match state {
        InspectedState::NotCreated => WireState::NOT_CREATED,
        InspectedState::Creating => WireState::CREATING,
        InspectedState::Created => WireState::CREATED,
        InspectedState::Held => WireState::HELD,
        InspectedState::Starting => WireState::STARTING,
        InspectedState::Running => WireState::RUNNING,
        InspectedState::Paused => WireState::PAUSED,
        InspectedState::BackingOff => WireState::BACKING_OFF,
        InspectedState::Restarting => WireState::RESTARTING,
        InspectedState::Completed => WireState::COMPLETED,
        InspectedState::Ending => WireState::ENDING,
        InspectedState::Stopped => WireState::STOPPED,
    }
}

/// Whole milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
