//! Switch: an operator's request that the standby of a pair takes over (V3).
//!
//! Owns which requests are refused. Never starts or stops one of the pair: the takeover is `rules::standby`.

use crate::interface::id::RequestId;
use crate::interface::outcome::{Refusal, RefusalKind};
use crate::rules::standby::{begin_takeover, refuses_switch_to};
use crate::state::State;

/// V3, on an operator's request: the standby of that name's pair is to take over.
pub(crate) fn switch_pair(pod: &mut State, request: RequestId, name: &str) {
    let found = pod
        .members()
        .iter()
        .position(|state| state.member().name == name || state.member().alias.as_deref() == Some(name));
    let Some(index) = found else {
        return pod.reply(request, Err(Refusal::not_found(format!("no container {name:?} in the plan"))));
    };
    let Some(other) = pod.partner(index) else {
        let text = format!("{} has no standby", pod.member(index));
        return pod.reply(request, Err(Refusal::new(RefusalKind::InvalidArgument, text)));
    };
    let next = if pod.member(index).pair.is_active() { other } else { index };
    let held = pod.current(next).filter(|container| container.is_held() && container.never_ran());
    let refused = match held {
        Some(container) if container.takeover.is_under_way() => Some("a switch is under way".to_owned()),
        None => Some(format!("{} is not held", pod.member(next))),
        Some(_) => refuses_switch_to(pod, next),
    };
    if let Some(reason) = refused {
        let text = format!("cannot switch to {}: {reason}", pod.member(next));
        return pod.reply(request, Err(Refusal::precondition(text)));
    }
    let Some(id) = pod.member(next).current().cloned() else { return };
    begin_takeover(pod, &id, Some(request));
}
