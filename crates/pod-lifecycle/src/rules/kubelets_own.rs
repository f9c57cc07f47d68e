//! Mains that only `*=main` names, and that are their kubelet's own by the pod's object (S15).
//!
//! Owns when such a container leaves the plan. Never holds or ends one; what is created later `handlers::create` judges.
//! Changes: member.

use crate::container::Container;
use crate::questions::order::comes_after;
use crate::state::State;
use crate::steps::start::launch;

/// S15: a container whose program was not started leaves the plan, and is let go if it is held. Not while a stop is under way, or may become one
/// of the pod because this main is gone (T12).
pub(crate) fn let_kubelets_own_go(pod: &mut State) {
    if pod.facts().is_empty() {
        return;
    }
    forget_what_they_showed(pod);
    if pod.is_stopping() || pod.members().iter().any(|state| state.asked().is_some()) {
        return;
    }
    let is_own = |index: &usize| {
        let waits = |it: &Container| it.is_held() || it.is_unstarted() && !it.ending.is_final();
        pod.is_unnamed(*index)
            && pod.is_kubelets_own(&pod.member(*index).member().name)
            && pod.current(*index).is_some_and(waits)
    };
    let own: Vec<_> = (0..pod.members().len()).filter(is_own).collect();
    for index in own {
        let Some(container) = pod.current(index) else { continue };
        let (id, is_held) = (container.id().clone(), container.is_held());
        pod.leave_plan(index);
        pod.note(format!("container {id} is its kubelet's own: the pod's object says so"));
        if is_held {
            launch(pod, &id, Vec::new());
        }
    }
}

/// I5, T18: that a caller creates or starts one does not show that it waits for no init.
fn forget_what_they_showed(pod: &mut State) {
    if !pod.created_unnamed().is_subset(pod.facts()) {
        return;
    }
    let is_named = |index: &usize| !pod.is_unnamed(*index) && !pod.member(*index).was_never_created();
    let named: Vec<_> = (0..pod.members().len()).filter(is_named).collect();
    for init in 0..pod.members().len() {
        if !named.iter().any(|later| comes_after(pod, *later, init)) {
            pod.member_mut(init).not_followed();
        }
    }
}
