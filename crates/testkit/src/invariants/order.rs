//! The promises about order and time: which container may start, which may be signalled, which must be dead by when.

use std::time::Duration;

use pod_lifecycle::{ContainerId, ContainerSpec, Hook, KubeletType, Operation, Request, TaskKind};
use pod_spec::{Condition, Member, RestartPolicy, Role, Signal, Source};

use super::picture::{Container, MemberPicture, Process};
use super::stop::{Cause, End, Stop};
use super::{Invariants, Verdict};

impl Invariants {
    pub(super) fn member(&self, name: &str) -> Option<&Member> {
        self.plan.as_ref()?.member(name).map(|(_, member)| member)
    }

    pub(super) fn role_of(&self, spec: &ContainerSpec) -> Option<Role> {
        let plan = self.plan.as_ref().filter(|_| spec.kind == TaskKind::Container)?;
        if let Some((_, member)) = plan.member(&spec.name) {
            return Some(member.role);
        }
        let kubelets = matches!(spec.kubelet_type, Some(KubeletType::Init | KubeletType::Ephemeral));
        let is_main = plan.makes_main_of(&spec.name) && !kubelets && !self.facts.contains(&spec.name);
        is_main.then_some(Role::Main)
    }

    /// Whether a sidecar must outlive `later` (S2, T1): a main, or a container that waits for it, directly or through
    /// others.
    pub(super) fn needs(&self, later: &Container, sidecar: &Container) -> bool {
        match later.role {
            None => false,
            Some(Role::Main) => true,
            // V2: what waits for one of a pair waits for both.
            Some(_) => {
                let pair = [Some(&*sidecar.name), self.partner(&sidecar.name)];
                pair.into_iter().flatten().any(|name| self.waits_through(&later.name, name))
            }
        }
    }

    pub(super) fn waits_through(&self, later: &str, earlier: &str) -> bool {
        self.waits(later).iter().any(|(name, _)| name == earlier || self.waits_through(name, earlier))
    }

