//! Start.

use pod_spec::{RestartPolicy, Role, Signal};

use crate::container::ending::NextExit;
use crate::container::hold::Hold;
use crate::container::phase::{Parked, Part, Phase, Program};
use crate::handlers::checkpoint::restore_container;
use crate::handlers::exit::init_exited;
use crate::interface::action::{Action, Tell};
use crate::interface::exit::{Exit, START_FAILED};
use crate::interface::id::{ContainerId, RequestId, Target};
use crate::interface::milestone::{Milestone, SignalCause};
use crate::interface::operation::Reach;
use crate::interface::outcome::{Failure, Outcome, Refusal};
use crate::interface::spec::KubeletType;
use crate::questions::holds::{hold_reason, may_start};
use crate::questions::restarts::restarts_after;
use crate::rules::failure::{cannot_start, start_refused};
use crate::rules::gate::program_started;
use crate::rules::replacement::{go_on_without, main_runs};
use crate::rules::standby::{take_over_if_replaced, takeover_failed};
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::hooks::go_on_with_hooks;
use crate::steps::signal::send_parked;
use crate::steps::start::{announce_start, launch, mark_released};
use crate::steps::unrun::{end_latecomer, end_without_running};

pub(crate) fn start_container(pod: &mut State, request: RequestId, id: ContainerId) {
    let Some(container) = pod.containers.get_mut(&id) else {
        return pod.reply_not_found(request, &id);
    };
    match &mut container.phase {
        // Its process has already got a signal that ends it.
        Phase::Created
            if matches!(container.part, Part::Member(_)) && container.ending.next_exit == NextExit::Final =>
        {
            let text = format!("cannot start container {id}: it is being stopped");
            pod.reply(request, Err(Refusal::precondition(text)));
        }
        Phase::Created => match container.part {
            Part::Member(_) => start_member(pod, request, id),
            Part::Sandbox | Part::Passthrough => launch(pod, &id, vec![request]),
        },
        Phase::CompletedAgain { exit } => {
            let exit = *exit;
            start_spent(pod, request, id, exit);
        }
        Phase::Prepared => restore_container(pod, request, id),
        // A retry while the first Start is under way gets the same answer.
        Phase::Restoring { announce, .. } => announce.push(request),
        Phase::Starting { announce, .. } if !announce.is_empty() => announce.push(request),
        Phase::Creating { .. } => {
            pod.reply(request, Err(Refusal::precondition(format!("container {id} is being created"))));
        }
        Phase::Stopped { .. } | Phase::Removing { .. } => {
            let text = format!("cannot start container {id}: it has stopped");
            pod.reply(request, Err(Refusal::precondition(text)));
        }
        _ => {
            let text = format!("cannot start container {id}: it was already started");
            pod.reply(request, Err(Refusal::precondition(text)));
        }
    }
}

/// I4: a completed init does not run again. A caller that waits for its exit, or that does not restart what exited
/// with 0, sees that exit at once. A caller that would restart it again and again sees it running (I5).
pub(crate) fn start_spent(pod: &mut State, request: RequestId, id: ContainerId, exit: Exit) {
    let Some(container) = pod.containers.get_mut(&id) else { return };
    container.phase = Phase::Hidden { exit };
    let (pid, aware) = (container.pid, container.spec.kubelet_type == Some(KubeletType::Init));
    announce_start(pod, &id, pid, vec![request]);
    if aware || pod.policy() != RestartPolicy::Always {
        finish(pod, &id, exit);
    }
}

/// Start of a planned container.
pub(crate) fn start_member(pod: &mut State, request: RequestId, id: ContainerId) {
    if pod.stop.as_ref().is_some_and(|stop| stop.is_for_good()) {
        let text = format!("cannot start container {id}: the pod is stopping");
        return pod.reply(request, Err(Refusal::precondition(text)));
    }
    take_over_if_replaced(pod, &id);
    let may_start = pod.containers.get(&id).is_some_and(|container| may_start(pod, container));
    if may_start {
        mark_released(pod, &id);
        return launch(pod, &id, vec![request]);
    }
    let now = pod.now;
    let Some(container) = pod.containers.get_mut(&id) else { return };
    container.phase = Phase::Held(Hold::new(now));
    let reason = hold_reason(pod, &id).unwrap_or_default();
    pod.record(&id, Milestone::Held { reason });
    let Some(container) = pod.containers.get(&id) else { return };
    let pid = container.pid;
    announce_start(pod, &id, pid, vec![request]);
}

