//! Create, Start, Wait, Delete, Pause, Resume, and the completions of what they began.
//!
//! Owns the order of replies and events around them (CONTRACT §6: TaskStart is queued before Start is
//! answered, and before any TaskExit). Kill has its own table in `kill`.

use pod_spec::RestartPolicy;

use crate::action::{Action, Deleted, Notice, Operation, Refusal, RefusalKind, Reply};
use crate::container::{Container, Deletable, Freezer, FreezerChange, Intent, Parked, Part, Phase, Program};
use crate::event::{
    ContainerId, ContainerSpec, Exit, Failure, KubeletType, Origin, Outcome, RequestId, Target, TaskKind,
};
use crate::evidence::EndedBy;
use crate::exec::ExecPhase;
use crate::history::Milestone;
use crate::member::Creation;
use crate::pod::Pod;
use crate::restart::START_FAILED;
use crate::time::WallTime;

impl Pod {
    pub(crate) fn create(&mut self, request: RequestId, id: ContainerId, spec: ContainerSpec) {
        if self.containers.contains_key(&id) {
            let text = format!("container {id} already exists");
            return self.reply(request, Err(Refusal::new(RefusalKind::AlreadyExists, text)));
        }
        self.learn_plan(&spec);
        let part = self.part_of(&spec);
        if let Err(refusal) = self.admits(&spec, part) {
            return self.reply(request, Err(refusal));
        }
        if spec.kind == TaskKind::Sandbox {
            self.sandbox = Some(id.clone());
        }
        let mut spent = None;
        if let Part::Member(index) = part {
            self.create_quiet_until = self.now + self.replace_wait();
            let policy = self.policy();
            let state = &mut self.members[index];
            let creation = state.created(id.clone(), &spec, policy);
            spent = state.completed;
            self.forgive_failure_of(index);
            if creation == Creation::Again {
                let until = self.create_quiet_until;
                self.another_round_until.get_or_insert(until);
            }
            if spec.kubelet.is_some() {
                self.give_up_callers_stop();
            }
        }
        let operation = match (spent, spec.origin) {
            (Some(_), _) => Operation::CreateSpent,
            (None, Origin::Program) => Operation::Create,
            (None, Origin::Checkpoint) => Operation::PrepareRestore,
        };
        let op = self.run(&id, operation);
        let container = Container::new(
            id.clone(),
            spec,
            part,
            Phase::Creating { op, request, spent, deletes: Vec::new() },
        );
        self.containers.insert(id, container);
    }

    /// Whether the pod accepts a new container of that part now.
    fn admits(&self, spec: &ContainerSpec, part: Part) -> Result<(), Refusal> {
        // K16: its namespaces are gone; a create would fail, or join the namespaces of another process.
        if self.plan.is_some() && self.sandbox_gone {
            return Err(Refusal::precondition(format!(
                "cannot create container {:?}: the pod's sandbox has ended",
                spec.name
            )));
        }
        // T11; and K13: a container that was created now would belong to no stop, and would keep the sandbox alive.
        if part != Part::Sandbox && self.stop.as_ref().is_some_and(|stop| stop.is_for_good()) {
            return Err(Refusal::precondition(format!(
                "cannot create container {:?}: the pod is stopping",
                spec.name
            )));
        }
        self.admits_restored(spec, part)?;
        let Part::Member(index) = part else { return Ok(()) };
        if let Some(older) = self.current(index).filter(|older| !older.is_final()) {
            return Err(Refusal::new(
                RefusalKind::AlreadyExists,
                format!(
                    "container name {:?} is in use by container {}, which has not ended",
                    spec.name, older.id
                ),
            ));
        }
        Ok(())
    }