    /// The conditions for the start of a container, drawn from the list, or from `after` instead (11.3).
    pub(super) fn waits(&self, name: &str) -> Vec<(String, Condition)> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let member = self.member(name);
        if let Some(dependencies) = member.and_then(|member| member.after.as_ref()) {
            let named = |index: usize| plan.members[index].name.clone();
            return dependencies.iter().map(|other| (named(other.member), other.condition)).collect();
        }
        let place = member.map_or(usize::MAX, |member| self.place(member));
        let before = plan.members.iter().filter(|earlier| self.place(earlier) < place);
        before
            .map(|earlier| {
                let condition = if earlier.role == Role::Init { Condition::Done } else { Condition::Ready };
                (earlier.name.clone(), condition)
            })
            .collect()
    }

    /// The partner in a standby pair (V1).
    pub(super) fn partner(&self, name: &str) -> Option<&str> {
        let plan = self.plan.as_ref()?;
        let (_, member) = plan.member(name)?;
        Some(&plan.members[member.pair?].name)
    }

    /// Its place in the list, behind everything that it waits for by `after`.
    fn place(&self, member: &Member) -> usize {
        let own = if member.role == Role::Main { usize::MAX } else { member.entry };
        let members = self.plan.iter().flat_map(|plan| &plan.members).collect::<Vec<_>>();
        let others = member.after.iter().flatten().map(|other| self.place(members[other.member]));
        others.fold(own, usize::max)
    }

    pub(super) fn may_run(&mut self, id: &ContainerId, operation: &Operation) -> Verdict {
        let Some(container) = self.containers.get(id) else {
            return self.violated(format!("{operation:?} of {id}, which is not there"));
        };
        let (name, process) = (container.name.clone(), container.process);
        let exited_in_program = container.exited_in_program;
        let is_planned = container.role.is_some();
        if matches!(operation, Operation::Create | Operation::CreateCompleted) && is_planned {
            if *operation == Operation::Create {
                self.may_run_again(id)?;
            }
            self.created(id);
            // S14: one that was never started is none of the plan's any more.
            for (_, older) in self.containers.iter_mut().filter(|(other, _)| *other != id) {
                if older.name == name && !older.started {
                    older.role = None;
                }
            }
        }
        match operation {
            Operation::Create | Operation::Recreate if self.sandbox_gone => {
                self.violated(format!("{operation:?} of {id} after the sandbox's end (K16)"))
            }
            Operation::Recreate if process != Process::None => {
                self.violated(format!("{id} is re-created while its process lives"))
            }
            // R14: what begins again with its pod is judged elsewhere.
            Operation::Recreate if exited_in_program && !self.pod_restarts => {
                self.may_restart(id)?;
                if let Some(container) = self.containers.get_mut(id) {
                    container.restarts += 1;
                }
                Ok(())
            }
            Operation::Start => {
                let Process::RuntimeInit { pid } = process else {
                    return self.violated(format!("{id} is started without a runtime's init"));
                };
                if self.is_read {
                    self.read_stops();
                }
                self.leaves_plan_if_own(id);
                self.may_begin(id)?;
                if let Some(container) = self.containers.get_mut(id) {
                    container.process = Process::Program { pid };
                    container.is_starting = true;
                    container.has_run = true;
                    if let Some(picture) = self.members.get_mut(&container.name).filter(|_| is_planned) {
                        picture.released = true;
                        picture.counted_from_zero();
                    }
                }
                Ok(())
            }
            Operation::RunHook { hook, .. } => self.may_run_hook(id, *hook),
            _ => Ok(()),
        }
    }

    /// S2, S6, S13, I1, I4: the start order.
    fn may_begin(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let Some(role) = container.role else { return Ok(()) };
        // A sidecar that waits for the last main may start at the moment at which the pod completes.
        let is_complete = self.stop.is_some_and(|it| it.cause == Cause::Completed && it.since == self.now);
        if self.is_stopping() && !container.has_run && !is_complete {
            return self.violated(format!("{id} starts its program during a stop (T11)"));
        }
        let picture = self.members.get(&container.name).cloned().unwrap_or_default();
        if role == Role::Init && picture.completed && self.is_read {
            return self.violated(format!("init {id} runs again (I4)"));
        }
        let is_of_marks = self.plan.as_ref().is_some_and(|plan| plan.settings.source == Source::Kruise);
        if picture.released || is_of_marks && container.is_ordered_above {
            return Ok(());
        }
        match self.blocker(&container.name) {
            Some((earlier, condition)) => {
                self.violated(format!("{id} starts before {earlier} lets it ({condition:?})"))
            }
            None => Ok(()),
        }
    }

    /// U1: whether a member may let what waits for it start, as its program ended with 0.
    pub(super) fn maybe_lets(&self, name: &str, condition: Condition) -> bool {
        self.members.get(name).is_some_and(|member| match condition {
            Condition::Started => member.maybe_executed,
            Condition::Ready => member.maybe_open,
            Condition::Done => false,
        })
    }

    /// What a member must still wait for (S2, U10).
    pub(super) fn blocker(&self, name: &str) -> Option<(String, Condition)> {
        self.waits(name).into_iter().find(|(earlier, condition)| {
            !self.lets(earlier, *condition)
                && !self.maybe_lets(earlier, *condition)
                && !self.partner(earlier).is_some_and(|partner| {
                    self.lets(partner, *condition) || self.maybe_lets(partner, *condition)
                })
        })
    }

    /// Whether a member lets what waits for it start.
    pub(super) fn lets(&self, name: &str, condition: Condition) -> bool {
        let other = self.members.get(name).cloned().unwrap_or_default();
        match condition {
            _ if self.is_done(&other) && !self.is_clearing(name) => true,
            Condition::Started => other.executed || other.open || self.is_given_up(&other),
            Condition::Ready => other.open || self.is_given_up(&other),
            Condition::Done => false,
        }
    }

    /// Whether something of a completed init is left, so that its end is not seen yet (CONTRACT §6).
    fn is_clearing(&self, name: &str) -> bool {
        self.newest(name)
            .is_some_and(|(id, it)| it.shown.is_none() && (it.is_draining() || self.is_being_cleared(id)))
    }

    fn is_done(&self, member: &MemberPicture) -> bool {
        let is_success =
            |end: &End| end.ran && end.code == 0 && (end.counts_from <= self.now || !self.is_read);
        member.completed || (member.is_main && member.end.as_ref().is_some_and(is_success))
    }

    /// I8: under Never a sidecar whose gate was open once, and which its caller does not recreate.
    fn is_given_up(&self, member: &MemberPicture) -> bool {
        // J11: at once if podshim ended it with its pod, once its caller creates nothing more; else after `replace-wait`. When it
        // had to be is not judged.
        let window = self.defaults().lone_stop_window;
        self.policy() == Some(RestartPolicy::Never)
            && !member.is_main
            && (member.is_given_up
                || member.was_open && member.end.is_some() && self.last_create + window <= self.now)
    }

    /// I8: what was given up once stays so until another round begins.
    pub(super) fn note_given_up(&mut self) {
        let names = self.members.iter().filter(|(_, member)| self.is_given_up(member));
        let names: Vec<_> = names.map(|(name, _)| name.clone()).collect();
        for name in names {
            if let Some(member) = self.members.get_mut(&name) {
                member.is_given_up = true;
            }
        }
    }

    /// I8: whether what a member waits for may have been given up.
    pub(super) fn waits_for_given_up(&self, name: &str) -> bool {
        let never = self.policy() == Some(RestartPolicy::Never);
        let may_be = |member: &MemberPicture| {
            !member.is_main && member.was_open && (member.end.is_some() || member.is_given_up)
        };
        never && self.waits(name).iter().any(|(other, _)| self.members.get(other).is_some_and(may_be))
    }

    pub(super) fn may_signal(&mut self, id: &ContainerId, signal: Signal) -> Verdict {
        // T11: what was created in a stop, or is held in a caller's, is held until that is over.
        // A standby ends when that begins (V2).
        let by_caller = self.stop.filter(|stop| stop.cause == Cause::Caller);
        let is_latecomer = self.containers.get(id).is_some_and(|it| {
            let stays =
                by_caller.is_some_and(|stop| self.partner(&it.name).is_none() || stop.since < self.now);
            it.is_held() && (it.is_latecomer || stays && !self.is_asked(&it.name))
        });
        if self.is_read && is_latecomer && !self.is_asked_for(id) {
            self.read_stops();
        }
        if !is_latecomer && self.may_be_lost_in_pair(id) {
            self.leaves_the_reading();
        }
        let Some(container) = self.containers.get(id) else { return Ok(()) };
        if container.kind == TaskKind::Sandbox && self.plan.is_some() {
            // K13: the network namespace outlives every container.
            let left = self.containers.iter().find(|(_, other)| {
                other.kind != TaskKind::Sandbox && other.process != Process::None && !other.killed
            });
            if let (Some((left, _)), true) = (left, self.means_stop(id, signal)) {
                return self.violated(format!("the sandbox is signalled before {left} has ended (K13)"));
            }
        }
        // A HUP that was kept while the program was being started is its stop signal.
        let is_stop = self.means_stop(id, signal) || container.held == Some(signal);
        let is_kill = signal == Signal::KILL;
        let sidecar = container.role == Some(Role::Sidecar) && container.runs_program();
        if sidecar && is_stop {
            self.may_stop_sidecar(id, signal)?;
        }
        if sidecar && is_kill {
            self.may_kill_sidecar(id)?;
        }
        if container.role == Some(Role::Main) && container.runs_program() && is_kill {
            self.may_kill_main(id)?;
        }
        if is_stop && !is_kill {
            // T5: a stop without time may have begun by what is being handled: a grace of 0 s, and the last init has completed.
            if self.is_read {
                self.read_begin();
            }
            self.may_overtake_hook(id)?;
            self.may_skip_hooks(id)?;
        }
        let (now, event) = (self.now, self.event);
        let own_time = self.own_time(id);
        let had_turn = self.containers.get(id).is_some_and(|container| self.may_have_its_turn(container));
        // I7, V4.
        let for_restart = self.containers.get(id).is_some_and(|container| {
            // Or it had begun before the stop.
            let since = |stop: Stop| container.ends_since.is_some_and(|since| since < stop.since);
            let may_hand_over = self.stop.is_none_or(since) && !container.asked_ever;
            let hands_over = may_hand_over && self.may_be_replaced(container);
            self.is_of_failed_group(container) || hands_over
        });
        let never_starts = self.containers.get(id).is_some_and(|container| self.may_never_start(container));
        if self.containers.get(id).is_some_and(|container| self.is_held_too_long(container)) {
            self.timed_out(id);
        }
        self.may_end_held(id)?;
        let Some(container) = self.containers.get_mut(id) else { return Ok(()) };
        container.never_starts = never_starts;
        if is_stop && !is_kill && container.runs_program() {
            container.signalled_at.get_or_insert(now);
            if container.ends_since.is_none() {
                container.own_time = own_time;
            }
            container.had_turn |= had_turn;
            container.for_restart |= for_restart;
        }
        container.killed |= is_kill;
        // I7: SIGKILL may come while its start goes on, also after the one that failed has been started again.
        container.for_restart |=
            is_kill && container.is_starting && (for_restart || container.ends_for_group);
        if is_stop && !container.runs_program() {
            (container.is_dying, container.dying_in) = (true, event);
        }
        if is_stop && !is_kill {
            container.stop_signals += 1;
            container.interrupted = true;
            container.held = None;
        }
        Ok(())
    }

    /// T8, T17: the time that a container has whose end begins now.
    pub(super) fn own_time(&self, id: &ContainerId) -> Duration {
        let grace = self.containers.get(id).and_then(|container| self.own_grace(&container.name));
        grace.unwrap_or_else(|| self.pod_grace())
    }

    /// T1, T6, T7: whether the end of a sidecar may begin.
    pub(super) fn may_end(&self, id: &ContainerId, signal: Signal) -> bool {
        let container = &self.containers[id];
        let turn =
            !self.containers.values().any(|other| other.runs_program() && self.needs(other, container));
        let replaced = self.may_be_replaced(container);
        container.caller_killed
            || self.is_judged_alone(container)
            || replaced
            || self.is_asked_to_kill(id)
            || self.budget_is_over()
            || self.may_have_last_signal(container)
            || turn
            // T8: its hook was part of a stop that was taken back, and its time is over.
            || (container.asked_ever && container.hook.is_some())
            || container.gate_failed
            || (signal == Signal::KILL && container.stop_signals > 0)
    }

    /// V4, V5: while its partner's gate is open, and the migration to that one has succeeded or its own one has not.
    pub(super) fn may_be_replaced(&self, container: &Container) -> bool {
        let Some(name) = self.partner(&container.name) else { return false };
        let is_open = |name: &str| self.members.get(name).is_some_and(|member| member.open);
        let migrates = self.member(name).is_some_and(|member| member.migrate.is_some());
        let has_migrated = self.newest(name).is_some_and(|(_, partner)| partner.migrated == Some(true));
        let has_failed = container.migrated == Some(false) || container.hook == Some(Hook::Migrate);
        container.is_replaced
            || is_open(name) && (!migrates || has_migrated || has_failed || !is_open(&container.name))
    }

    /// U6: what an init that was held for too long, or a sidecar under Never, means for its pod is not read.
    fn timed_out(&mut self, id: &ContainerId) {
        let container = &self.containers[id];
        let is_fatal = self.member(&container.name).is_some_and(|member| member.fatal.is_some());
        if container.role != Some(Role::Main) || is_fatal {
            self.leaves_the_reading();
        }
    }

    /// T1, T3, K15: whether a sidecar may get a stop signal.
    fn may_stop_sidecar(&self, id: &ContainerId, signal: Signal) -> Verdict {
        let container = &self.containers[id];
        // U3: a container that started while its hook ran found its gate still open.
        let allowed = container.hooks_run.contains(&Hook::PreStop) || self.may_end(id, signal);
        if !allowed {
            return self.violated(format!("sidecar {id} is stopped while a member that needs it runs (T1)"));
        }
        let is_pair = self.partner(&container.name).is_some();
        if signal != Signal::KILL && container.stop_signals > 0 && !(is_pair && container.taken_back) {
            return self.violated(format!("sidecar {id} gets a second stop signal (T3, K15)"));
        }
        // K15, K9: the stop's own signal, or that for a caller's SIGKILL, may have been sent before the caller's came.
        let own = self.member(&container.name).and_then(|member| member.stop_signal).unwrap_or(Signal::TERM);
        let may_be_own = self.may_be_stopping() || container.caller_killed;
        let expected = container.gate_failed || (may_be_own && signal == own);
        match container.held {
            Some(held) if signal != Signal::KILL && held != signal && !expected => {
                self.violated(format!("sidecar {id} gets another signal than the one held (K7)"))
            }
            _ => Ok(()),
        }
    }

    /// T6: whether every container may be signalled, whatever the order.
    pub(super) fn budget_is_over(&self) -> bool {
        !self.is_read || self.stop.and_then(|stop| stop.budget).is_some_and(|it| it.ends <= self.now)
    }

    /// Whether a stop may be under way.
    pub(super) fn may_be_stopping(&self) -> bool {
        !self.is_read || self.stop.is_some()
    }

    /// Whether a caller's SIGKILL for that container is being handled.
    pub(super) fn is_asked_to_kill(&self, id: &ContainerId) -> bool {
        matches!(
            &self.asking,
            Some(Request::Kill { target, signal: Signal::KILL, .. }) if target.container == *id
        )
    }

    /// Whether a caller's request for the end of that container is being handled.
    pub(super) fn is_asked_for(&self, id: &ContainerId) -> bool {
        matches!(&self.asking, Some(Request::Kill { target, .. }) if target.container == *id)
    }

    pub(super) fn kill_accepted(&mut self, id: &ContainerId, signal: Signal) {
        let stops = self.means_stop(id, signal);
        let Some(container) = self.containers.get_mut(id) else { return };
        if signal == Signal::KILL {
            container.caller_killed = true;
        } else if stops
            && container.role == Some(Role::Sidecar)
            && container.has_run
            && container.shown.is_none()
            && (container.stop_signals == 0 || container.comes_back() || container.process == Process::None)
        {
            container.held.get_or_insert(signal);
        }
    }

    /// T3: a held signal is delivered when nothing needs the sidecar any more.
    pub(super) fn check_held(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        if container.held.is_none() || !self.is_read {
            return Ok(());
        }
        let needed = self.containers.iter().any(|(other_id, other)| {
            other.has_run
                && other.shown.is_none()
                // A completed init is gone once its hook (H4) and what it left behind (CONTRACT §6) are gone.
                && !(other.role == Some(Role::Init)
                    && other.hook.is_none()
                    && !self.is_being_cleared(other_id)
                    && self.members.get(&other.name).is_some_and(|picture| picture.completed))
                && self.needs(other, container)
        });
        let lost = !needed
            && container.runs_program()
            && container.begun
            && container.hook.is_none()
            && container.stop_signals == 0
            && !container.killed;
        if lost { self.violated(format!("the signal held for {id} is lost (T3)")) } else { Ok(()) }
    }

    /// Whether a process is being added to it, whose exit its own comes after (CONTRACT §6).
    pub(super) fn has_starting_exec(&self, id: &ContainerId) -> bool {
        self.operations
            .values()
            .any(|(of, operation, _)| of == id && matches!(operation, Operation::StartExec(_)))
    }

    pub(super) fn is_being_cleared(&self, id: &ContainerId) -> bool {
        self.operations.values().any(|(of, operation, _)| of == id && *operation == Operation::KillRemaining)
    }

    /// Whether its Delete is under way, so that it is gone for callers.
    pub(super) fn is_being_removed(&self, id: &ContainerId) -> bool {
        self.operations.values().any(|(of, operation, _)| of == id && *operation == Operation::Remove)
    }

    /// R6, R7: whether its next process is being made.
    pub(super) fn is_being_recreated(&self, id: &ContainerId) -> bool {
        self.operations.values().any(|(of, operation, _)| of == id && *operation == Operation::Recreate)
    }

    /// T5: the budget holds whatever containers do.
    pub(super) fn check_budget(&self) -> Verdict {
        let Some(budget) = self.stop.and_then(|stop| stop.budget).filter(|_| self.is_read) else {
            return Ok(());
        };
        if self.now < budget.kills {
            return Ok(());
        }
        let left = self
            .containers
            .iter()
            .find(|(_, container)| container.role.is_some() && container.runs_program() && !container.killed);
        match left {
            Some((id, _)) => self.violated(format!("{id} runs after the end of the budget (T5)")),
            None => Ok(()),
        }
    }
}
