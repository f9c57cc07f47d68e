//! Executes the pod's operations, each as a task of its own that reports back to the owner.
//!
//! Owns how an [`Operation`] becomes calls into `oci-runtime`, and their result an [`Outcome`] with what the owner must keep.
//! May never wait in the owner itself.

use std::fmt::Display;
use std::time::Duration;

use cgroups::KillOutcome;
use oci_runtime::hook;
use oci_runtime::runtime::DeleteMode;
use oci_runtime::termination_message;
use pod_lifecycle::{ContainerId, ExecId, Failure, Hook, OpId, Operation, Outcome, RefusalKind};
use processes::reaper::Charge;
use processes::{ExecOutcome, SignalNumber};
use streams::head::{Streams, Terminal};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::checkpoint;
use crate::error::{failure, runtime_failure};
use crate::exec::ExecResources;
use crate::gate;
use crate::launch;
use crate::listen;
use crate::node_shutdown;
use crate::report::{CompletionReporter, OperationResult, Removal, Report};
use crate::resources::{Resources, RootfsUse};
use crate::sandbox_requests;
use crate::state::State;

/// How long a start waits for the program. It is there within a millisecond; on a slow machine longer waits do not help.
const EXECUTED_LIMIT: Duration = Duration::from_secs(2);
/// The same after a start that failed: as a rule there is no program, and the caller waits for the error.
const EXECUTED_ANYWAY_LIMIT: Duration = Duration::from_millis(200);
/// How long the remaining processes of a cgroup may take to die (R6: bounded).
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// How long a delete reads the last output and waits for a logging program to end (CONTRACT §7: 10 s since containerd 1.7).
/// CRI handles a whole exit within 10 s.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// The same for an exec, whose background processes often live on with its stdout (trap 11).
const EXEC_DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Starts an operation.
pub(crate) fn run(state: &mut State, op: OpId, id: ContainerId, operation: Operation) {
    let checkpoint = match &operation {
        Operation::Checkpoint(request) => state.requests.checkpoint(*request),
        _ => None,
    };
    let done = CompletionReporter::new(op, id.clone(), state.reports.clone());
    if matches!(operation, Operation::Start) {
        state.start_begins(&id);
    }
    if let Err(failure) = settle_spec(state, &id, &operation) {
        return done.fail_create(failure.into());
    }
    if state.container(&id).is_some_and(|resources| resources.runtime().is_pins()) {
        return sandbox_requests::run(state, &id, &operation, done);
    }
    let Some(resources) = state.container_mut(&id) else {
        return done.fail(Failure {
            message: format!("container {id}: nothing is known of it"),
            kind: RefusalKind::Internal,
        });
    };
    match operation {
        Operation::Create => create(resources, done),
        Operation::CreateCompleted => create_completed(resources, done),
        Operation::Recreate => recreate(resources, done),
        Operation::Checkpoint(_) => checkpoint::write(resources, checkpoint, done),
        Operation::PrepareRestore => checkpoint::prepare_restore(resources, done),
        Operation::Restore => checkpoint::restore(resources, done),
        Operation::Remove => remove(resources, done),
        Operation::KillRemaining => kill_remaining(resources, done),
        Operation::StartExec(exec) => start_exec(resources, exec, done),
        Operation::RemoveExec(exec) => remove_exec(resources, exec, done),
        Operation::Check(check) => gate::check(resources, check, done),
        Operation::RunHook { hook, command } => run_hook(resources, hook, &command, done),
        Operation::Start => start(resources, done),
        Operation::Pause => {
            let (runtime, cgroup) = (resources.runtime().clone(), resources.cgroup().cloned());
            done.spawn(async move { runtime.pause(cgroup.as_deref()).await.map_err(runtime_failure) });
        }
        Operation::Resume => {
            let (runtime, cgroup) = (resources.runtime().clone(), resources.cgroup().cloned());
            done.spawn(async move { runtime.resume(cgroup.as_deref()).await.map_err(runtime_failure) });
        }
    }
}

