//! Execs: extra processes of a container, never held (K1, U8).

use pod_spec::Signal;

use crate::action::{Action, Deleted, Notice, OpId, Operation, Reach, Refusal, RefusalKind, Reply};
use crate::container::{Freezer, Phase, Status, View};
use crate::event::{ContainerId, ExecId, Exit, Failure, Outcome, RequestId, Target};
use crate::history::SignalCause;
use crate::pod::Pod;

/// One exec of a container.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    pub(crate) phase: ExecPhase,
    pub(crate) pid: u32,
    pub(crate) waiters: Vec<RequestId>,
}

/// Where an exec is in its life.
#[derive(Clone, Debug)]
pub(crate) enum ExecPhase {
    Added,
    /// Its start failed; the caller may try again. A Wait is answered at once, as with the runc shim.
    Failed,
    Starting {
        op: OpId,
        request: RequestId,
    },
    Running,
    Stopped {
        exit: Exit,
    },
    Removing {
        op: OpId,
        requests: Vec<RequestId>,
        exit: Option<Exit>,
    },
}

impl Exec {
    pub(crate) fn view(&self) -> View {
        let (status, exit) = match &self.phase {
            ExecPhase::Added | ExecPhase::Failed | ExecPhase::Starting { .. } => (Status::Created, None),
            ExecPhase::Running => (Status::Running, None),
            ExecPhase::Stopped { exit } => (Status::Stopped, Some(*exit)),
            ExecPhase::Removing { exit, .. } => (Status::Stopped, *exit),
        };
        View { status, pid: self.pid, exit, has_process: status == Status::Running }
    }

    /// Whether its exit must still come before its container's (CONTRACT §6).
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, ExecPhase::Starting { .. } | ExecPhase::Running)
    }
}

impl Pod {
    /// Why a container cannot take a new process, if it cannot.
    fn refuses_exec(&self, id: &ContainerId) -> Option<Refusal> {
        let Some(container) = self.containers.get(id) else {
            return Some(Refusal::not_found(format!("container {id} not found")));
        };
        let reason = match container.phase {
            // As with the runc shim: a frozen container would not run it.
            Phase::Running { .. } if container.freezer == Freezer::Paused => "is paused",
            Phase::Created | Phase::Held(_) | Phase::Starting { .. } | Phase::Running { .. } => return None,
            Phase::Creating { .. } => "is being created",
            Phase::Prepared | Phase::Restoring { .. } => "is not restored yet",
            Phase::Spent { .. } | Phase::Hidden { .. } => "is completed",
            Phase::BackingOff { .. } | Phase::Recreating { .. } => "is restarting",
            Phase::Ending { .. } | Phase::Draining { .. } => "is ending",
            Phase::Stopped { .. } | Phase::Removing { .. } => "has stopped",
        };
        Some(Refusal::precondition(format!("cannot exec in container {id}: it {reason}")))
    }

    pub(crate) fn add_exec(&mut self, request: RequestId, id: ContainerId, exec: ExecId) {
        if let Some(refusal) = self.refuses_exec(&id) {
            return self.reply(request, Err(refusal));
        }
        let Some(container) = self.containers.get_mut(&id) else { return };
        if container.execs.contains_key(&exec) {
            let refusal = Refusal::new(
                RefusalKind::AlreadyExists,
                format!("exec {exec} of container {id} already exists"),
            );
            return self.reply(request, Err(refusal));
        }
        container.execs.insert(exec.clone(), Exec { phase: ExecPhase::Added, pid: 0, waiters: Vec::new() });
        self.act(Action::Publish(Notice::ExecAdded { container: id, exec }));
        self.reply(request, Ok(Reply::Ok));
    }

    pub(crate) fn start_exec(&mut self, request: RequestId, id: ContainerId, exec: ExecId) {
        let refusal = self.refuses_exec(&id);
        let op = self.next_op();
        let Some(record) = self.exec_mut(&id, &exec) else {
            return self.reply_exec_not_found(request, &id, &exec);
        };
        if !matches!(record.phase, ExecPhase::Added | ExecPhase::Failed) {
            let refusal = Refusal::precondition(format!("exec {exec} of container {id} was already started"));
            return self.reply(request, Err(refusal));
        }
        if let Some(refusal) = refusal {
            return self.reply(request, Err(refusal));
        }
        record.phase = ExecPhase::Starting { op, request };
        self.act(Action::Run { op, container: id, operation: Operation::StartExec(exec) });
    }