    pub(crate) fn created(&mut self, id: ContainerId, outcome: Outcome, ended: Exit) {
        let anchor = self.anchor_pid();
        let Some(container) = self.containers.get_mut(&id) else { return };
        let Phase::Creating { request, spent, deletes, .. } = &mut container.phase else { return };
        let (request, spent, deletes) = (*request, *spent, std::mem::take(deletes));
        let pid = match (outcome, spent) {
            (Outcome::Failed(failure), _) => {
                self.create_failed(request, id.clone(), failure, ended);
                for delete in deletes {
                    self.reply_not_found(delete, &id);
                }
                return;
            }
            (Outcome::Process { pid }, None) => {
                container.phase = Phase::Created;
                pid
            }
            (_, Some(exit)) => {
                container.phase = Phase::Spent { exit };
                anchor.unwrap_or(0)
            }
            (Outcome::Ok, None) if container.spec.origin == Origin::Checkpoint => {
                container.phase = Phase::Prepared;
                0
            }
            (Outcome::Ok, None) => {
                return self.impossible(format!("container {id} created without a process"));
            }
        };
        container.pid = pid;
        self.limit_oom_scores(&id);
        self.act(Action::Publish(Notice::Created { container: id.clone(), pid }));
        self.reply(request, Ok(Reply::Pid(pid)));
        self.end_latecomer(&id);
        for delete in deletes {
            self.delete(delete, id.clone());
        }
    }

    fn create_failed(&mut self, request: RequestId, id: ContainerId, failure: Failure, ended: Exit) {
        let sandbox_gone = self.sandbox_gone;
        let Some(container) = self.forget(&id) else { return };
        // A sandbox that was never created has not ended.
        self.sandbox_gone = sandbox_gone;
        if let Some(index) = container.member() {
            let exit = Exit { code: START_FAILED, ..ended };
            self.start_refused(None, index, exit, &failure.message);
        }
        self.reply(request, Err(Refusal { kind: failure.kind, message: failure.message }));
    }

    pub(crate) fn start(&mut self, request: RequestId, id: ContainerId) {
        let Some(container) = self.containers.get_mut(&id) else {
            return self.reply_not_found(request, &id);
        };
        match &mut container.phase {
            // Its process has already got a signal that ends it.
            Phase::Created
                if matches!(container.part, Part::Member(_)) && container.stop.intent == Intent::End =>
            {
                let text = format!("cannot start container {id}: it is being stopped");
                self.reply(request, Err(Refusal::precondition(text)));
            }
            Phase::Created => match container.part {
                Part::Member(_) => self.start_member(request, id),
                Part::Sandbox | Part::Passthrough => self.launch(&id, vec![request]),
            },
            Phase::Spent { exit } => {
                let exit = *exit;
                self.start_spent(request, id, exit);
            }
            Phase::Prepared => self.restore(request, id),
            // A retry while the first Start is under way gets the same answer.
            Phase::Restoring { announce, .. } => announce.push(request),
            Phase::Starting { announce, .. } if !announce.is_empty() => announce.push(request),
            Phase::Creating { .. } => {
                self.reply(request, Err(Refusal::precondition(format!("container {id} is being created"))));
            }
            Phase::Stopped { .. } | Phase::Removing { .. } => {
                let text = format!("cannot start container {id}: it has stopped");
                self.reply(request, Err(Refusal::precondition(text)));
            }
            _ => {
                let text = format!("cannot start container {id}: it was already started");
                self.reply(request, Err(Refusal::precondition(text)));
            }
        }
    }

    /// I4: a completed init does not run again. A caller that waits for its exit, or that does not restart what exited
    /// with 0, sees that exit at once. A caller that would restart it again and again sees it running (I5).
    fn start_spent(&mut self, request: RequestId, id: ContainerId, exit: Exit) {
        let Some(container) = self.containers.get_mut(&id) else { return };
        container.phase = Phase::Hidden { exit };
        let (pid, aware) = (container.pid, container.spec.kubelet_type == Some(KubeletType::Init));
        self.announce_start(&id, pid, vec![request]);
        if aware || self.policy() != RestartPolicy::Always {
            self.finish(&id, exit);
        }
    }

    /// TaskStart goes out before the answer to Start, so that no TaskExit can overtake it.
    pub(crate) fn announce_start(&mut self, id: &ContainerId, pid: u32, requests: Vec<RequestId>) {
        self.act(Action::Publish(Notice::Started { container: id.clone(), pid }));
        for request in requests {
            self.reply(request, Ok(Reply::Pid(pid)));
        }
    }