/// A completed init that was created once more (I4) has neither a process nor mounts, until its pod restarts (R14).
fn has_had_no_process(resources: &Resources) -> bool {
    resources.last_pid().is_none()
}

/// The last changes of a new container's spec, which need what the pod has made of it; then its maker gets it. Once: a restart in
/// place keeps the spec (R6).
fn settle_spec(state: &mut State, id: &ContainerId, operation: &Operation) -> Result<(), Failure> {
    let Some(mut draft) = state.container_mut(id).and_then(Resources::take_draft) else { return Ok(()) };
    let scope =
        |id: &ContainerId| state.container(id).and_then(|resources| resources.scope().map(str::to_owned));
    let properties = match operation {
        Operation::Create | Operation::CreateCompleted => {
            node_shutdown::properties_of(state.pod().stop_order(id), id, scope)
        }
        // criu restores its groups as they were.
        _ => Vec::new(),
    };
    let (Some(resources), gate) = state.container_and_gate(id) else { return Ok(()) };
    if !properties.is_empty() {
        let wrong = |error: &dyn Display| {
            failure(format!("cannot add its place in the pod's stop to its spec: {error}"))
        };
        draft = node_shutdown::add_to(draft, properties).map_err(|error| wrong(&error))?;
        resources.spec_is(draft.tree().map_err(|error| wrong(&error))?).map_err(|error| wrong(&error))?;
    }
    if matches!(operation, Operation::Create) {
        draft = listen::prepare(resources, gate, draft)?;
    }
    draft.write().map_err(|error| failure(error.to_string()))
}

fn create(resources: &Resources, done: CompletionReporter) {
    let launcher = resources.launcher();
    tokio::task::spawn_local(async move {
        match launcher.create().await {
            Ok(created) => done.finish(created.1.outcome(), OperationResult::Created(Box::new(created))),
            Err(failed) => done.fail_create(failed),
        }
    });
}

fn create_completed(resources: &Resources, done: CompletionReporter) {
    let launcher = resources.launcher();
    tokio::task::spawn_local(async move {
        match launcher.connected_streams().await {
            Ok(streams) => done.finish(Outcome::Ok, OperationResult::Streams(Box::new(streams))),
            Err(failure) => done.fail_create(failure.into()),
        }
    });
}

/// `runtime start` ends when it has woken its init, which then still has to execute the program: a signal that is sent in
/// between would end the init. So the operation ends when the program runs, and the pod keeps signals until then.
fn start(resources: &mut Resources, done: CompletionReporter) {
    // The log needs its own line: no request starts the program of a held container.
    info!(container = resources.runtime().id(), "start");
    let give_up = resources.calls_begin(done.op());
    let (runtime, turn) = (resources.runtime().until(give_up), resources.turn());
    let init = resources.incarnation();
    let init =
        init.and_then(|incarnation| Some((incarnation.process().clone(), incarnation.runtime_init()?)));
    // A gate that reads lines must read from the first one. Nothing else waits for the hand, which may be away.
    let has_gate = resources.incarnation().is_some_and(|incarnation| incarnation.readiness().is_some());
    let settled = resources.streams().filter(|_| has_gate).map(Streams::settled);
    done.spawn(async move {
        let _alone = turn.lock().await;
        if let Some(settled) = settled {
            settled.await.map_err(failure)?;
        }
        let started = runtime.start().await;
        let Some((process, runtime_init)) = init else { return started.map_err(runtime_failure) };
        let limit = if started.is_ok() { EXECUTED_LIMIT } else { EXECUTED_ANYWAY_LIMIT };
        let executed = process.wait_for_exec(runtime_init, Instant::now() + limit).await;
        started.map_err(|error| {
            // The runtime failed after its work. End the program: podshim would neither wait for its gate nor for its exit.
            if executed == ExecOutcome::Executed
                && let Err(error) = process.signal(SignalNumber::KILL)
            {
                warn!(container = runtime.id(), %error, "cannot end a program whose start failed");
            }
            runtime_failure(error)
        })
    });
}

