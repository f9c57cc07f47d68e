//! What an exit means: it is final, it is hidden, or a restart in place begins.
//!
//! Owns the R-rules and the order of exits within a container.

use std::time::Duration;

use pod_spec::{RestartMode, RestartPolicy, Role, Signal};

use crate::action::{Action, Notice, Operation, Refusal, Reply};
use crate::container::{Container, Deletable, Freezer, FreezerChange, Intent, Part, Phase, Program, Was};
use crate::event::{ContainerId, Exit, KubeletType, Outcome, PidNamespace, Target};
use crate::evidence::EndedBy;
use crate::exec::Exec;
use crate::history::Milestone;
use crate::hold::Hold;
use crate::pod::Pod;
use crate::shutdown::StopCause;
use crate::standby::Held;
use crate::startup::NEVER_RAN;
use crate::time::PodTime;

/// The exit code of a process that a signal ended, as shells and containerd report it.
pub(crate) fn code_of_signal(signal: u8) -> u32 {
    128 + u32::from(signal)
}

/// What containerd reports for a container that could not be started.
pub(crate) const START_FAILED: u32 = 128;

/// The exit code of a program that SIGKILL ended.
pub(crate) const KILLED: u32 = 137;

impl Pod {
    /// The init process of a container is gone.
    pub(crate) fn exited(&mut self, id: ContainerId, exit: Exit) {
        let now = self.now;
        let Some(container) = self.containers.get_mut(&id) else { return };
        let was = match &mut container.phase {
            Phase::Created => Was::Created,
            Phase::Held(_) => Was::Held,
            Phase::Ending { code } => Was::Ending { code: *code },
            Phase::Running { since } => Was::Running { ran: now.since(*since) },
            Phase::Starting { early_exit, .. } => {
                *early_exit = Some(exit);
                return;
            }
            // A created container that is being deleted: its process goes with it.
            Phase::Removing { before: Deletable::Created { early_exit }, .. } => {
                *early_exit = Some(exit);
                return;
            }
            _ => return self.impossible(format!("exit of container {id}, which has no process")),
        };
        // No process is left to signal.
        container.hooks.stop_waiting();
        let ran = matches!(was, Was::Running { .. });
        let unseen = container.probe.take().filter(|probe| exit.code == 0 && probe.awaits_exec());
        let interrupted = match container.freezer {
            Freezer::Changing(op, request, change) => {
                container.freezer = Freezer::Changing(op, None, change);
                request.map(|request| (request, change))
            }
            Freezer::Thawed | Freezer::Paused => {
                container.freezer = Freezer::Thawed;
                None
            }
        };
        // Without a PID namespace of its own, a container's other processes outlive its init (R6, CONTRACT §6). A held
        // container can have execs (U8) that nothing else would end.
        let leftovers = container.spec.pid_namespace == PidNamespace::Shared
            && (matches!(was, Was::Running { .. }) || container.execs.values().any(Exec::is_running));
        let op = leftovers.then(|| self.run(&id, Operation::KillRemaining));
        if let Some(container) = self.containers.get_mut(&id) {
            container.phase = Phase::Draining { exit, was, op };
        }
        if ran {
            self.record(&id, Milestone::Exited { exit });
        }
        self.changed();
        if unseen.is_some() {
            self.ended_well_unseen(&id);
        }
        match interrupted {
            Some((request, FreezerChange::Pause)) => {
                let text = format!("container {id} exited before it could be paused");
                self.reply(request, Err(Refusal::precondition(text)));
            }
            // It has exited, so it was thawed: a signal that it got while frozen can be faster than the runtime's
            // answer.
            Some((request, FreezerChange::Resume)) => {
                self.act(Action::Publish(Notice::Resumed { container: id.clone() }));
                self.reply(request, Ok(Reply::Ok));
            }
            None => {}
        }
        self.drained(&id);
    }

    pub(crate) fn leftovers_killed(&mut self, id: ContainerId, outcome: Outcome) {
        let Some(container) = self.containers.get_mut(&id) else { return };
        if let Phase::Draining { op, .. } = &mut container.phase {
            *op = None;
        }
        if let Outcome::Failed(failure) = outcome {
            container.hooks.give_up();
            self.act(Action::Warn(format!("container {id}: processes may be left: {}", failure.message)));
            self.kill_execs(&id);
        }
        self.drained(&id);
    }

