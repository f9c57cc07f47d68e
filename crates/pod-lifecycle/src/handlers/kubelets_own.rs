//! The names of the pod's init and ephemeral containers, from an agent that knows its object (S15).
//!
//! Owns the bounds on them. Never lets a container go: that is `rules::kubelets_own`.

use std::collections::BTreeSet;

use pod_spec::is_name;
use pod_spec::limits::MAX_KUBELETS_OWN;

use crate::interface::action::Reply;
use crate::interface::id::RequestId;
use crate::interface::outcome::{Refusal, RefusalKind};
use crate::state::State;

/// Keeps them beside those that it has.
pub(crate) fn learn_kubelets_own(pod: &mut State, request: RequestId, names: BTreeSet<String>) {
    let wrong =
        names.iter().find(|name| !is_name(name)).map(|name| format!("{name:?} is no container's name"));
    let count = pod.facts().union(&names).count();
    let too_many = (count > MAX_KUBELETS_OWN)
        .then(|| format!("{count} names of init and ephemeral containers are more than {MAX_KUBELETS_OWN}"));
    if let Some(message) = wrong.or(too_many) {
        return pod.reply(request, Err(Refusal::new(RefusalKind::InvalidArgument, message)));
    }
    pod.add_facts(names);
    pod.reply(request, Ok(Reply::Ok));
}