fn recreate(resources: &mut Resources, done: CompletionReporter) {
    // The runtime's delete may remove its cgroups.
    resources.read_stats();
    let streams = match resources.next_streams() {
        Ok(streams) => streams,
        Err(failure) => return done.fail(failure),
    };
    let give_up = resources.calls_begin(done.op());
    let launcher = resources.launcher().charged_to(Charge::Restarts).until(give_up.clone());
    let turn = resources.turn();
    let is_first = has_had_no_process(resources);
    let (before, legacy) = (resources.take_incarnation(), resources.legacy());
    let (throttle, helpers) = (resources.context().throttle.clone(), resources.helpers_leave());
    let hurry = resources.hurry().clone();
    let reaper = resources.runtime().reaper().clone();
    let message = resources.termination_message().map(|path| (reaper, path.to_owned()));
    tokio::task::spawn_local(async move {
        let _alone = turn.lock().await;
        let _share = tokio::select! {
            share = throttle.acquire(&hurry) => share,
            () = give_up.given() => None,
        };
        helpers.await;
        let new = match is_first {
            true => launcher.create_late(streams).await,
            false => {
                // R6: to a kubelet, an earlier program's message would be that of the next end.
                if let Some((reaper, path)) = message {
                    termination_message::clear(&reaper, &path).await;
                }
                launcher.recreate(streams, before, legacy).await
            }
        };
        match new {
            Ok(new) => done.finish(new.outcome(), OperationResult::Recreated(Box::new(new))),
            Err(failure) => done.fail(failure),
        }
    });
}

/// T10: the pod's answer comes now, while the calls are being ended. What they still make is ended by `completions`.
pub(crate) fn give_up(state: &mut State, op: OpId, id: &ContainerId) {
    if !state.container_mut(id).is_some_and(|resources| resources.give_up(op)) {
        return;
    }
    warn!(container = %id, "the OCI runtime is not waited for any more: the container is to end");
    state.given_up.insert(op);
    let _ = state.reports.send(Report::GivenUp { op });
}

fn remove(resources: &mut Resources, done: CompletionReporter) {
    // A Delete that outlasted its caller has done all of it: what is slow would only outlast this caller too.
    if resources.is_removed() {
        return done.finish(Outcome::Ok, OperationResult::Removed(Removal::Complete));
    }
    let (runtime, details) = (resources.runtime().clone(), resources.details().clone());
    // A container that was never started still has its init.
    let runs = resources.incarnation().is_some_and(|incarnation| incarnation.process().is_running());
    let mode = if runs { DeleteMode::Force } else { DeleteMode::Ended };
    let (terminal, streams) = resources.take_streams();
    let was_created = !has_had_no_process(resources);
    let (limit, rootfs_use) = (drain_limit(resources), resources.rootfs_use());
    let (turn, helpers) = (resources.turn(), resources.helpers_leave());
    tokio::task::spawn_local(async move {
        let _alone = turn.lock().await;
        helpers.await;
        // At the same time: a slow drain must not take the time of the runtime's delete (trap 12).
        let delete = async {
            match was_created {
                true => runtime.delete(mode).await,
                false => Ok(()),
            }
        };
        let rootfs = runtime.bundle().rootfs();
        let unmount = launch::unmount(&details, &rootfs);
        let removal = async {
            match rootfs_use {
                RootfsUse::UntilEnd => tokio::join!(delete, unmount),
                RootfsUse::UntilDeleted => (delete.await, unmount.await),
            }
        };
        let ((), (deleted, unmounted)) = tokio::join!(end_streams(terminal, streams, limit), removal);
        if let Err(error) = deleted {
            return done.fail(runtime_failure(error));
        }
        if unmounted.is_ok()
            && let Err(error) = runtime.bundle().mark_removed()
        {
            warn!(container = runtime.id(), %error, "cannot mark the bundle as removed: a later `delete` removes the container once more");
        }
        let removal = if unmounted.is_ok() { Removal::Complete } else { Removal::Mounted };
        done.finish(Outcome::Ok, OperationResult::Removed(removal));
    });
}