    /// Runs `runtime start`.
    pub(crate) fn launch(&mut self, id: &ContainerId, announce: Vec<RequestId>) {
        let op = self.run(id, Operation::Start);
        if let Some(container) = self.containers.get_mut(id) {
            container.phase = Phase::Starting { op, announce, early_exit: None, signals: Vec::new() };
        }
    }

    pub(crate) fn started(&mut self, id: ContainerId, outcome: Outcome, ended: Exit) {
        let now = self.now;
        let Some(container) = self.containers.get_mut(&id) else { return };
        let Phase::Starting { announce, early_exit, signals, .. } = &mut container.phase else { return };
        let (announce, signals) = (std::mem::take(announce), std::mem::take(signals));
        let (early_exit, pid) = (*early_exit, container.pid);
        if let Outcome::Failed(failure) = &outcome {
            let reason = failure.message.clone();
            self.record(&id, Milestone::StartFailed { reason });
        }
        let Some(container) = self.containers.get_mut(&id) else { return };
        match outcome {
            Outcome::Ok | Outcome::Process { .. } => {
                // V4: a program that is gone already takes nothing over, though its gate may open.
                if early_exit.is_none() {
                    container.phase = Phase::Running { since: now };
                }
                container.program = Program::HasRun;
                container.start_error = None;
                if let Some(index) = container.member() {
                    self.members[index].runs();
                    self.main_runs(index);
                }
                self.record(&id, Milestone::Running { pid });
                if !announce.is_empty() {
                    self.announce_start(&id, pid, announce);
                }
                // U11: also for a program that has exited by now.
                self.program_started(&id);
                if let (Some(_), Some(container)) = (early_exit, self.containers.get_mut(&id)) {
                    container.phase = Phase::Running { since: now };
                }
                self.catch_up(&id, early_exit, signals);
            }
            Outcome::Failed(failure) if announce.is_empty() => self.release_failed(&id, early_exit, &failure),
            Outcome::Failed(failure) => {
                // As with the runc shim the task stays created: CRI kills and deletes it.
                container.phase = Phase::Created;
                let member = container.member();
                for request in announce {
                    let Failure { kind, message } = failure.clone();
                    self.reply(request, Err(Refusal { kind, message }));
                }
                if let Some(index) = member {
                    let exit = Exit { code: START_FAILED, ..ended };
                    self.start_refused(Some(&id), index, exit, &failure.message);
                }
                self.catch_up(&id, early_exit, signals);
                self.end_latecomer(&id);
            }
        }
    }

    /// Applies what waited for the end of a start: an exit, signals, or a stop with hooks.
    fn catch_up(&mut self, id: &ContainerId, early_exit: Option<Exit>, signals: Vec<Parked>) {
        if let Some(exit) = early_exit {
            // J10, I7: the signals that were kept back until the end of the start have not reached the program.
            if let Some(container) = self.containers.get_mut(id) {
                container.stop.not_signalled();
            }
            return self.exited(id.clone(), exit);
        }
        self.send_parked(id, signals);
        self.go_on_with_hooks(id);
    }

    pub(crate) fn wait(&mut self, request: RequestId, target: Target) {
        let Some(container) = self.containers.get_mut(&target.container) else {
            return self.reply_not_found(request, &target.container);
        };
        let exit = match &target.exec {
            None => match container.phase {
                Phase::Stopped { exit } | Phase::Removing { exit, before: Deletable::Stopped, .. } => exit,
                _ => return container.waiters.push(request),
            },
            Some(exec) => match container.execs.get_mut(exec) {
                None => return self.reply_exec_not_found(request, &target.container, exec),
                Some(record) => match &record.phase {
                    ExecPhase::Stopped { exit } | ExecPhase::Removing { exit: Some(exit), .. } => *exit,
                    ExecPhase::Failed => Exit::default(),
                    _ => return record.waiters.push(request),
                },
            },
        };
        self.reply(request, Ok(Reply::Exit(exit)));
    }