    pub(crate) fn exec_started(&mut self, id: ContainerId, exec: ExecId, outcome: Outcome) {
        let Some(record) = self.exec_mut(&id, &exec) else { return };
        let ExecPhase::Starting { request, .. } = record.phase else { return };
        match outcome {
            Outcome::Process { pid } => {
                record.pid = pid;
                record.phase = ExecPhase::Running;
                self.act(Action::Publish(Notice::ExecStarted { container: id.clone(), exec, pid }));
                self.reply(request, Ok(Reply::Pid(pid)));
                // Its init is gone, and this process may have started after the kill of all remaining processes.
                if self.containers.get(&id).is_some_and(|it| matches!(it.phase, Phase::Draining { .. })) {
                    self.kill_execs(&id);
                }
            }
            Outcome::Failed(Failure { message, kind }) => {
                record.phase = ExecPhase::Failed;
                let waiters = std::mem::take(&mut record.waiters);
                self.reply(request, Err(Refusal { kind, message }));
                for waiter in waiters {
                    self.reply(waiter, Ok(Reply::Exit(Exit::default())));
                }
                self.drained(&id);
            }
            Outcome::Ok => {
                self.impossible(format!("exec {exec} of container {id} started without a process"))
            }
        }
    }

    pub(crate) fn exec_exited(&mut self, id: ContainerId, exec: ExecId, exit: Exit) {
        let Some(record) = self.exec_mut(&id, &exec) else { return };
        if !matches!(record.phase, ExecPhase::Running) {
            return self.impossible(format!("exit of exec {exec} of container {id}, which does not run"));
        }
        record.phase = ExecPhase::Stopped { exit };
        let (pid, waiters) = (record.pid, std::mem::take(&mut record.waiters));
        let target = Target { container: id.clone(), exec: Some(exec) };
        self.act(Action::Publish(Notice::Exited { target, pid, exit }));
        for waiter in waiters {
            self.reply(waiter, Ok(Reply::Exit(exit)));
        }
        self.drained(&id);
    }

    /// R6: kills the execs that a container's own exit waits for. Each through its own process, which works even where
    /// the cgroup as a whole could not be emptied.
    pub(crate) fn kill_execs(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        let running = container.execs.iter().filter(|(_, record)| matches!(record.phase, ExecPhase::Running));
        let targets: Vec<_> =
            running.map(|(exec, _)| Target { container: id.clone(), exec: Some(exec.clone()) }).collect();
        for target in targets {
            let (signal, reach, cause) = (Signal::KILL, Reach::Process, SignalCause::NotRun);
            self.act(Action::Signal { target, signal, reach, cause });
        }
    }

    pub(crate) fn delete_exec(&mut self, request: RequestId, id: ContainerId, exec: ExecId) {
        let op = self.next_op();
        let Some(record) = self.exec_mut(&id, &exec) else {
            return self.reply_exec_not_found(request, &id, &exec);
        };
        let exit = match &mut record.phase {
            ExecPhase::Added | ExecPhase::Failed => None,
            ExecPhase::Stopped { exit } => Some(*exit),
            ExecPhase::Removing { requests, .. } => return requests.push(request),
            ExecPhase::Starting { .. } | ExecPhase::Running => {
                let refusal = Refusal::precondition(format!("exec {exec} of container {id} is running"));
                return self.reply(request, Err(refusal));
            }
        };
        record.phase = ExecPhase::Removing { op, requests: vec![request], exit };
        self.act(Action::Run { op, container: id, operation: Operation::RemoveExec(exec) });
    }

    pub(crate) fn exec_removed(&mut self, id: ContainerId, exec: ExecId, outcome: Outcome) {
        if let (Outcome::Failed(Failure { message, kind }), Some(record)) =
            (outcome, self.exec_mut(&id, &exec))
            && let ExecPhase::Removing { requests, exit, .. } = &mut record.phase
        {
            // The exec stays deletable, as a container does.
            let requests = std::mem::take(requests);
            record.phase = exit.map_or(ExecPhase::Added, |exit| ExecPhase::Stopped { exit });
            for request in requests {
                self.reply(request, Err(Refusal { kind, message: message.clone() }));
            }
            return;
        }
        let Some(container) = self.containers.get_mut(&id) else { return };
        let Some(Exec { phase: ExecPhase::Removing { requests, exit, .. }, pid, waiters }) =
            container.execs.remove(&exec)
        else {
            return;
        };
        let exit = exit.unwrap_or_default();
        for request in requests {
            self.reply(request, Ok(Reply::Deleted(Deleted { pid, exit })));
        }
        for waiter in waiters {
            let refusal = Refusal::not_found(format!("exec {exec} of container {id} was deleted"));
            self.reply(waiter, Err(refusal));
        }
    }

    pub(crate) fn exec_mut(&mut self, id: &ContainerId, exec: &ExecId) -> Option<&mut Exec> {
        self.containers.get_mut(id)?.execs.get_mut(exec)
    }

    pub(crate) fn reply_exec_not_found(&mut self, request: RequestId, id: &ContainerId, exec: &ExecId) {
        let text = format!("exec {exec} of container {id} not found");
        self.reply(request, Err(Refusal::not_found(text)));
    }
}
