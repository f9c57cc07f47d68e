//! Executes the pod's actions, at once and in order: replies, events, signals, lines in logs, the record of an exit.
//!
//! Owns what each action does to a container. May never await, and never feed the pod: an action that takes time is an
//! operation, which reports back.

use std::rc::Rc;
use std::time::{Duration, SystemTime};

use cgroups::Cgroup;
use oci_runtime::bundle::ExitRecord;
use oci_runtime::termination_message;
use pod_lifecycle::{Action, ContainerId, Exit, LineTarget, Notice, Reach, SignalCause, Target};
use pod_spec::Signal;
use processes::{Process, SignalNumber};
use tracing::{error, info, warn};

use crate::control::history::cause_of;
use crate::exec::ExecResources;
use crate::names::names;
use crate::notice;
use crate::operations;
use crate::sandbox_requests;
use crate::state::State;

/// How long a process may take to end by SIGKILL before its whole group gets one, and how often.
const DEAD_WITHIN: Duration = Duration::from_millis(500);
const KILLS_OF_GROUP: u32 = 10;

pub(crate) fn execute(state: &mut State, action: Action) {
    match action {
        Action::Run { op, container, operation } => operations::run(state, op, container, operation),
        Action::Signal { target, signal, reach, cause } => send_signal(state, &target, signal, reach, cause),
        Action::Thaw { container } => thaw(state, &container),
        Action::Reply { request, result } => state.requests.answer(request, result),
        Action::GiveUp { op, container } => operations::give_up(state, op, &container),
        Action::GiveUpCreate { container } => {
            if let Some(resources) = state.container(&container) {
                resources.give_up_create();
            }
        }
        Action::Publish(notice) => {
            // containerd knows no task of that id.
            if state.is_pod_sandbox(notice.container()) {
                return;
            }
            let resources = state.container(notice.container());
            if let Notice::Deleted { container, .. } = &notice {
                names().remove_container(container.as_str());
            }
            notice::publish(&state.publisher, notice, resources);
        }
        Action::LimitOomScore { container, highest } => limit_oom_score(state, &container, highest),
        Action::WriteLine { container, line, to } => write_line(state, &container, &line, to),
        Action::Finish { container, shown, real } => finish(state, &container, shown, real),
        // For the history, which has recorded it already.
        Action::Record { .. } => {}
        Action::Warn(line) => warn!("{line}"),
        Action::Note(line) => info!("{line}"),
    }
}

fn send_signal(state: &State, target: &Target, signal: Signal, reach: Reach, cause: SignalCause) {
    let Some(resources) = state.container(&target.container) else { return };
    if resources.runtime().is_pins() && target.exec.is_none() {
        return sandbox_requests::signal(state, &target.container, signal);
    }
    let process = match &target.exec {
        None => resources.process(),
        Some(exec) => resources.exec(exec).and_then(ExecResources::process),
    };
    let (Some(process), Ok(number)) = (process, SignalNumber::new(signal.number().into())) else {
        return;
    };
    let (container, exec) = (&target.container, target.exec.as_ref().map(ToString::to_string));
    info!(%container, exec, signal = signal.number(), name = %signal, cause = cause_of(cause).word(), "signal");
    // The init's end by SIGKILL ends the other processes too: by the kernel (a pid namespace) or by KillRemaining.
    if let (Some(cgroup), Reach::All) = (resources.cgroup(), reach)
        && signal != Signal::KILL
    {
        let (process, cgroup, target) = (process.clone(), cgroup.clone(), target.clone());
        tokio::task::spawn_local(async move {
            if let Err(error) = cgroup.signal_members(number).await {
                warn!(%target, %error, "cannot signal every process: only the first gets the signal");
                if let Err(error) = process.signal(number) {
                    warn!(%target, %error, "cannot send the signal");
                }
            }
        });
    } else if let Err(error) = process.signal(number) {
        warn!(%target, %error, "cannot send the signal");
    }
    if let (Some(cgroup), Signal::KILL, None) = (resources.cgroup(), signal, &target.exec) {
        tokio::task::spawn_local(kill_with_its_group(container.clone(), process.clone(), cgroup.clone()));
    }
}

/// A process that waits in the kernel for what another one of its container holds, as the lock of a pipe, does not end by SIGKILL, nor
/// does its pid namespace, as long as that one lives (H1).
async fn kill_with_its_group(container: ContainerId, process: Rc<Process>, cgroup: Rc<Cgroup>) {
    for _ in 0..KILLS_OF_GROUP {
        tokio::time::sleep(DEAD_WITHIN).await;
        if !process.is_running() {
            return;
        }
        warn!(%container, "its process has not ended by SIGKILL: all processes of its cgroup get one");
        cgroup.kill_all_once().await;
    }
}

/// K17. What has frozen it may do so once more before the process is gone.
fn thaw(state: &State, id: &ContainerId) {
    let Some(resources) = state.container(id) else { return };
    let (Some(process), Some(cgroup)) = (resources.process().cloned(), resources.cgroup().cloned()) else {
        return;
    };
    tokio::task::spawn_local(async move { cgroup.thaw_while(|| process.is_running()).await });
}

/// N8. The program must not run with its own value, however briefly: a start comes after it, as it has the container's turn before. By
/// then the container has one process. For all that a running one has no turn is kept: other containers can make it long.
fn limit_oom_score(state: &mut State, id: &ContainerId, highest: i32) {
    let Some(resources) = state.container_mut(id) else { return };
    resources.lower_oom_score(highest);
    let (Some(cgroup), Some(pid)) = (resources.cgroup().cloned(), resources.last_pid()) else { return };
    let (turn, id) = (resources.turn(), id.clone());
    tokio::task::spawn_local(async move {
        let alone = turn.lock().await;
        let first = cgroup.limit_oom_score_of(pid, highest).await;
        drop(alone);
        let all = match first {
            Ok(()) => cgroup.limit_oom_score(highest).await,
            Err(error) => Err(error),
        };
        match all {
            Ok(()) => info!(container = %id, highest, "oom_score_adj lowered to that of the mains"),
            Err(error) => {
                warn!(container = %id, highest, %error, "cannot lower oom_score_adj to that of the mains")
            }
        }
    });
}

fn write_line(state: &State, id: &ContainerId, line: &str, to: LineTarget) {
    info!(container = %id, "{line}");
    let Some(resources) = state.container(id) else { return };
    if let Some(streams) = resources.streams() {
        streams.write_line(line);
    }
    if let (LineTarget::LogAndTerminationMessage, Some(path)) = (to, resources.termination_message())
        && let Err(error) = termination_message::write(resources.runtime().reaper(), path, line)
    {
        warn!(container = %id, path = %path.display(), %error, "cannot write the termination message");
    }
}

fn finish(state: &mut State, id: &ContainerId, shown: Exit, real: Exit) {
    if shown.code != real.code {
        info!(container = %id, shown = shown.code, real = real.code, "callers see another exit code than the real one");
    }
    let Some(resources) = state.container_mut(id) else { return };
    resources.finish_output();
    let Some(pid) = resources.last_pid() else { return };
    let record = ExitRecord {
        pid,
        exit_status: shown.code,
        real_exit_status: real.code,
        exited_at: SystemTime::UNIX_EPOCH + shown.at.0,
    };
    if let Err(error) = resources.bundle().write_exit(&record) {
        // Without the record, `delete` answers 137, as containerd's own shim always does.
        error!(container = %id, %error, "cannot record the exit: if the shim dies, `delete` answers 137");
    }
}
