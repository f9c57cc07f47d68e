//! When the pod next needs the clock.
//!
//! Owns the list of everything that waits for a time. Each entry belongs to a rule that asks for the same time; one that is
//! missing here comes too late. Changes nothing: what is due then is with its rule.

use crate::container::Container;
use crate::container::gate_probe::GateProbe;
use crate::container::phase::Phase;
use crate::interface::time::PodTime;
use crate::member::evidence::Ended;
use crate::questions::completion::{completion_waits_until, is_complete, something_is_left};
use crate::questions::losses::losses;
use crate::questions::order::stands_by;
use crate::questions::pod_restart::resumes_at;
use crate::state::State;
use crate::stop::Budget;

/// When to call `handle` again at the latest; `None` when nothing is pending.
pub(crate) fn next_deadline(pod: &State) -> Option<PodTime> {
    pod.containers()
        .flat_map(|container| container_deadlines(pod, container))
        .chain(stop_deadlines(pod))
        .chain(replacement_deadlines(pod))
        .flatten()
        .min()
}

/// When a container next needs the clock.
fn container_deadlines(pod: &State, container: &Container) -> [Option<PodTime>; 7] {
    let kill =
        container.ending.kill_at().filter(|_| !container.ending.is_killed() && container.has_process());
    let [hold, probe] = startup_deadlines(pod, container);
    let (hook, takeover) = (container.hooks.deadline(), container.takeover.deadline());
    [kill, restart_deadline(container), hold, probe, hook, takeover, container.overdue.deadline()]
}

/// When the stop next needs the clock.
fn stop_deadlines(pod: &State) -> [Option<PodTime>; 4] {
    let budget = pod.stop().and_then(|stop| match stop.budget() {
        Budget::Until { at, .. } | Budget::LastCall { kill_at: at } => Some(at),
        Budget::Callers | Budget::Spent => None,
    });
    let completes = !pod.is_stopping() && is_complete(pod) && something_is_left(pod);
    let completion = if completes { completion_waits_until(pod) } else { None };
    let resumes_at = resumes_at(pod);
    let restart = (pod.is_restarting() && pod.now() < resumes_at).then_some(resumes_at);
    [budget, completion, pod.callers_stop.until(), restart]
}

/// When ends count, or members are given up.
fn replacement_deadlines(pod: &State) -> impl Iterator<Item = Option<PodTime>> {
    let open = pod.members().iter().map(|state| state.ended().and_then(Ended::open_until));
    let losses = losses(pod).into_iter().map(|(_, at)| Some(at));
    open.chain(losses).collect::<Vec<_>>().into_iter()
}

/// When a hold or a gate's probe next needs the clock.
fn startup_deadlines(pod: &State, container: &Container) -> [Option<PodTime>; 2] {
    let hold = match container.phase() {
        Phase::Held(hold) => {
            // U6 limits the wait for gates: the wait for the end of a stop has no limit (T11).
            let limit = pod.settings().filter(|_| !pod.is_stopping() && !stands_by(pod, container));
            let limit = limit.and_then(|settings| settings.gate_timeout).map(|limit| hold.since() + limit);
            hold.next_line_due().into_iter().chain(limit).min()
        }
        _ => None,
    };
    [hold, container.probe().and_then(GateProbe::deadline)]
}

/// When a container next needs the clock.
fn restart_deadline(container: &Container) -> Option<PodTime> {
    match container.phase() {
        // A pause that was under way at the exit would freeze the next process.
        Phase::BackingOff { until, .. } if !container.freezer.is_changing() => Some(*until),
        _ => None,
    }
}
