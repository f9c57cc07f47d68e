//! The pod as it is now, for operators, and the record that is kept of it when it is gone.
//!
//! Owns which parts of the state these come from. May only read. The translation is `control::inspection`'s.

use control_api::{Cost, InspectResponse, Past, VERSION};
use node_state::past::forget_commands;
use pod_lifecycle::{ContainerId, Inspection};
use processes::reaper::Charge;
use threads::busy;

use crate::clock::wall_ms;
use crate::control::inspection::{self, milliseconds};
use crate::state::State;

/// The pod as it is now, with the last exits of deleted containers.
pub(crate) fn inspect(state: &State) -> Inspection {
    let mut inspection = state.pod().inspect(state.now());
    state.last_exits.fill_in(&mut inspection);
    inspection
}

pub(crate) fn response(state: &State) -> InspectResponse {
    let inspection = inspect(state);
    let fault = state.created_names.fault(&inspection);
    let (away, streams) = (busy::longest(), state.context.hands.attention());
    let mut response =
        inspection::response(state.identity.clone(), inspection, fault, away, streams, cost(state));
    state.restart_requests.fill_in(&mut response);
    for container in &mut response.containers {
        let (id, now) = (ContainerId::from(container.id.as_str()), state.now());
        container.gate_wait_ms = state.counters.gate_wait(&id, now).map(milliseconds);
        state.last_exits.fill_in_runs(container);
        if let Some((signal, cause, since)) = state.counters.stop_signal(&id, now) {
            container.stop_signal = signal.number().into();
            container.stop_cause = cause.into();
            container.stopping_for_ms = Some(milliseconds(since));
        }
    }
    response
}

/// The processor time that was spent for the pod outside its containers' cgroups.
fn cost(state: &State) -> Cost {
    let of = |charge| milliseconds(state.reaper.processor_time_for(charge));
    Cost {
        shim_ms: milliseconds(processes::processor_time()),
        probes_ms: of(Charge::Probes),
        hooks_ms: of(Charge::Hooks),
        restarts_ms: of(Charge::Restarts),
        requests_ms: of(Charge::Requests),
        ..Default::default()
    }
}

/// The record that is kept of the pod. A container of ctr without a plan leaves none.
pub(crate) fn past(state: &State) -> Option<Past> {
    // First of all: every `ctr run` comes here, and it should cost nothing.
    if state.identity.pod_name.is_empty() && !state.pod().plan_is_settled() {
        return None;
    }
    let response = Some(response(state)).filter(|response| !response.containers.is_empty())?;
    let mut past = Past {
        version: VERSION,
        pod: Some(response).into(),
        events: Some(state.history.all()).into(),
        ended_at_ms: wall_ms(),
        ..Default::default()
    };
    forget_commands(&mut past);
    // A pod that is gone has no fault any more.
    past.pod.mut_or_insert_default().fault = String::new();
    Some(past)
}
