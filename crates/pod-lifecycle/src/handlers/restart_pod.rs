//! A restart of the pod that an operator asks for (R14).
//!
//! Owns the answer. Never stops or starts a container: what a restart does is `rules::pod_restart`.

use crate::interface::action::Reply;
use crate::interface::id::RequestId;
use crate::interface::outcome::Refusal;
use crate::questions::pod_restart::refuses_restart;
use crate::rules::pod_restart::restart_on_request;
use crate::state::State;

/// The stop begins; the answer waits for nothing.
pub(crate) fn restart_pod(pod: &mut State, request: RequestId) {
    if let Some(reason) = refuses_restart(pod) {
        return pod.reply(request, Err(Refusal::precondition(format!("cannot restart the pod: {reason}"))));
    }
    restart_on_request(pod);
    pod.reply(request, Ok(Reply::Ok));
}