/// Half of the time that the caller of the Delete waits: the other half is left for the answer.
fn drain_limit(resources: &Resources) -> Duration {
    resources.delete_limit().map_or(DRAIN_LIMIT, |limit| (limit / 2).min(DRAIN_LIMIT))
}

/// Ends the streams of a process that has exited. Processes that it has left behind may hold them open for ever, and
/// containerd must see their end (CONTRACT §7, trap 11).
async fn end_streams(terminal: Option<Terminal>, streams: Option<Streams>, limit: Duration) {
    if let Some(terminal) = terminal {
        terminal.shutdown(limit).await;
    }
    if let Some(mut streams) = streams {
        streams.drain(limit).await;
    }
}

fn kill_remaining(resources: &Resources, done: CompletionReporter) {
    let (cgroup, helpers) = (resources.cgroup().cloned(), resources.helpers_leave());
    done.spawn(async move {
        helpers.await;
        let Some(cgroup) = cgroup else { return Ok(()) };
        match cgroup.kill_remaining(Instant::now() + KILL_LIMIT).await {
            KillOutcome::Empty => Ok(()),
            KillOutcome::Remaining(pids) => {
                Err(failure(format!("{} processes did not die within {KILL_LIMIT:?}", pids.len())))
            }
            KillOutcome::Unlisted => {
                Err(failure(format!("its processes could not be listed within {KILL_LIMIT:?}: a lease")))
            }
        }
    });
}

fn start_exec(resources: &mut Resources, exec: ExecId, done: CompletionReporter) {
    let Some(record) = resources.exec_mut(&exec) else {
        return done.fail(failure(format!("exec {exec}: nothing is known of it")));
    };
    let details = record.start_begins();
    let launcher = resources.launcher().until(resources.calls_begin(done.op()));
    let limit = resources.oom_score_limit();
    tokio::task::spawn_local(async move {
        match launcher.start_exec(exec.as_str().to_owned(), details).await {
            Ok(new) => {
                // N8: runc 1.1 to 1.4 gives an exec the score of its container's spec, whatever the process says.
                if let Some((cgroup, highest)) = limit
                    && let Err(error) = cgroup.limit_oom_score(highest).await
                {
                    warn!(%exec, highest, %error, "cannot lower oom_score_adj to that of the mains");
                }
                let pid = new.process.pid().as_raw().unsigned_abs();
                done.finish(Outcome::Process { pid }, OperationResult::Exec(exec, Box::new(new)));
            }
            Err(failure) => done.fail(failure),
        }
    });
}

fn remove_exec(resources: &mut Resources, exec: ExecId, done: CompletionReporter) {
    let streams = resources.exec_mut(&exec).map(ExecResources::take_streams);
    let (terminal, streams) = streams.unwrap_or_default();
    let pid_file = resources.bundle().exec_pid_path(exec.as_str());
    let limit = drain_limit(resources).min(EXEC_DRAIN_LIMIT);
    tokio::task::spawn_local(async move {
        end_streams(terminal, streams, limit).await;
        if let Ok(path) = pid_file {
            // If it fails: the bundle is removed soon after.
            let _ = std::fs::remove_file(path);
        }
        done.finish(Outcome::Ok, OperationResult::RemovedExec(exec));
    });
}

/// Runs a hook in the container (H1, H2).
fn run_hook(resources: &mut Resources, hook: Hook, command: &[String], done: CompletionReporter) {
    info!(container = %done.container(), %hook, ?command, "hook");
    let streams = match resources.streams() {
        Some(streams) => Ok(streams.attempt_beside()),
        None => Err(failure("its stdio is closed")),
    };
    let process = resources.beside(format!("podshim-hook-{}", done.op().0), command);
    let (process, streams) = match (process, streams) {
        (Ok(process), Ok(streams)) => (process, streams),
        (Err(failure), _) | (_, Err(failure)) => return done.fail(failure),
    };
    let runtime = resources.runtime().charged_to(Charge::Hooks).until(resources.calls_begin(done.op()));
    done.spawn(async move { hook::run(&runtime, &process, streams).await.map_err(failure) });
}
