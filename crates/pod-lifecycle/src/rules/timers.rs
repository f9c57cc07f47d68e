//! What waits for a time of a container.
//!
//! Owns the list of these times, each with what happens then, and their order. A time that is not in the list does not exist: what
//! follows it begins here alone. Decides nothing else: the rest is with each rule.

use crate::container::Container;
use crate::interface::id::ContainerId;
use crate::interface::milestone::SignalCause;
use crate::interface::operation::Reach;
use crate::interface::time::PodTime;
use crate::questions::grace::next_last_signal;
use crate::rules::gate::{probe_due, send_check};
use crate::rules::hooks::{hooks_due, hooks_timed_out};
use crate::rules::restart::{recreate, restart_due};
use crate::rules::standby::{takeover_due, takeover_timed_out};
use crate::rules::startup::{gate_timed_out, gate_timeout_due, line_due, note_hold, write_hold_line};
use crate::rules::turns::end_part;
use crate::state::State;
use crate::steps::signal::kill_process;

/// A time of a container.
struct Timer {
    due: fn(&State, &Container) -> Option<PodTime>,
    act: fn(&mut State, &ContainerId),
}

/// In the order in which they are applied.
const TIMERS: [Timer; 8] = [
    Timer { due: hooks_due, act: hooks_timed_out },
    Timer { due: takeover_due, act: takeover_timed_out },
    Timer { due: next_last_signal, act: end_part },
    Timer { due: kill_due, act: kill },
    Timer { due: restart_due, act: recreate },
    Timer { due: gate_timeout_due, act: gate_timed_out },
    Timer { due: line_due, act: write_hold_line },
    Timer { due: probe_due, act: send_check },
];

/// The next of these times.
pub(crate) fn next_container_timer(pod: &State) -> Option<PodTime> {
    pod.containers().flat_map(|container| TIMERS.iter().filter_map(|timer| (timer.due)(pod, container))).min()
}

/// Applies everything that is due, container by container.
pub(crate) fn apply_container_timers(pod: &mut State) {
    let ids: Vec<_> = pod.containers().map(|container| container.id().clone()).collect();
    for id in ids {
        note_hold(pod, &id);
        for Timer { due, act } in &TIMERS {
            let at = pod.container(&id).and_then(|container| due(pod, container));
            if at.is_some_and(|at| pod.now() >= at) {
                act(pod, &id);
            }
        }
    }
}

/// T7, T8, U4. T10: also of a process that has ended while its start goes on, which is given up then. I7: not where it only ends in
/// order to be restarted, as it may have completed.
fn kill_due(_: &State, container: &Container) -> Option<PodTime> {
    let waits_for_start = container.exited_during_start() && !container.ending.ends_for_restart();
    let may_be_left = container.has_process() || waits_for_start;
    container.ending.kill_at().filter(|_| !container.ending.is_killed() && may_be_left)
}

fn kill(pod: &mut State, id: &ContainerId) {
    // U4: it may still be restarted.
    kill_process(pod, id, Reach::All, SignalCause::Grace);
}
