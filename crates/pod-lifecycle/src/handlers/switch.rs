//! Switch.

use crate::container::phase::{Phase, Program};
use crate::interface::id::RequestId;
use crate::interface::outcome::{Refusal, RefusalKind};
use crate::member::PairRole;
use crate::rules::standby::{begin_takeover, refuses_switch_to};
use crate::state::State;

/// V3, on an operator's request: the standby of that name's pair is to take over.
pub(crate) fn switch_pair(pod: &mut State, request: RequestId, name: &str) {
    let found = pod
        .members
        .iter()
        .position(|state| state.member.name == name || state.member.alias.as_deref() == Some(name));
    let Some(index) = found else {
        return pod.reply(request, Err(Refusal::not_found(format!("no container {name:?} in the plan"))));
    };
    let Some(other) = pod.partner(index) else {
        let text = format!("{} has no standby", pod.members[index]);
        return pod.reply(request, Err(Refusal::new(RefusalKind::InvalidArgument, text)));
    };
    let next = if pod.members[index].duty == PairRole::Standby { index } else { other };
    let held = pod.current(next).filter(|container| {
        matches!(container.phase, Phase::Held(_)) && container.program == Program::NeverRan
    });
    let refused = match held {
        Some(container) if container.takeover.is_some() => Some("a switch is under way".to_owned()),
        None => Some(format!("{} is not held", pod.members[next])),
        Some(_) => refuses_switch_to(pod, next),
    };
    if let Some(reason) = refused {
        let text = format!("cannot switch to {}: {reason}", pod.members[next]);
        return pod.reply(request, Err(Refusal::precondition(text)));
    }
    let Some(id) = pod.members[next].current.clone() else { return };
    begin_takeover(pod, &id, Some(request));
}