    /// Goes on once the init's exit may be the last exit of its container.
    pub(crate) fn drained(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        let Phase::Draining { exit, was, op: None } = container.phase else { return };
        if container.execs.values().any(Exec::is_running) || container.hooks.is_running() {
            return;
        }
        match was {
            Was::Created => self.finish(id, exit),
            Was::Ending { code } => {
                self.finish(id, Exit { code, at: exit.at });
                // An end that no caller requested is a failure like one of the program, unless the pod itself had failed
                // before.
                if let (NEVER_RAN | START_FAILED, Some(index), None) =
                    (code, self.containers.get(id).and_then(Container::member), &self.failure)
                {
                    self.stop_if_fatal(index, code);
                }
            }
            // R7: no caller asked for this; the container is recreated and goes on waiting.
            Was::Held => self.back_off(id, exit),
            Was::Running { ran } => self.program_ended(id, exit, ran),
        }
    }

    fn program_ended(&mut self, id: &ContainerId, exit: Exit, ran: Duration) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.restarts.exited(ran);
        if self.is_held_again(id, exit) == Held::Again {
            return;
        }
        let Some(container) = self.containers.get(id) else { return };
        match self.role(container) {
            Some(Role::Init) if exit.code == 0 => self.init_completed(id, exit),
            Some(_) if self.restarts_after(container, exit.code) => {
                // I7: a container that podshim ended for its group's failure is not another failure.
                if container.stop.intent == Intent::Live {
                    self.fail_group_of(id);
                }
                self.suspect_hook_of(id);
                self.restart(id, exit);
            }
            Some(_) => self.ended_for_good(id, exit),
            None => self.finish(id, exit),
        }
    }

    /// podshim does not run the program again: the exit is shown, and a caller may recreate the container.
    fn ended_for_good(&mut self, id: &ContainerId, exit: Exit) {
        let Some(container) = self.containers.get(id) else { return };
        let Some(index) = container.member() else { return };
        let unasked = container.stop.intent != Intent::End;
        let by = self.ended_by(container);
        self.finish(id, exit);
        if self.members[index].member.role == Role::Init {
            // I2.
            if unasked && self.stop.is_none() && self.is_not_repeated(index) {
                self.fail_pod(index, format!("failed with {}", exit.code));
            }
            return;
        }
        // T15: a container that its caller stopped alone may come back.
        if by == EndedBy::Other {
            self.stop_if_fatal(index, exit.code);
        }
        if unasked {
            self.go_on_without(index);
        }
    }

    /// R4: under Never no caller restarts a sidecar, and the pod goes on without it.
    pub(crate) fn go_on_without(&mut self, index: usize) {
        let state = &self.members[index];
        if self.stop.is_none() && state.member.role == Role::Sidecar && self.recreates_nothing() {
            self.act(Action::Note(format!("{state} is not restarted: the pod goes on without it")));
            self.open_gate(index);
        }
    }

    /// R9: the end of one container stops the pod. Its own code is shown before the stop begins (J4). Under Never the
    /// pod has failed with it: what its caller creates now would wait for a container that the caller does not
    /// recreate.
    pub(crate) fn stop_if_fatal(&mut self, index: usize, code: u32) {
        let state = &self.members[index];
        if !state.is_fatal(code) || self.stop.is_some() {
            return;
        }
        self.act(Action::Note(format!("{state} has ended with {code}, which is fatal for the pod")));
        self.begin_stop(StopCause::Fatal);
        if self.recreates_nothing() {
            self.set_failure(index, format!("has ended with {code}, which is fatal"));
        }
    }

    /// Whether podshim starts a container again after an exit with that code (R1, R4, R7, I3).
    pub(crate) fn restarts_after(&self, container: &Container, code: u32) -> bool {
        let Some(index) = container.member().filter(|_| self.keeps_running(container)) else { return false };
        let (role, restart) = (self.members[index].member.role, self.members[index].member.restart);
        // A container that podshim ended in order to restart it has failed, whatever its code (U4); a group is retried
        // as one (I7).
        let ordered = container.stop.intent == Intent::Restart;
        if ordered && role == Role::Init {
            return true;
        }
        // R9: without a `restart` key the first such exit stops the pod.
        if !ordered && restart.is_none() && self.members[index].is_fatal(code) {
            return false;
        }
        if self.shows_crash_loop(container, index) {
            return false;
        }
        let wanted = match self.restart_mode(index) {
            RestartMode::Never | RestartMode::Visible => false,
            RestartMode::OnFailure => code != 0 || ordered,
            RestartMode::Always => true,
        };
        wanted && !container.restarts.are_spent(restart.and_then(|restart| restart.limit))
    }

    /// R12: whether a sidecar's next exit is shown, so that its kubelet recreates it with a fresh root file system, a
    /// restart count and CrashLoopBackOff. Not from T0 on, and not if its caller would not recreate it.
    fn shows_crash_loop(&self, container: &Container, index: usize) -> bool {
        let member = &self.members[index].member;
        let limit = self.plan.as_ref().and_then(|plan| plan.defaults.visible_after);
        member.role == Role::Sidecar
            && member.restart.is_none()
            && member.pair.is_none()
            && self.stop.is_none()
            && self.policy() == RestartPolicy::Always
            && container.spec.kubelet.is_some()
            && container.restarts.are_spent(limit)
    }

    /// How podshim restarts a member: as its own key says, else as its role and the policy say (R1, R7, R8, I2, I3).
    fn restart_mode(&self, index: usize) -> RestartMode {
        let member = &self.members[index].member;
        let usual = match (member.role, self.policy()) {
            (Role::Sidecar, _) => RestartMode::Always,
            (Role::Init, RestartPolicy::Never) => RestartMode::Never,
            (Role::Init, _) => RestartMode::OnFailure,
            (Role::Main, _) => RestartMode::Visible,
        };
        member.restart.map_or(usual, |restart| restart.mode)
    }

    /// Whether neither podshim nor the caller runs an init again that has failed (I2).
    pub(crate) fn is_not_repeated(&self, index: usize) -> bool {
        self.policy() == RestartPolicy::Never || self.restart_mode(index) == RestartMode::Never
    }

    /// Whether a pending restart is still wanted: no caller has asked for the container's end, and its pod goes on (R2, R5,
    /// K16).
    pub(crate) fn keeps_running(&self, container: &Container) -> bool {
        if container.stop.intent == Intent::End || (self.plan.is_some() && self.sandbox_gone) {
            return false;
        }
        match self.role(container) {
            // V6: in a stop no container needs the standby. R1: a sidecar until its own turn to stop has come.
            Some(Role::Sidecar) if self.stands_by(container) => self.stop.is_none(),
            Some(Role::Sidecar) => !(self.wants_end(container) && self.turn_has_come(container)),
            Some(Role::Init | Role::Main) => self.stop.is_none() && self.failure.is_none(),
            None => false,
        }
    }

    /// Whether a caller has asked for this container's end, or the pod is stopping.
    fn wants_end(&self, container: &Container) -> bool {
        self.stop.is_some() || container.stop.held_signal.is_some()
    }

    /// I7: the first failure in a parallel group is the group's failure: the others are ended and, where inits are
    /// retried, retried with it.
    fn fail_group_of(&mut self, id: &ContainerId) {
        let Some(index) = self.containers.get(id).and_then(Container::member) else { return };
        let failed = self.members[index].member.clone();
        if failed.role != Role::Init {
            return;
        }
        let rest = self.planned_where(|state, container| {
            state.member.entry == failed.entry
                && container.id != *id
                && matches!(container.phase, Phase::Starting { .. } | Phase::Running { .. })
        });
        for other in rest {
            if let Some(container) = self.containers.get_mut(&other)
                && container.stop.term_at.is_none()
                && !container.hooks.hold_a_stop()
            {
                container.stop.intent = Intent::Restart;
                let grace = self.grace_of(&other);
                self.deliver_stop(&other, None);
                if let Some(container) = self.containers.get_mut(&other) {
                    container.stop.kill_by(self.now + grace);
                }
            }
        }
    }

    /// I4, I5.
    fn init_completed(&mut self, id: &ContainerId, exit: Exit) {
        let Some(container) = self.containers.get(id) else { return };
        let Some(index) = container.member() else { return };
        // A kubelet that runs it as an init container creates mains, and what waits for this init, only once it has
        // seen this exit.
        let later_exists =
            self.planned().any(|(state, _)| state.member.role == Role::Main || Self::needs(state, index));
        let hides = self.policy() == RestartPolicy::Always
            && container.spec.kubelet_type != Some(KubeletType::Init)
            && self.members[index].asked.is_none()
            // Its Start was not answered: its caller kills and deletes it, and waits for the exit.
            && !container.stop.killed
            && self.stop.is_none()
            && later_exists;
        self.members[index].completed = Some(exit);
        let name = self.members[index].member.name.clone();
        self.act(Action::Note(format!("init {name:?} completed")));
        if !hides {
            return self.finish(id, exit);
        }
        if let Some(container) = self.containers.get_mut(id) {
            container.phase = Phase::Hidden { exit };
        }
    }

    fn restart(&mut self, id: &ContainerId, last: Exit) {
        if let Some(container) = self.containers.get_mut(id) {
            container.restarts.counted();
        }
        self.back_off(id, last);
    }

    pub(crate) fn back_off(&mut self, id: &ContainerId, last: Exit) {
        let now = self.now;
        let Some(container) = self.containers.get_mut(id) else { return };
        let own = container.member().and_then(|index| self.members[index].member.restart);
        let node = self.plan.as_ref().map(|plan| plan.defaults.backoff).unwrap_or_default();
        let delay = container.restarts.next_delay(&own.map_or(node, |restart| restart.backoff));
        container.phase = Phase::BackingOff { last, until: now + delay };
        let name = container.spec.name.clone();
        self.record(id, Milestone::RestartDue { delay });
        self.act(Action::Note(format!("{name:?} exited with {}, restart in {delay:?}", last.code)));
    }

    /// R6: recreates a container whose backoff is over.
    pub(crate) fn restart_timer(&mut self, id: &ContainerId) {
        let now = self.now;
        let Some(Container { phase: Phase::BackingOff { last, until }, .. }) = self.containers.get(id) else {
            return;
        };
        let (last, until) = (*last, *until);
        if now < until || self.freezer_is_busy(id) {
            return;
        }
        let op = self.run(id, Operation::Recreate);
        if let Some(container) = self.containers.get_mut(id) {
            container.phase = Phase::Recreating { op, last };
        }
    }

    /// A pause that was under way at the exit would freeze the next process: the cgroup has the same name.
    fn freezer_is_busy(&self, id: &ContainerId) -> bool {
        self.containers.get(id).is_some_and(|container| matches!(container.freezer, Freezer::Changing(..)))
    }

    pub(crate) fn recreated(&mut self, id: ContainerId, outcome: Outcome, ended: Exit) {
        let now = self.now;
        let Some(container) = self.containers.get_mut(&id) else { return };
        let Phase::Recreating { last, .. } = container.phase else { return };
        // It may have become unwanted while it was being recreated (R5, K3, K16).
        let unwanted = self.containers.get(&id).is_some_and(|container| self.is_unwanted(container));
        let Some(container) = self.containers.get_mut(&id) else { return };
        match outcome {
            Outcome::Process { pid } => {
                container.pid = pid;
                container.freezer = Freezer::Thawed;
                container.stop.new_incarnation();
                container.hooks.new_incarnation();
                container.lone_stop = None;
                container.phase = Phase::Held(Hold::new(now));
                // A standby stays held after a switch (V2). Most others are released at once: they wait for nothing.
                if let Some(reason) = self.hold_reason(&id) {
                    self.record(&id, Milestone::Held { reason });
                }
                self.changed();
                self.limit_oom_scores(&id);
                if unwanted {
                    self.end_without_running(&id, last.code, None);
                }
            }
            Outcome::Failed(_) if unwanted => self.finish(&id, last),
            Outcome::Failed(failure) => {
                self.act(Action::Warn(format!("container {id} could not be restarted: {}", failure.message)));
                self.record(&id, Milestone::StartFailed { reason: failure.message });
                let failed = Exit { code: START_FAILED, at: ended.at };
                let Some(container) = self.containers.get(&id) else { return };
                match container.program {
                    Program::NeverRan => self.back_off(&id, failed),
                    Program::HasRun if self.restarts_after(container, START_FAILED) => {
                        self.restart(&id, failed);
                    }
                    Program::HasRun => self.ended_for_good(&id, failed),
                }
            }
            Outcome::Ok => self.impossible(format!("container {id} re-created without a process")),
        }
    }

    /// Whether a container that has no running program at the moment must not get one again.
    fn is_unwanted(&self, container: &Container) -> bool {
        container.stop.intent == Intent::End
            || (container.program == Program::HasRun && !self.keeps_running(container))
    }

    /// R5, K16: a container that waits for a restart that will not come is final at once, with its last code.
    pub(crate) fn end_restarts(&mut self) {
        let held = self.planned_where(|_, container| {
            matches!(container.phase, Phase::Held(_))
                && container.program == Program::HasRun
                && self.is_unwanted(container)
        });
        for id in held {
            self.end_without_running(&id, code_of_signal(Signal::TERM.number()), None);
        }
        let over: Vec<(ContainerId, Exit)> = self
            .planned()
            .filter_map(|(_, container)| match container.phase {
                Phase::BackingOff { last, .. }
                    if container.program == Program::HasRun && !self.keeps_running(container) =>
                {
                    Some((container.id.clone(), last))
                }
                // R7's hold ends like any other.
                Phase::BackingOff { .. } if container.program == Program::NeverRan && self.sandbox_gone => {
                    Some((
                        container.id.clone(),
                        Exit { code: code_of_signal(Signal::TERM.number()), ..Exit::default() },
                    ))
                }
                _ => None,
            })
            .collect();
        for (id, last) in over {
            self.finish(&id, last);
        }
    }

    /// The exit is final. Callers see it in this order: event, waiters, end of stdio.
    pub(crate) fn finish(&mut self, id: &ContainerId, real: Exit) {
        let Some(container) = self.containers.get(id) else { return };
        let (shown, by) = (self.shown_exit(container, real), self.ended_by(container));
        let Some(container) = self.containers.get_mut(id) else { return };
        container.phase = Phase::Stopped { exit: shown };
        container.probe = None;
        container.stop.kill_at = None;
        container.lone_stop = None;
        let (pid, part, start_error) = (container.pid, container.part, container.start_error);
        let ran = container.program;
        let waiters = std::mem::take(&mut container.waiters);
        // A container that could not be started has ended already, whatever signal kills its runtime's init.
        if let (Part::Member(index), None) = (part, start_error) {
            self.note_end(index, real, shown, by, ran);
        }
        self.act(Action::Publish(Notice::Exited { target: Target::init(id.clone()), pid, exit: shown }));
        for waiter in waiters {
            self.reply(waiter, Ok(Reply::Exit(shown)));
        }
        self.act(Action::Finish { container: id.clone(), shown, real });
        if part == Part::Sandbox {
            self.sandbox_ended();
        }
    }

    /// R10: publishes an OOM kill only for containers whose exit is shown; otherwise CRI reports a live one as
    /// OOMKilled.
    pub(crate) fn out_of_memory(&mut self, id: ContainerId) {
        self.record(&id, Milestone::OutOfMemory);
        let Some(container) = self.containers.get(&id) else { return };
        if self.restarts_after(container, KILLED) {
            let text = format!(
                "container {id}: a process was killed for memory; it is restarted if it was the program"
            );
            return self.act(Action::Note(text));
        }
        self.act(Action::Publish(Notice::OutOfMemory { container: id }));
    }

    /// When a container next needs the clock.
    pub(crate) fn restart_deadline(&self, container: &Container) -> Option<PodTime> {
        match container.phase {
            Phase::BackingOff { until, .. } if !self.freezer_is_busy(&container.id) => Some(until),
            _ => None,
        }
    }
}
