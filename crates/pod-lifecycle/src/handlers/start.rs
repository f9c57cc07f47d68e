//! Start: a container that a caller starts, and the end of a start (S6, S13, U7, I4, U11, J3).
//!
//! Owns what its caller sees of it (CONTRACT §6). Never decides whether it may start now: `questions::holds` does.
//! Changes: container, ending, member.

use pod_spec::{RestartPolicy, Role};

use crate::container::EndedStart;
use crate::container::phase::{DeferredSignal, Part, Phase};
use crate::handlers::checkpoint::restore_container;
use crate::handlers::exit::init_exited;
use crate::interface::action::{Action, LineTarget};
use crate::interface::exit::{Exit, KILLED, START_FAILED};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::milestone::{Milestone, SignalCause};
use crate::interface::operation::Reach;
use crate::interface::outcome::{Failure, Outcome, Refusal};
use crate::interface::spec::KubeletType;
use crate::questions::holds::{hold_reason, may_start, overruled};
use crate::questions::order::may_be_awaited;
use crate::questions::restarts::is_started_again;
use crate::rules::failure::{cannot_start, start_refused};
use crate::rules::gate::program_started;
use crate::rules::replacement::main_runs;
use crate::rules::standby::{take_over_if_replaced, takeover_failed};
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::hooks::go_on_with_hooks;
use crate::steps::signal::{send_deferred, send_kill};
use crate::steps::start::{announce_start, launch, release};
use crate::steps::unrun::{end_latecomer, end_without_running};

/// A caller starts a container.
pub(crate) fn start_container(pod: &mut State, request: RequestId, id: ContainerId) {
    let Some(container) = pod.container_mut(&id) else {
        return pod.reply_not_found(request, &id);
    };
    // A retry while the first Start is under way gets the same answer.
    if container.start_again(request) {
        return;
    }
    let refusal = match (container.phase(), container.part()) {
        // Its process has already got a signal that ends it.
        (Phase::Created, Part::Member(_)) if container.ending.is_final() => {
            format!("cannot start container {id}: it is being stopped")
        }
        (Phase::Created, Part::Member(_)) => return start_member(pod, request, id),
        (Phase::Created, Part::Sandbox | Part::Passthrough) => return launch(pod, &id, vec![request]),
        (Phase::CompletedAgain { exit }, _) => {
            let exit = *exit;
            return start_completed_init(pod, request, id, exit);
        }
        (Phase::Prepared, _) => return restore_container(pod, request, id),
        (phase @ (Phase::Creating { .. } | Phase::Stopped { .. } | Phase::Removing { .. }), _) => {
            format!("cannot start container {id}: it {}", phase.in_words())
        }
        _ => format!("cannot start container {id}: it was already started"),
    };
    pod.reply(request, Err(Refusal::precondition(refusal)));
}

/// I4: a completed init does not run again. A caller that waits for its exit, or that does not restart what exited
/// with 0, sees that exit at once. A caller that would restart it again and again sees it running (I5): one that has created
/// what comes after it does not wait for it.
fn start_completed_init(pod: &mut State, request: RequestId, id: ContainerId, exit: Exit) {
    let Some(container) = pod.container_mut(&id) else { return };
    container.hide(exit);
    let (pid, aware) = (container.pid(), container.spec().kubelet_type == Some(KubeletType::Init));
    let waits = aware || container.member().is_some_and(|index| may_be_awaited(pod, index));
    announce_start(pod, &id, pid, vec![request]);
    if waits || pod.policy() != RestartPolicy::Always {
        finish(pod, &id, exit);
    }
}

/// U7: Start of a planned container never waits: one that may not start yet is held, and its caller has its answer.
fn start_member(pod: &mut State, request: RequestId, id: ContainerId) {
    if pod.stop().is_some_and(|stop| stop.is_for_good()) {
        let text = format!("cannot start container {id}: the pod is stopping");
        return pod.reply(request, Err(Refusal::precondition(text)));
    }
    take_over_if_replaced(pod, &id);
    let may_start = pod.container(&id).is_some_and(|container| may_start(pod, container));
    if may_start {
        if let Some(warning) = pod.container(&id).and_then(|container| overruled(pod, container)) {
            pod.emit_change(Action::Warn(warning));
        }
        return release(pod, &id, vec![request]);
    }
    let now = pod.now();
    let Some(container) = pod.container_mut(&id) else { return };
    container.hold(now);
    let pid = container.pid();
    let reason = hold_reason(pod, &id).unwrap_or_default();
    pod.record(&id, Milestone::Held { reason });
    announce_start(pod, &id, pid, vec![request]);
}

