//! The restart of the whole pod in place: a stop in order, then a start in order (R14).
//!
//! Owns when it begins and which containers are held for it. Which exits it hides is `questions::pod_restart`; the stop is
//! `rules::stop`, its end `rules::round`. Never sends a signal. Changes: restarts.

use std::time::Duration;

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::stop_cause::StopCause;
use crate::interface::time::show_duration;
use crate::questions::pod_restart::{is_renewed, limit_of_restarts};
use crate::questions::restarts::is_restart_wanted;
use crate::rules::stop::begin_stop;
use crate::state::State;
use crate::steps::renew::{begin_again, renew};

/// R14: a container has failed, and its pod restarts with it. R4's delay counts from here.
pub(crate) fn restart_after_failure(pod: &mut State, id: &ContainerId, exit: Exit) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let (Some(index), Some(limit)) = (container.member(), limit_of_restarts(pod, container, exit.code))
    else {
        return;
    };
    let backoff = pod.settings().map(|settings| settings.defaults.backoff).unwrap_or_default();
    let delay = pod.restarts.begin_after_failure(&backoff, now);
    let count = pod.restarts.count();
    let reason = format!("{} has ended with {}, restart {count} of {limit}", pod.member(index), exit.code);
    restart(pod, reason, delay);
    renew(pod, id, exit);
}

/// An operator asks for it.
pub(crate) fn restart_on_request(pod: &mut State) {
    pod.restarts.begin_on_request(pod.now());
    restart(pod, "requested".to_owned(), Duration::ZERO);
}

fn restart(pod: &mut State, reason: String, delay: Duration) {
    pod.note(format!("pod restarts in {}: {reason}", show_duration(delay)));
    pod.record_of_pod(Milestone::PodRestart { reason, delay });
    begin_stop(pod, StopCause::Restart);
}

/// What waits for a restart of its own, and what was restarted and has not started, is held for the pod's instead.
pub(crate) fn renew_waiting(pod: &mut State) {
    if !pod.is_restarting() {
        return;
    }
    let over = pod.planned_where(|_, container| {
        let waits =
            matches!(container.phase(), Phase::Held(_) | Phase::BackingOff { .. } | Phase::Recreating { .. });
        waits && !container.never_ran() && is_renewed(pod, container) && !is_restart_wanted(pod, container)
    });
    for id in over {
        match pod.container(&id).map(Container::phase) {
            Some(Phase::BackingOff { last, .. }) => {
                let last = *last;
                renew(pod, &id, last);
            }
            _ => begin_again(pod, &id),
        }
    }
}