    /// A containerd that was killed sends its Waits again when it is back. Otherwise each restart would leave one Wait
    /// per container here.
    pub(crate) fn forget_waiter(&mut self, request: RequestId) {
        for container in self.containers.values_mut() {
            let execs = container.execs.values_mut().map(|exec| &mut exec.waiters);
            for waiters in execs.chain([&mut container.waiters]) {
                waiters.retain(|waiter| *waiter != request);
            }
        }
    }

    pub(crate) fn delete(&mut self, request: RequestId, id: ContainerId) {
        let Some(container) = self.containers.get_mut(&id) else {
            return self.reply_not_found(request, &id);
        };
        let busy = matches!(container.freezer, Freezer::Changing(..));
        let (exit, before) = match &mut container.phase {
            Phase::Stopped { .. } if busy => return container.deletes.push(request),
            Phase::Stopped { exit } => (*exit, Deletable::Stopped),
            // Never started: the runtime's init goes with it.
            Phase::Created => {
                (Exit { code: 0, at: WallTime::default() }, Deletable::Created { early_exit: None })
            }
            Phase::Spent { exit } => (*exit, Deletable::Spent),
            Phase::Prepared => (Exit::default(), Deletable::Prepared),
            // A retry after a lost connection gets the same answer (trap 12).
            Phase::Removing { requests, .. } => return requests.push(request),
            Phase::Creating { deletes, .. } => return deletes.push(request),
            _ => {
                let text = format!("cannot delete container {id}: it is running");
                return self.reply(request, Err(Refusal::precondition(text)));
            }
        };
        let op = self.run(&id, Operation::Remove);
        if let Some(container) = self.containers.get_mut(&id) {
            container.phase = Phase::Removing { op, requests: vec![request], exit, before };
        }
    }

    pub(crate) fn removed(&mut self, id: ContainerId, outcome: Outcome, ended: Exit) {
        let Some(container) = self.containers.get_mut(&id) else { return };
        let Phase::Removing { requests, exit, before, .. } = &mut container.phase else { return };
        let (requests, exit, before) = (std::mem::take(requests), *exit, *before);
        if let Outcome::Failed(Failure { message, kind }) = outcome {
            // It stays deletable: the caller may try again (trap 12).
            container.phase = match before {
                Deletable::Stopped => Phase::Stopped { exit },
                Deletable::Spent => Phase::Spent { exit },
                Deletable::Prepared => Phase::Prepared,
                Deletable::Created { .. } => Phase::Created,
            };
            for request in requests {
                self.reply(request, Err(Refusal { kind, message: message.clone() }));
            }
            return match before {
                Deletable::Created { early_exit: Some(exit) } => self.exited(id, exit),
                _ => self.end_latecomer(&id),
            };
        }
        let sandbox_was_gone = self.sandbox_gone;
        let Some(container) = self.forget(&id) else { return };
        // A restarted containerd deletes CREATED tasks (F11); under Never its caller does not create the container
        // again.
        if let (Some(index), Deletable::Created { .. }, None) =
            (container.member(), before, container.start_error)
        {
            let lost = Exit { code: START_FAILED, ..ended };
            self.note_end(index, lost, lost, EndedBy::CallerAlone, Program::NeverRan);
        }
        let deleted = Deleted { pid: container.pid, exit };
        self.act(Action::Publish(Notice::Deleted { container: id, deleted }));
        for request in requests {
            self.reply(request, Ok(Reply::Deleted(deleted)));
        }
        // K16, for a sandbox that was deleted before it was started.
        if self.sandbox_gone && !sandbox_was_gone {
            self.sandbox_ended();
        }
    }