/// `runtime start` has ended.
pub(crate) fn start_ended(pod: &mut State, id: ContainerId, outcome: Outcome, ended: Exit) {
    let now = pod.now();
    let Some(container) = pod.container_mut(&id) else { return };
    let Some(EndedStart { announce, early_exit, signals }) = container.end_start() else { return };
    let pid = container.pid();
    // C1, T10: no OCI runtime's init exits with 0, so the program has run, however its start ended.
    let has_run = announce.is_empty() && early_exit.is_some_and(|exit| exit.code == 0);
    let outcome = if has_run { Outcome::Ok } else { outcome };
    if let Outcome::Failed(failure) = &outcome {
        let reason = failure.message.clone();
        pod.record(&id, Milestone::StartFailed { reason });
    }
    let Some(container) = pod.container_mut(&id) else { return };
    match outcome {
        Outcome::Ok | Outcome::Process { .. } => {
            // V4: a program that is gone already takes nothing over, though its gate may open.
            if early_exit.is_none() {
                container.program_runs(now);
            }
            container.program_started();
            if let Some(index) = container.member() {
                pod.member_mut(index).runs();
                main_runs(pod, index);
            }
            pod.record(&id, Milestone::Running { pid });
            if !announce.is_empty() {
                announce_start(pod, &id, pid, announce);
            }
            // U11: also for a program that has exited by now.
            program_started(pod, &id);
            if let (Some(_), Some(container)) = (early_exit, pod.container_mut(&id)) {
                container.program_runs(now);
            }
            catch_up(pod, &id, early_exit, signals);
        }
        Outcome::Failed(failure) if announce.is_empty() => release_failed(pod, &id, early_exit, &failure),
        Outcome::Failed(failure) => {
            container.start_failed();
            let member = container.member();
            for request in announce {
                let Failure { kind, message } = failure.clone();
                pod.reply(request, Err(Refusal { kind, message }));
            }
            if let Some(index) = member {
                let exit = Exit { code: START_FAILED, ..ended };
                start_refused(pod, Some(&id), index, exit, &failure.message);
            }
            catch_up(pod, &id, early_exit, signals);
            end_latecomer(pod, &id);
        }
    }
}

/// Applies what waited for the end of a start: an exit, signals, or a stop with hooks.
fn catch_up(pod: &mut State, id: &ContainerId, early_exit: Option<Exit>, signals: Vec<DeferredSignal>) {
    if let Some(exit) = early_exit {
        // J10, I7: the signals that were kept back until the end of the start have not reached the program; SIGKILL is not kept back.
        if let Some(container) = pod.container_mut(id)
            && !(container.ending.is_killed() && exit.code == KILLED)
        {
            container.ending.not_signalled();
        }
        return init_exited(pod, id.clone(), exit);
    }
    send_deferred(pod, id, signals);
    go_on_with_hooks(pod, id);
}

/// `runtime start` failed for a released container, or for one that is restarted in place. No caller waits for an
/// answer any more, so the container's log has the reason. podshim tries again where it restarts the container;
/// others report 128, as docker does.
fn release_failed(pod: &mut State, id: &ContainerId, early_exit: Option<Exit>, failure: &Failure) {
    let line = format!("could not be started: {}", failure.message);
    pod.emit_change(Action::WriteLine {
        container: id.clone(),
        line,
        to: LineTarget::LogAndTerminationMessage,
    });
    takeover_failed(pod, id, &format!("it could not be started: {}", failure.message));
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let tries_again = is_started_again(pod, container);
    let first_try = container.is_first_try();
    let Some(container) = pod.container_mut(id) else { return };
    // A container that was stopped meanwhile reports that end (J3).
    if tries_again || container.ending.is_final() {
        container.kill_unstarted(now);
        send_kill(pod, id, Reach::Process, SignalCause::NotRun);
    } else {
        let member = container.member();
        end_without_running(pod, id, START_FAILED, None);
        match member {
            // R9: its end stops the pod, see `finish_if_drained`.
            Some(index) if pod.member(index).is_fatal(START_FAILED) => {}
            // R4: its restarts are used up. Once it has ended the pod goes on without it.
            Some(index) if pod.member(index).role() == Role::Sidecar && !first_try => {}
            // I8.
            Some(index) => cannot_start(pod, index, &failure.message),
            None => {}
        }
    }
    if let Some(exit) = early_exit {
        init_exited(pod, id.clone(), exit);
    }
}
