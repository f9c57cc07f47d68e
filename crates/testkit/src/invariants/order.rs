//! The promises about order and time: which container may start, which may be signalled, which must be dead by when.

use std::time::Duration;

use pod_lifecycle::{
    ContainerId, ContainerSpec, Hook, KubeletHook, KubeletType, MIN_KILL_DELAY, Operation, Request, TaskKind,
};
use pod_spec::{
    CodeSet, Condition, Member, Plan, RestartMode, RestartPolicy, Role, Signal, Source, ZeroGrace,
};

use super::picture::{Container, MemberPicture, Process};
use super::{Invariants, Verdict};

/// K11: the length of a stop that an unannounced SIGKILL begins.
const ZERO_GRACE: Duration = Duration::from_millis(1500);

/// T18: what the core notes of an init that runs again, after its name, and when nothing is left without a stop.
const RUNS_AGAIN: &str = " runs again: its caller has stopped all containers";
/// R14: what the core notes of a container that is held for the pod's restart, after its name.
const HELD_FOR_RESTART: &str = " is held for the pod's restart";
const ANOTHER_ROUND: &str = "another round begins: nothing of the pod is left";

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
        (plan.makes_main_of(&spec.name) && !kubelets).then_some(Role::Main)
    }

    /// Whether a sidecar must outlive `later` (S2, T1): a main, or a container that waits for it, directly or through
    /// others.
    fn needs(&self, later: &Container, sidecar: &Container) -> bool {
        match later.role {
            None => false,
            Some(Role::Main) => true,
            // V2: what waits for one of a pair waits for both.
            Some(_) => {
                let pair = [Some(&*sidecar.name), self.partner(&sidecar.name)];
                pair.into_iter().flatten().any(|name| self.waits_for(&later.name, name))
            }
        }
    }

    fn waits_for(&self, later: &str, earlier: &str) -> bool {
        self.waits(later).iter().any(|(name, _)| name == earlier || self.waits_for(name, earlier))
    }

    /// The conditions for the start of a container, drawn from the list, or from `after` instead (11.3).
    fn waits(&self, name: &str) -> Vec<(String, Condition)> {
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
    fn partner(&self, name: &str) -> Option<&str> {
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
        if matches!(operation, Operation::Create | Operation::CreateCompleted) {
            // T12: what its predecessor was asked does not count for the new container.
            self.stop_asked.remove(&name);
            self.asked.remove(&name);
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
            Operation::Recreate if exited_in_program => {
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
                self.may_begin(id)?;
                if let Some(container) = self.containers.get_mut(id) {
                    container.process = Process::Program { pid };
                    container.has_run = true;
                    if let Some(picture) = self.members.get_mut(&container.name) {
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
        if self.stopping && !container.has_run {
            return self.violated(format!("{id} starts its program during a stop (T11)"));
        }
        let picture = self.members.get(&container.name).cloned().unwrap_or_default();
        if role == Role::Init && picture.completed {
            return self.violated(format!("init {id} runs again (I4)"));
        }
        let is_of_marks = self.plan.as_ref().is_some_and(|plan| plan.settings.source == Source::Kruise);
        if picture.released || is_of_marks && container.is_ordered_above {
            return Ok(());
        }
        for (earlier, condition) in self.waits(&container.name) {
            let lets = |name: &str| {
                let other = self.members.get(name).cloned().unwrap_or_default();
                match condition {
                    Condition::Started => {
                        other.executed || other.open || self.is_done(&other) || self.is_given_up(&other)
                    }
                    Condition::Ready => other.open || self.is_done(&other) || self.is_given_up(&other),
                    Condition::Done => self.is_done(&other),
                }
            };
            if !lets(&earlier) && !self.partner(&earlier).is_some_and(lets) {
                return self.violated(format!("{id} starts before {earlier} lets it ({condition:?})"));
            }
        }
        Ok(())
    }

    fn is_done(&self, member: &MemberPicture) -> bool {
        member.completed || member.done_from.is_some_and(|from| from <= self.now)
    }

    /// I8: under Never a sidecar whose gate was open once, and which its caller does not recreate.
    fn is_given_up(&self, member: &MemberPicture) -> bool {
        let defaults = self.defaults();
        // J11: at once if podshim ended it with its pod.
        let wait = if member.ended_with_pod { defaults.lone_stop_window } else { defaults.replace_wait };
        self.policy() == Some(RestartPolicy::Never)
            && member.was_open
            && member.ended_at.is_some_and(|at| at + wait <= self.now)
    }

    /// T16: whether the core has taken a sidecar's stop for a lone stop.
    fn is_stopped_alone(&self, container: &Container) -> bool {
        let mut mains = self
            .containers
            .values()
            // Its Start may not have been answered yet.
            .filter(|other| other.role == Some(Role::Main) && (other.started || other.runs_program()))
            .filter(|other| other.shown.is_none())
            .peekable();
        !self.stopping
            && container.held.is_some()
            && container.held_since + self.defaults().lone_stop_window <= self.now
            && mains.peek().is_some()
            && mains.all(|main| main.kubelet == Some(KubeletHook::None) && !self.asked.contains(&main.name))
    }

    pub(super) fn may_signal(&mut self, id: &ContainerId, signal: Signal) -> Verdict {
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
        let (is_stop, is_kill) = (self.means_stop(id, signal), signal == Signal::KILL);
        let sidecar = container.role == Some(Role::Sidecar) && container.runs_program();
        if sidecar && is_stop {
            self.may_stop_sidecar(id, signal)?;
        }
        if is_stop && !is_kill {
            self.may_overtake_hook(id)?;
        }
        let Some(container) = self.containers.get_mut(id) else { return Ok(()) };
        container.killed |= is_kill;
        if is_stop && !is_kill {
            container.stop_signals += 1;
            container.interrupted = true;
            container.held = None;
        }
        Ok(())
    }

    /// T1, T6, T7: whether the end of a sidecar may begin.
    pub(super) fn may_end(&self, id: &ContainerId, signal: Signal) -> bool {
        let container = &self.containers[id];
        let turn =
            !self.containers.values().any(|other| other.runs_program() && self.needs(other, container));
        // V4, V5: while its partner's gate is open.
        let replaced = self.partner(&container.name).and_then(|name| self.members.get(name));
        container.caller_killed
            || self.is_stopped_alone(container)
            || replaced.is_some_and(|other| other.open)
            || self.is_asked_to_kill(id)
            || self.budget_is_over()
            || turn
            || container.gate_failed
            || (signal == Signal::KILL && container.stop_signals > 0)
    }

    /// T1, T3, K15: whether a sidecar may get a stop signal.
    fn may_stop_sidecar(&self, id: &ContainerId, signal: Signal) -> Verdict {
        let container = &self.containers[id];
        // U3: a container that started while its hook ran found its gate still open.
        let allowed = container.hooks_run.contains(&Hook::PreStop) || self.may_end(id, signal);
        if !allowed {
            return self.violated(format!("sidecar {id} is stopped while a member that needs it runs (T1)"));
        }
        if signal != Signal::KILL && container.stop_signals > 0 {
            return self.violated(format!("sidecar {id} gets a second stop signal (T3, K15)"));
        }
        // K15: the stop's own signal may have been sent before the caller's came.
        let own = self.member(&container.name).and_then(|member| member.stop_signal).unwrap_or(Signal::TERM);
        let expected = container.gate_failed || (self.stopping && signal == own);
        match container.held {
            Some(held) if signal != Signal::KILL && held != signal && !expected => {
                self.violated(format!("sidecar {id} gets another signal than the one held (K7)"))
            }
            _ => Ok(()),
        }
    }

    /// T6: whether every container may be signalled, whatever the order.
    pub(super) fn budget_is_over(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.settings.grace == Some(Duration::ZERO))
            || self.kill_by.is_some_and(|by| by <= self.now + MIN_KILL_DELAY)
            || self.own_budget.is_some_and(|end| end <= self.now)
    }

    /// Whether a caller's SIGKILL for that container is being handled.
    pub(super) fn is_asked_to_kill(&self, id: &ContainerId) -> bool {
        matches!(
            &self.asking,
            Some(Request::Kill { target, signal: Signal::KILL, .. }) if target.container == *id
        )
    }

    pub(super) fn kill_accepted(&mut self, id: &ContainerId, signal: Signal) {
        let stops = self.means_stop(id, signal);
        let Some(container) = self.containers.get_mut(id) else { return };
        if stops && signal != Signal::KILL && container.role.is_some() {
            self.stop_asked.insert(container.name.clone());
        }
        if stops && container.role.is_some() {
            self.asked.insert(container.name.clone());
        }
        if signal == Signal::KILL {
            container.caller_killed = true;
        } else if stops
            && container.role == Some(Role::Sidecar)
            && container.has_run
            && container.shown.is_none()
            // T12, T16: one whose signal belonged to a stop that was taken back runs again in place, and is stopped like any other.
            && (container.stop_signals == 0 || container.taken_back || container.process == Process::None)
        {
            if container.held.is_none() {
                container.held_since = self.now;
            }
            container.held.get_or_insert(signal);
        }
    }

    /// T3: a held signal is delivered when nothing needs the sidecar any more.
    pub(super) fn check_held(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        if container.held.is_none() {
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

    fn is_being_cleared(&self, id: &ContainerId) -> bool {
        self.operations.values().any(|(of, operation, _)| of == id && *operation == Operation::KillRemaining)
    }

    /// T5, T14: the consequences of the start and the end of a stop. Only the core's notes show when, among its other
    /// actions, they came.
    pub(super) fn noted(&mut self, line: &str) -> Verdict {
        if let Some(cause) = line.strip_prefix("pod stop begins: ") {
            self.restarting = cause == "Restart";
            if !self.stopping {
                self.stopping = true;
                self.was_stopped = true;
                self.stop_begins();
            }
        } else if let Some(name) = line.strip_suffix(HELD_FOR_RESTART) {
            return self.renewed(name);
        } else if line == "pod stop is over" {
            self.stopping = false;
            self.restarting = false;
            self.round_ends();
        } else if line == ANOTHER_ROUND {
            self.round_ends();
        } else if let Some(init) = line.strip_suffix(RUNS_AGAIN) {
            return self.init_runs_again(init);
        }
        Ok(())
    }

    /// R14: a container begins again only in a restart of its pod, and only if its program has ended and no caller has
    /// stopped it or seen its end.
    fn renewed(&mut self, member: &str) -> Verdict {
        let name = member.split('"').nth(1).unwrap_or_default().to_owned();
        if !self.restarting {
            return self.violated(format!("{member} begins again without a restart of the pod (R14)"));
        }
        if self.asked.contains(&name) {
            return self.violated(format!("{member} begins again, though its caller stopped it (R14)"));
        }
        let newest = self.containers.values_mut().find(|it| it.name == name && it.shown.is_none());
        let Some(container) = newest else {
            return self.violated(format!("{member} begins again, and there is none to do so (R14)"));
        };
        let runs = container.runs_program();
        container.has_run = false;
        container.exited_in_program = false;
        container.last_exit = None;
        self.members.entry(name).or_default().completed = false;
        if runs {
            self.violated(format!("{member} begins again while its program runs (R14)"))
        } else {
            Ok(())
        }
    }

    /// T18: a completed init is forgotten only if its caller stopped it and no planned container is left, or creates it again and
    /// nothing that comes after it is left.
    fn init_runs_again(&mut self, init: &str) -> Verdict {
        let name = init.trim_start_matches("init ").trim_matches('"').to_owned();
        let recreated = matches!(&self.asking, Some(Request::Create { spec, .. }) if spec.name == name);
        if !self.asked.contains(&name) && !recreated {
            return self
                .violated(format!("{init} runs again, though no caller stopped or recreated it (T18)"));
        }
        let left = self.containers.iter().find(|(_, it)| {
            let waits = self.waits(&it.name).iter().any(|(other, _)| *other == name);
            let comes_after = it.role == Some(Role::Main) || waits;
            it.role.is_some() && it.started && it.shown.is_none() && (comes_after || !recreated)
        });
        if let Some((left, _)) = left {
            return self.violated(format!("{init} runs again, though {left} lives (T18)"));
        }
        self.members.entry(name).or_default().completed = false;
        Ok(())
    }

    fn stop_begins(&mut self) {
        // Only a pod that can complete or fail begins a stop by itself (J7, R9, I2).
        let ends_itself = |plan: &&Plan| {
            plan.settings.restart_policy != RestartPolicy::Always
                || plan.members.iter().any(|member| {
                    // R13: an init that fails with a code that is not listed fails the pod under any policy.
                    let fails = member.restart.is_some_and(|it| match it.mode {
                        RestartMode::Never => true,
                        RestartMode::OnFailure => it.codes != CodeSet::FAILURES,
                        RestartMode::Always | RestartMode::Visible => false,
                    });
                    member.fatal.is_some() || (member.role == Role::Init && fails)
                })
        };
        let own = self.restarting || self.plan.as_ref().is_some_and(|plan| ends_itself(&plan));
        self.own_budget = own.then(|| self.now + self.pod_grace());
        let ordered = self.plan.as_ref().is_some_and(|plan| plan.settings.zero_grace == ZeroGrace::Order);
        let killed = match &self.asking {
            Some(Request::Kill { target, signal: Signal::KILL, .. }) => {
                // K13 is a stop of its own.
                self.containers.get(&target.container).is_some_and(|c| c.kind != TaskKind::Sandbox)
            }
            _ => false,
        };
        if ordered && killed && self.stop_asked.is_empty() {
            self.must_end_within(ZERO_GRACE);
        }
        if let Some(grace) = self.plan.as_ref().and_then(|plan| plan.settings.grace) {
            self.must_end_within(grace + MIN_KILL_DELAY);
        }
    }

    /// K11, T9: with `order` a SIGKILL that no stop announced leaves a stop of podshim's own 1.5 s.
    pub(super) fn may_be_hurried(&mut self, id: &ContainerId, signal: Signal) {
        let ordered = self.plan.as_ref().is_some_and(|plan| plan.settings.zero_grace == ZeroGrace::Order);
        let runs =
            self.containers.get(id).is_some_and(|it| it.role.is_some() && it.begun && it.runs_program());
        let has_time = self.kill_by.is_none_or(|by| by > self.now + MIN_KILL_DELAY);
        if ordered
            && runs
            && has_time
            && self.stopping
            && signal == Signal::KILL
            && self.stop_asked.is_empty()
        {
            self.must_end_within(ZERO_GRACE);
        }
    }

    fn round_ends(&mut self) {
        self.stop_asked.clear();
        self.kill_by = None;
        self.own_budget = None;
        let living: Vec<_> = self
            .containers
            .values()
            .filter(|container| container.has_run && container.shown.is_none())
            .map(|container| container.name.clone())
            .collect();
        for container in self.containers.values_mut() {
            let own = container.stop_signals > 0 || self.asked.contains(&container.name);
            // T12: a hook before a signal that did not come belonged to a stop that was taken back.
            container.hooks_run.retain(|hook| *hook != Hook::OnTerminate && own);
            let lives = container.runs_program() && container.role == Some(Role::Sidecar);
            container.taken_back |= lives && own && !self.asked.contains(&container.name);
            // I4: what went on after a stop was interrupted by nothing but its own signal.
            container.interrupted &= own;
        }
        self.asked.clear();
        let is_job = self.policy().is_some_and(|policy| policy != RestartPolicy::Always);
        for (name, picture) in &mut self.members {
            if living.contains(name) {
                picture.lives_on()
            } else {
                picture.waits_again()
            }
            if !is_job {
                picture.forget_done();
            }
        }
    }

    /// T5: the budget holds whatever containers do.
    pub(super) fn check_budget(&self) -> Verdict {
        if self.kill_by.is_none_or(|by| self.now < by) || !self.stopping {
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
