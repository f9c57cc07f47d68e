//! The pod as it is, for operators, and what is kept of it when it is gone.
//!
//! Owns which parts of the state an answer comes from; the words of the control API are `control::inspection`'s.

use control_api::{Cost, InspectResponse, Past, VERSION};
use oci_runtime::attention;
use oci_runtime::reaper::Charge;
use pod_lifecycle::Inspection;

use crate::clock::wall_ms;
use crate::control::inspection::{self, milliseconds};
use crate::state::State;

/// The pod as it is, with what is known of containers that are gone.
pub(crate) fn inspect(state: &State) -> Inspection {
    let mut inspection = state.pod.inspect(state.now());
    state.last_exits.fill_in(&mut inspection);
    inspection
}

pub(crate) fn response(state: &State) -> InspectResponse {
    let inspection = inspect(state);
    let fault = state.creations.fault(&inspection);
    inspection::response(state.identity.clone(), inspection, fault, attention::longest(), cost(state))
}

/// Processor time that was spent for the pod outside of its containers' cgroups.
fn cost(state: &State) -> Cost {
    let of = |charge| milliseconds(state.reaper.processor_time_for(charge));
    Cost {
        shim_ms: milliseconds(oci_runtime::process::processor_time()),
        probes_ms: of(Charge::Probes),
        hooks_ms: of(Charge::Hooks),
        restarts_ms: of(Charge::Restarts),
        requests_ms: of(Charge::Requests),
        ..Default::default()
    }
}

/// What is kept of the pod when it is gone. A container of ctr that is no pod leaves nothing.
pub(crate) fn past(state: &State) -> Option<Past> {
    // Before any of the work: this is on the way of each `ctr run`.
    if state.identity.pod_name.is_empty() && !state.pod.plan_is_settled() {
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
    past.forget_commands();
    // It is gone, whatever it was.
    past.pod.mut_or_insert_default().fault = String::new();
    Some(past)
}