pub(crate) fn start_ended(pod: &mut State, id: ContainerId, outcome: Outcome, ended: Exit) {
    let now = pod.now;
    let Some(container) = pod.containers.get_mut(&id) else { return };
    let Phase::Starting { announce, early_exit, signals, .. } = &mut container.phase else { return };
    let (announce, signals) = (std::mem::take(announce), std::mem::take(signals));
    let (early_exit, pid) = (*early_exit, container.pid);
    if let Outcome::Failed(failure) = &outcome {
        let reason = failure.message.clone();
        pod.record(&id, Milestone::StartFailed { reason });
    }
    let Some(container) = pod.containers.get_mut(&id) else { return };
    match outcome {
        Outcome::Ok | Outcome::Process { .. } => {
            // V4: a program that is gone already takes nothing over, though its gate may open.
            if early_exit.is_none() {
                container.phase = Phase::Running { since: now };
            }
            container.program = Program::HasRun;
            container.start_error = None;
            if let Some(index) = container.member() {
                pod.members[index].runs();
                main_runs(pod, index);
            }
            pod.record(&id, Milestone::Running { pid });
            if !announce.is_empty() {
                announce_start(pod, &id, pid, announce);
            }
            // U11: also for a program that has exited by now.
            program_started(pod, &id);
            if let (Some(_), Some(container)) = (early_exit, pod.containers.get_mut(&id)) {
                container.phase = Phase::Running { since: now };
            }
            catch_up(pod, &id, early_exit, signals);
        }
        Outcome::Failed(failure) if announce.is_empty() => release_failed(pod, &id, early_exit, &failure),
        Outcome::Failed(failure) => {
            // As with the runc shim the task stays created: CRI kills and deletes it.
            container.phase = Phase::Created;
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
pub(crate) fn catch_up(pod: &mut State, id: &ContainerId, early_exit: Option<Exit>, signals: Vec<Parked>) {
    if let Some(exit) = early_exit {
        // J10, I7: the signals that were kept back until the end of the start have not reached the program.
        if let Some(container) = pod.containers.get_mut(id) {
            container.ending.not_signalled();
        }
        return init_exited(pod, id.clone(), exit);
    }
    send_parked(pod, id, signals);
    go_on_with_hooks(pod, id);
}

/// `runtime start` failed for a released container, or for one that is restarted in place. No caller waits for an
/// answer any more, so the container's log has the reason. podshim tries again where it restarts the container;
/// others report 128, as docker does.
pub(crate) fn release_failed(pod: &mut State, id: &ContainerId, early_exit: Option<Exit>, failure: &Failure) {
    let line = format!("could not be started: {}", failure.message);
    pod.emit_change(Action::Tell { container: id.clone(), line, to: Tell::LogAndTerminationMessage });
    takeover_failed(pod, id, &format!("it could not be started: {}", failure.message));
    let now = pod.now;
    let Some(container) = pod.containers.get(id) else { return };
    let tries_again = restarts_after(pod, container, START_FAILED);
    let first_try = container.program == Program::NeverRan && container.restarts.count() == 0;
    let Some(container) = pod.containers.get_mut(id) else { return };
    // A container that was stopped meanwhile reports that end (J3).
    if tries_again || container.ending.next_exit == NextExit::Final {
        container.phase = Phase::Running { since: now };
        container.ending.killed = true;
        let target = Target::init(id.clone());
        let (signal, reach, cause) = (Signal::KILL, Reach::Process, SignalCause::NotRun);
        pod.emit_change(Action::Signal { target, signal, reach, cause });
    } else {
        let member = container.member();
        end_without_running(pod, id, START_FAILED, None);
        match member {
            // R9: its end stops the pod, see `drained`.
            Some(index) if pod.members[index].is_fatal(START_FAILED) => {}
            // R4: its restarts are used up, the pod goes on without it.
            Some(index) if pod.members[index].member.role == Role::Sidecar && !first_try => {
                go_on_without(pod, index)
            }
            // I8.
            Some(index) => cannot_start(pod, index, &failure.message),
            None => {}
        }
    }
    if let Some(exit) = early_exit {
        init_exited(pod, id.clone(), exit);
    }
}
