//! The order of a plan at work: what a container waits for at its start, and whether a sidecar's turn to stop has come
//! (U10, T1, T4, T13, V1, V2).
//!
//! Owns both directions of one relation: a stop's order is the start order reversed. Changes nothing: `rules::startup` and
//! `rules::turns` act on it.

use pod_spec::{Link, Role};

use crate::container::Container;
use crate::state::State;

/// V1: whether a container is held as the standby, whatever its gates.
pub(crate) fn stands_by(pod: &State, container: &Container) -> bool {
    let standby = container.member().is_some_and(|index| !pod.member(index).pair.is_active());
    standby && !container.takeover.is_under_way()
}

/// The first member, in plan order, that a member must still wait for. A member that was not created yet satisfies
/// nothing (U10).
pub(crate) fn first_blocker(pod: &State, index: usize) -> Option<Link> {
    // V2: what waits for a pair waits for its active container.
    let blocks = |link: &&Link| {
        let earlier = pod.member(link.earlier);
        earlier.pair.is_active() && link.until.is_some_and(|condition| !earlier.satisfies(condition))
    };
    pod.member(index).links().iter().filter(blocks).min_by_key(|link| link.earlier).copied()
}

/// Whether a member comes after another one: a main, what waits for it, also through others, or a later one of its group, which a kubelet
/// runs one after another. A kubelet that runs an init as an init container creates what comes after it only once it has seen the exit.
pub(crate) fn comes_after(pod: &State, index: usize, earlier: usize) -> bool {
    let (state, other) = (pod.member(index), pod.member(earlier));
    let follows_in_group = index > earlier && state.member().entry == other.member().entry;
    let waits = || state.needs(earlier) || waits_through_others(pod, index, earlier);
    index != earlier && (state.role() == Role::Main || follows_in_group || waits())
}

/// Whether a member waits for what waits for another one, and so on.
fn waits_through_others(pod: &State, index: usize, earlier: usize) -> bool {
    let mut reached = vec![index];
    let mut next = 0;
    while let Some(at) = reached.get(next).copied() {
        next += 1;
        for link in pod.member(at).links().iter().filter(|link| link.until.is_some()) {
            if link.earlier == earlier {
                return true;
            }
            if !reached.contains(&link.earlier) {
                reached.push(link.earlier);
            }
        }
    }
    false
}

/// Whether something that comes after a member exists. What has ended and was not recreated does not.
pub(crate) fn is_followed(pod: &State, earlier: usize) -> bool {
    (0..pod.members().len()).any(|index| comes_after(pod, index, earlier) && !pod.is_gone(index))
}

/// I5: whether the caller of an init may be waiting for its exit. What is being created or was never started shows nothing: a kubelet
/// that is restarted meanwhile gives it up (F11).
pub(crate) fn may_be_awaited(pod: &State, init: usize) -> bool {
    let lives = |index: usize| pod.current(index).is_some_and(Container::is_shown_running);
    let is_followed = || (0..pod.members().len()).any(|index| comes_after(pod, index, init) && lives(index));
    pod.member(init).exit_may_be_awaited() && !is_followed()
}

/// The main that keeps another container from ever starting: it has ended without what the other waits for, and
/// under Never its caller does not recreate it.
pub(crate) fn never_done(pod: &State, index: usize) -> Option<usize> {
    let failed = |link: &Link| {
        let earlier = pod.member(link.earlier);
        pod.recreates_nothing()
            && earlier.role() == Role::Main
            && link.until.is_some_and(|condition| !earlier.satisfies(condition))
            && earlier.counted_code().is_some()
            && pod.is_gone(link.earlier)
    };
    pod.member(index).links().iter().find(|link| failed(link)).map(|link| link.earlier)
}

/// T1, T4, T13: whether every container that needs a sidecar is gone or never ran. Once the budget is spent it is every
/// sidecar's turn (T6).
pub(crate) fn turn_has_come(pod: &State, sidecar: &Container) -> bool {
    let Some(index) = sidecar.member() else { return true };
    pod.budget_is_over()
        || !pod.planned().any(|(state, container)| container.is_unfinished() && state.needs(index))
}
