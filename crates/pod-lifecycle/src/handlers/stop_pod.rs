//! A stop that an operator or a signal to the shim asks for (T12c).
//!
//! Owns its time (T5). Never sends a signal: what a stop does is `rules::stop`.

use std::time::Duration;

use crate::interface::stop_cause::StopCause;
use crate::questions::grace::pod_grace;
use crate::rules::stop::begin_stop_within;
use crate::state::State;

/// A signal to the shim, or an operator's stop: everything ends, in order.
pub(crate) fn stop_pod(pod: &mut State, grace: Option<Duration>) {
    // T5: the plan's own figure limits the requested one. The kubelet's does not, as it is an estimate.
    let enforced = pod.settings().and_then(|settings| settings.grace);
    let grace = grace.unwrap_or_else(|| pod_grace(pod));
    let limit = pod.now() + enforced.map_or(grace, |enforced| enforced.min(grace));
    begin_stop_within(pod, StopCause::Requested, Some(limit));
}
