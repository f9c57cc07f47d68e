//! The end of a container whose program will not run (K3, J9, S14, T11, K13).
//!
//! Owns how it ends and what its log gets. Never decides why it will not run: that is decided above. Changes: container.

use crate::container::Container;
use crate::container::phase::{Part, Phase};
use crate::interface::action::{Action, LineTarget};
use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::milestone::SignalCause;
use crate::interface::operation::Reach;
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::signal::send_kill;

/// Ends a container whose program will not run: podshim kills its runtime's init and reports `code` (K3, J9, T11).
/// With SIGKILL, because each runtime decides what its init does on other signals.
pub(crate) fn end_without_running(pod: &mut State, id: &ContainerId, code: u32, line: Option<String>) {
    if let Some(line) = line {
        pod.emit_change(Action::WriteLine {
            container: id.clone(),
            line,
            to: LineTarget::LogAndTerminationMessage,
        });
    }
    let Some(container) = pod.container_mut(id) else { return };
    container.end_unrun(code);
    send_kill(pod, id, Reach::Process, SignalCause::NotRun);
}

/// K13: ends a container that is created and not started. Its process would outlive the sandbox, and in a stop for
/// good it will never be started.
pub(crate) fn end_latecomer(pod: &mut State, id: &ContainerId) {
    let Some(stop) = pod.stop().filter(|stop| stop.is_for_good()) else { return };
    let code = stop.code_of_held();
    if pod.container(id).is_some_and(|container| container.part() != Part::Sandbox) {
        end_unstarted(pod, id, code);
    }
}

/// Ends a container that is created and not started; a completed init shows its own exit (I4).
pub(crate) fn end_unstarted(pod: &mut State, id: &ContainerId, code: u32) {
    match pod.container(id).map(Container::phase) {
        Some(Phase::Created) => end_without_running(pod, id, code, None),
        Some(&Phase::CompletedAgain { exit }) => finish(pod, id, exit),
        Some(Phase::Prepared) => finish(pod, id, Exit { code, ..Exit::default() }),
        _ => {}
    }
}