    /// Drops a container from the tables and answers all requests that still wait for it.
    fn forget(&mut self, id: &ContainerId) -> Option<Container> {
        let mut container = self.containers.remove(id)?;
        if self.sandbox.as_ref() == Some(id) {
            self.sandbox = None;
            self.sandbox_gone = true;
        }
        for index in 0..self.members.len() {
            if self.members[index].current.as_ref() == Some(id) {
                self.members[index].current = None;
                self.merge_evidence(index);
            }
        }
        let mut waiters = std::mem::take(&mut container.waiters);
        waiters.extend(container.takeover_request());
        waiters.extend(container.checkpoint.take().map(|checkpoint| checkpoint.request));
        let mut removed = Vec::new();
        for exec in container.execs.values_mut() {
            waiters.append(&mut exec.waiters);
            match &mut exec.phase {
                ExecPhase::Starting { request, .. } => waiters.push(*request),
                ExecPhase::Removing { requests, exit, .. } => {
                    let deleted = Deleted { pid: exec.pid, exit: exit.unwrap_or_default() };
                    removed.extend(requests.drain(..).map(|request| (request, deleted)));
                }
                _ => {}
            }
        }
        for (request, deleted) in removed {
            self.reply(request, Ok(Reply::Deleted(deleted)));
        }
        for waiter in waiters {
            self.reply(waiter, Err(Refusal::not_found(format!("container {id} was deleted"))));
        }
        self.changed();
        Some(container)
    }

    pub(crate) fn pause(&mut self, request: RequestId, id: ContainerId) {
        self.change_freezer(request, id, FreezerChange::Pause);
    }

    pub(crate) fn resume(&mut self, request: RequestId, id: ContainerId) {
        self.change_freezer(request, id, FreezerChange::Resume);
    }

    fn change_freezer(&mut self, request: RequestId, id: ContainerId, change: FreezerChange) {
        let Some(container) = self.containers.get(&id) else {
            return self.reply_not_found(request, &id);
        };
        let operation = match (change, &container.phase, container.freezer) {
            (FreezerChange::Pause, Phase::Running { .. }, Freezer::Thawed) => Operation::Pause,
            (FreezerChange::Resume, Phase::Running { .. }, Freezer::Paused) => Operation::Resume,
            (_, _, Freezer::Changing(..)) => {
                let text = format!("container {id} is already being paused or resumed");
                return self.reply(request, Err(Refusal::precondition(text)));
            }
            (FreezerChange::Pause, ..) => {
                let text = format!("cannot pause container {id}: its program does not run");
                return self.reply(request, Err(Refusal::precondition(text)));
            }
            (FreezerChange::Resume, ..) => {
                let text = format!("cannot resume container {id}: it is not paused");
                return self.reply(request, Err(Refusal::precondition(text)));
            }
        };
        let op = self.run(&id, operation);
        if let Some(container) = self.containers.get_mut(&id) {
            container.freezer = Freezer::Changing(op, Some(request), change);
        }
    }

    pub(crate) fn freezer_changed(
        &mut self,
        id: ContainerId,
        request: Option<RequestId>,
        change: FreezerChange,
        outcome: Outcome,
    ) {
        let Some(container) = self.containers.get_mut(&id) else { return };
        if !matches!(container.phase, Phase::Running { .. }) {
            // Its process is gone, and the caller got its answer at the exit.
            container.freezer = Freezer::Thawed;
            for request in std::mem::take(&mut container.deletes) {
                self.delete(request, id.clone());
            }
            return self.changed();
        }
        if let Outcome::Failed(Failure { message, kind }) = outcome {
            container.freezer = match change {
                FreezerChange::Pause => Freezer::Thawed,
                FreezerChange::Resume => Freezer::Paused,
            };
            let Some(request) = request else {
                // The next SIGKILL tries again.
                return self.act(Action::Warn(format!("container {id} could not be thawed: {message}")));
            };
            self.reply(request, Err(Refusal { kind, message }));
            return self.thaw_if_ending(&id);
        }
        let (freezer, notice) = match change {
            FreezerChange::Pause => (Freezer::Paused, Notice::Paused { container: id.clone() }),
            FreezerChange::Resume => (Freezer::Thawed, Notice::Resumed { container: id.clone() }),
        };
        container.freezer = freezer;
        // A thaw for SIGKILL is no resume that a caller asked for.
        if request.is_some() || !container.stop.killed {
            self.act(Action::Publish(notice));
        }
        if let Some(request) = request {
            self.reply(request, Ok(Reply::Ok));
        }
        self.thaw_if_ending(&id);
    }

    pub(crate) fn reply_not_found(&mut self, request: RequestId, id: &ContainerId) {
        self.reply(request, Err(Refusal::not_found(format!("container {id} not found"))));
    }
}
