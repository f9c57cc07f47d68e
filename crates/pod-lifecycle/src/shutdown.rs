//! The stop of the pod: when it begins, whose turn it is, how long it may take, when it is over.
//!
//! Owns the T-rules and completion (J1, J6, J7). A stop's order is the start order reversed: the
//! same `needs` relation decides both.

use std::time::Duration;

use pod_spec::{RestartPolicy, Role, Signal};

use crate::action::{Action, Reach};
use crate::budget::Budget;
use crate::container::{Container, Deletable, Intent, Part, Phase, Program, Was};
use crate::event::{ContainerId, Exit};
use crate::history::{Milestone, SignalCause};
use crate::member::{GateState, Release};
use crate::pod::Pod;
use crate::restart::code_of_signal;
use crate::sandbox::SandboxEnd;
use crate::standby::Started;
use crate::time::PodTime;
use crate::zero_grace::ZERO_GRACE;

/// The time that every container still gets when the budget is spent, from the last stop signals to SIGKILL (T6; the
/// kubelet has the same as `minimumGracePeriodInSeconds`).
pub const FLOOR: Duration = Duration::from_secs(2);
/// The budget of a stop that podshim begins where neither plan, kubelet nor node sets one (T5).
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// A stop of the pod (T12).
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) cause: StopCause,
    pub(crate) budget: Budget,
    /// Until then the caller may still stop held containers too, after the stops that began this one (T11).
    pub(crate) others_until: PodTime,
}

/// Why a stop began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// T12a.
    Caller,
    /// T12b.
    Sandbox(SandboxEnd),
    /// T12c: a signal to the shim.
    Requested,
    /// K11: SIGKILL where `zero-grace=order` makes a stop of it (T12c).
    ZeroGrace,
    /// T12c: the mains are done (J1).
    Completed,
    /// I2.
    InitFailed,
    /// I8.
    SidecarFailed,
    /// T12c: the end of a container that is fatal (R9).
    Fatal,
}

impl Stop {
    /// T11: whether nothing may be created any more.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(self.cause, StopCause::Sandbox(_) | StopCause::Requested)
    }

    pub(crate) fn is_zero_grace(&self) -> bool {
        self.cause == StopCause::ZeroGrace
    }

    /// When its time is over, as long as podshim counts it and some is left.
    pub(crate) fn until(&self) -> Option<PodTime> {
        match self.budget {
            Budget::Until { at, .. } => Some(at),
            Budget::Callers | Budget::LastCall { .. } | Budget::Spent => None,
        }
    }

    /// T14: whether the pod may go on after it.
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_for_good() && self.cause != StopCause::Completed
    }

    /// T2: whether podshim, not a caller, signals the mains.
    pub(crate) fn is_ours(&self) -> bool {
        self.cause != StopCause::Caller
    }

    /// The exit code of a container that this stop keeps from running (T11).
    fn code_of_held(&self) -> u32 {
        let by_kill = self.cause == StopCause::Sandbox(SandboxEnd::Killed(Signal::KILL));
        code_of_signal(if by_kill { Signal::KILL } else { Signal::TERM }.number())
    }
}

impl Pod {
    /// A signal to the shim, or an operator's stop: everything ends, in order.
    pub(crate) fn stop_pod(&mut self, grace: Option<Duration>) {
        // T5: the plan's own figure limits the requested one. The kubelet's does not, as it is an estimate.
        let enforced = self.plan.as_ref().and_then(|plan| plan.grace);
        let grace = grace.unwrap_or_else(|| self.pod_grace());
        let limit = self.now + enforced.map_or(grace, |enforced| enforced.min(grace));
        self.begin_stop_within(StopCause::Requested, Some(limit));
    }

    /// J1: stops a complete pod, if anything of it still lives.
    pub(crate) fn detect_completion(&mut self) {
        let due = self.stop.is_none() && self.is_complete() && self.something_is_left();
        if due && self.completion_waits_until().is_none() {
            self.begin_stop(StopCause::Completed);
        }
    }

    pub(crate) fn begin_stop(&mut self, cause: StopCause) {
        self.begin_stop_within(cause, self.limit_of(cause));
    }

    fn begin_stop_within(&mut self, cause: StopCause, limit: Option<PodTime>) {
        if let Some(stop) = &mut self.stop {
            let outranks = match (stop.cause, cause) {
                (StopCause::Sandbox(_), StopCause::Sandbox(SandboxEnd::Died)) => true,
                // The signal that pause gets in the end: a TERM, which pause would ignore, must not keep a KILL from
                // it.
                (
                    StopCause::Sandbox(SandboxEnd::Killed(_)),
                    StopCause::Sandbox(SandboxEnd::Killed(Signal::KILL)),
                ) => true,
                (StopCause::Sandbox(_), _) => false,
                (_, StopCause::Sandbox(_)) => true,
                (was, StopCause::Requested) => was != StopCause::Requested,
                _ => false,
            };
            // T9: the same stop again, with less time.
            let before = stop.budget;
            if cause == StopCause::Requested {
                stop.budget = before.tightened(cause, limit);
            }
            if !outranks {
                if stop.budget != before {
                    self.record_stop();
                    self.changed();
                }
                return;
            }
        }
        let budget = self.stop.as_ref().map_or(Budget::Callers, |stop| stop.budget).tightened(cause, limit);
        self.stop = Some(Stop { cause, budget, others_until: self.now + self.lone_stop_window() });
        self.record_stop();
        self.act(Action::Note(format!("pod stop begins: {cause:?}")));
        self.revoke_lone_stops();
        self.close_gates();
        self.tell_mains();
    }

    fn record_stop(&mut self) {
        let Some(stop) = &self.stop else { return };
        self.record_of_pod(Milestone::StopBegan(stop.inspect(self.now)));
    }

    /// When a stop of that cause must be over, if podshim sets its limit (T5).
    fn limit_of(&self, cause: StopCause) -> Option<PodTime> {
        match cause {
            // K13: a caller that stops the sandbox does not wait longer than the floor.
            StopCause::Sandbox(_) => {
                let grace = self.plan.as_ref().and_then(|plan| plan.grace).unwrap_or(FLOOR);
                Some(self.now + grace.min(FLOOR))
            }
            StopCause::ZeroGrace => {
                let grace = self.plan.as_ref().and_then(|plan| plan.grace).unwrap_or(ZERO_GRACE);
                Some(self.now + grace.min(ZERO_GRACE))
            }
            StopCause::Caller => self.plan.as_ref()?.grace.map(|grace| self.now + grace),
            StopCause::Requested
            | StopCause::Completed
            | StopCause::InitFailed
            | StopCause::SidecarFailed
            | StopCause::Fatal => Some(self.now + self.pod_grace()),
        }
    }

    fn pod_grace(&self) -> Duration {
        let own = self.plan.as_ref().and_then(|plan| plan.grace);
        let kubelet = || self.containers.values().filter_map(|container| container.spec.kubelet_grace).max();
        let node = || self.plan.as_ref().map_or(DEFAULT_GRACE, |plan| plan.defaults.grace);
        own.or_else(kubelet).unwrap_or_else(node)
    }

    /// A container's own grace, or the pod's if it has none (T8, U4).
    pub(crate) fn grace_of(&self, id: &ContainerId) -> Duration {
        let index = self.containers.get(id).and_then(Container::member);
        index.and_then(|index| self.members[index].member.grace).unwrap_or_else(|| self.pod_grace())
    }

    /// T11: from T0 on no planned container starts. Held ones end at once, hidden exits are shown (I5), no probe runs
    /// (H8).
    fn close_gates(&mut self) {
        let Some(stop) = self.stop.clone() else { return };
        // I5: a caller that stops the pod stops a hidden init itself (K4). If another stop showed its exit, the caller
        // would run it again.
        let stays_hidden = stop.goes_on() && self.sandbox.is_some() && !self.sandbox_gone;
        let ids: Vec<_> = self.planned_where(|_, _| true);
        for id in ids {
            let code = self.code_of_unrun(&stop, &id);
            // T11: a caller that stops the pod stops held containers itself. But a standby ends at once (V2).
            let stays_held = !stop.is_ours()
                && !self.containers.get(&id).is_some_and(|container| self.stands_by(container));
            // I2: `release` ends the held containers of a failed pod, with the reason.
            let fails_with_pod = self.failure.is_some()
                && !self.containers.get(&id).is_some_and(|container| self.is_native(container));
            let Some(container) = self.containers.get_mut(&id) else { continue };
            container.probe = None;
            let never_ran = container.program == Program::NeverRan;
            match &mut container.phase {
                Phase::Hidden { .. } if stays_hidden => {}
                Phase::Hidden { exit } => {
                    let exit = *exit;
                    self.finish(&id, exit);
                }
                _ if !never_ran || stays_held || fails_with_pod => {}
                Phase::Held(_) => self.end_without_running(&id, code, None),
                Phase::Draining { was: was @ Was::Held, .. } => *was = Was::Ending { code },
                Phase::BackingOff { last, .. } => {
                    let at = last.at;
                    self.finish(&id, Exit { code, at });
                }
                Phase::Recreating { last, .. } => {
                    last.code = code;
                    container.stop.intent = Intent::End;
                }
                _ => {}
            }
            self.end_latecomer(&id);
        }
    }

    /// The exit code of a container whose program this stop keeps from running (T11). In a complete pod a main keeps
    /// the code it ended with before (J11).
    fn code_of_unrun(&self, stop: &Stop, id: &ContainerId) -> u32 {
        let member = self.containers.get(id).and_then(Container::member).map(|index| &self.members[index]);
        let before = member
            .filter(|state| stop.cause == StopCause::Completed && state.member.role == Role::Main)
            .and_then(|state| state.ended.as_ref()?.counted_code());
        before.unwrap_or_else(|| stop.code_of_held())
    }

    /// K13: ends a container that is created and not started. Its process would outlive the sandbox, and in a stop for
    /// good it will never be started.
    pub(crate) fn end_latecomer(&mut self, id: &ContainerId) {
        let Some(stop) = self.stop.as_ref().filter(|stop| stop.is_for_good()) else { return };
        let code = stop.code_of_held();
        let Some(container) = self.containers.get(id).filter(|container| container.part != Part::Sandbox)
        else {
            return;
        };
        match container.phase {
            Phase::Created => self.end_without_running(id, code, None),
            Phase::Spent { exit } => self.finish(id, exit),
            Phase::Prepared => self.finish(id, Exit { code, ..Exit::default() }),
            _ => {}
        }
    }

    /// T2: in a stop by podshim mains and running inits get their signal at once, all together. In a requested stop
    /// passthrough containers get it too.
    fn tell_mains(&mut self) {
        let Some(stop) = self.stop.as_ref().filter(|stop| stop.is_ours()) else { return };
        let everything = stop.cause == StopCause::Requested;
        let ids: Vec<_> = self
            .containers
            .values()
            .filter(|container| container.stop.term_at.is_none() && container.has_process())
            .filter(|container| match (container.part, self.role(container)) {
                (Part::Passthrough, _) => everything,
                (_, Some(Role::Main | Role::Init)) => container.is_alive(),
                _ => false,
            })
            .map(|container| container.id.clone())
            .collect();
        for id in ids {
            self.stop_after_hooks(&id, None, None);
            self.share_zero_grace(&id);
        }
    }

    /// T1, T4: whether every container that needs a sidecar is gone or never ran. Once the budget is spent it is every
    /// sidecar's turn (T6).
    pub(crate) fn turn_has_come(&self, sidecar: &Container) -> bool {
        let Some(index) = sidecar.member() else { return true };
        self.budget_is_over()
            || !self.planned().any(|(state, container)| container.is_alive() && Self::needs(state, index))
    }

    /// H3: whether a hook may still begin: not once the budget is spent, and not if a caller gave no time at all, since
    /// then a kubelet runs no hook either.
    pub(crate) fn stop_has_time_for_hooks(&self) -> bool {
        let out_of_time = |stop: &Stop| stop.is_zero_grace() || stop.until().is_some_and(|at| self.now >= at);
        !self.budget_is_over() && !self.stop.as_ref().is_some_and(out_of_time)
    }

    /// T6: whether the last call has come.
    pub(crate) fn budget_is_over(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| matches!(stop.budget, Budget::LastCall { .. } | Budget::Spent))
    }

    /// T1, T3, K8: sidecars whose turn has come get their stop signal.
    pub(crate) fn take_turns(&mut self) {
        let stopping = self.stop.is_some();
        let ready: Vec<_> = self.planned_where(|state, container| {
            state.member.role == Role::Sidecar
                // A sidecar that is being started has its turn once it runs: a main may start before that (T1).
                && matches!(container.phase, Phase::Running { .. })
                && (stopping || container.stop.held_signal.is_some())
                && (container.stop.term_at.is_none() || container.stop.intent == Intent::Restart)
                && self.turn_has_come(container)
        });
        for id in ready {
            let Some(container) = self.containers.get_mut(&id) else { continue };
            container.stop.intent = Intent::End;
            // U4's stop of an unready sidecar becomes its last stop; its signal is not repeated.
            if container.stop.term_at.is_none() {
                let grace = self.grace_without_caller(&id);
                self.stop_after_hooks(&id, None, grace);
                self.share_zero_grace(&id);
            } else {
                container.stop.held_signal = None;
                self.changed();
            }
        }
    }

    /// T17: how long a sidecar has from its stop signal on if its caller may send no SIGKILL. In a caller's stop that
    /// is a sidecar that no caller has stopped itself, or one whose kubelet may have been restarted before the end of
    /// its grace.
    pub(crate) fn grace_without_caller(&self, id: &ContainerId) -> Option<Duration> {
        let container = self.containers.get(id)?;
        let state = &self.members[container.member()?];
        let by_caller = self.stop.as_ref().is_none_or(|stop| !stop.is_ours());
        let grace = self.grace_of(id);
        match (state.asked, state.member.grace) {
            _ if !by_caller => None,
            (None, _) => Some(grace),
            (Some(_), None) if container.spec.kubelet.is_some() => {
                Some(grace.saturating_add(self.replace_wait()))
            }
            (Some(_), _) => None,
        }
    }

    /// The budget (T5, T6) and the sandbox's own end (K13).
    pub(crate) fn apply_stop(&mut self) {
        let Some(stop) = &self.stop else { return };
        match stop.budget {
            Budget::Until { kill_at, .. } | Budget::LastCall { kill_at } if self.now >= kill_at => {
                self.kill_everything();
            }
            Budget::Until { at, kill_at } if self.now >= at => self.last_call(kill_at),
            _ => {}
        }
        self.end_sandbox();
    }

    fn set_budget(&mut self, budget: Budget) {
        if let Some(stop) = &mut self.stop {
            stop.budget = budget;
        }
        self.changed();
    }

    /// T6: every container that is left gets a stop signal at the same moment, if it had none.
    fn last_call(&mut self, kill_at: PodTime) {
        self.set_budget(Budget::LastCall { kill_at });
        self.record_of_pod(Milestone::LastCall);
        for id in self.left() {
            if self.containers.get(&id).is_some_and(|container| container.stop.term_at.is_none()) {
                self.deliver_stop(&id, None);
            }
            // K17.
            self.thaw(&id);
        }
    }

    fn kill_everything(&mut self) {
        self.set_budget(Budget::Spent);
        self.record_of_pod(Milestone::BudgetSpent);
        for id in self.left() {
            self.kill_now(&id, Reach::All, SignalCause::Budget);
        }
    }

    /// The containers that podshim itself ends in a stop: planned ones whose program was started. In a stop for good
    /// also all others but the sandbox (K13: the network namespace outlives every container).
    fn left(&self) -> Vec<ContainerId> {
        let everything = self.stop.as_ref().is_some_and(Stop::is_for_good);
        self.containers
            .values()
            .filter(|container| match container.part {
                Part::Sandbox => false,
                Part::Passthrough => everything && container.has_process(),
                Part::Member(_) => container.is_alive() || (everything && container.has_process()),
            })
            .map(|container| container.id.clone())
            .collect()
    }

    /// T14: a stop is over when everything it covers is final. Then what was created meanwhile starts in order. A stop
    /// for good is never over.
    pub(crate) fn finish_stop(&mut self) {
        if self.stop.as_ref().is_none_or(Stop::is_for_good) {
            return;
        }
        let ours = self.stop.as_ref().is_some_and(Stop::is_ours);
        let going_on = self.planned().any(|(state, container)| {
            // A container that ends in order to be restarted (U4, T16) goes on when the stop is over.
            let covered = state.asked.is_some()
                // T2: also a container that exited before its signal, and whose start has not been answered.
                || (ours && state.member.role != Role::Sidecar)
                || (container.stop.term_at.is_some() && container.stop.intent != Intent::Restart)
                || container.stop.intent == Intent::End
                || (state.member.role == Role::Sidecar && self.turn_has_come(container));
            covered && container.is_ending()
        });
        if going_on || self.held_may_be_stopped_yet() {
            return;
        }
        self.end_round();
    }

    /// T14: members that have ended wait for their gates again; what lives goes on.
    pub(crate) fn end_round(&mut self) {
        if self.stop.as_ref().is_some_and(|stop| stop.cause == StopCause::Completed) {
            self.another_round_until = None;
        }
        self.stop = None;
        self.round += 1;
        let is_job = self.policy() != RestartPolicy::Always;
        for index in 0..self.members.len() {
            let lives = self.current(index).is_some_and(Container::is_alive);
            let state = &mut self.members[index];
            // J11: in a job the ends of the mains are kept.
            state.ended = state.ended.filter(|_| is_job);
            state.asked = None;
            state.was_started = Started::Never;
            // A stop that turned out to be no stop of the pod opens no gate.
            (state.gate, state.release) = match (lives, state.gate) {
                (true, GateState::Open) => (GateState::Open, Release::Released),
                (true, _) => (GateState::Closed, Release::Released),
                (false, _) => (GateState::Closed, Release::Waiting),
            };
            let current = state.current.as_ref().and_then(|id| self.containers.get_mut(id));
            let Some(container) = current else { continue };
            container.hooks.new_round();
            // U6 counts from now, as only now they wait for their gates.
            match &mut container.phase {
                Phase::Held(hold) => {
                    hold.counts_from(self.now);
                    state.was_started = Started::Before;
                }
                Phase::Running { .. } if container.stop.term_at.is_none() => {
                    let id = container.id.clone();
                    self.program_started(&id);
                }
                _ => {}
            }
        }
        self.record_of_pod(Milestone::StopEnded);
        self.act(Action::Note("pod stop is over".to_owned()));
    }

    /// T11: whether a caller's stop has only begun, and held containers are left whose stop may be on its way.
    fn held_may_be_stopped_yet(&self) -> bool {
        let begins = self.stop.as_ref().is_some_and(|stop| !stop.is_ours() && self.now < stop.others_until);
        begins
            && self.planned().any(|(state, container)| {
                matches!(container.phase, Phase::Held(_))
                    && container.program == Program::NeverRan
                    && state.asked.is_none()
            })
    }

    /// SIGKILLs that are due (T7, T8, U4).
    fn kill_timer(&mut self, id: &ContainerId) {
        let now = self.now;
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.stop.killed
            || !container.has_process()
            || container.stop.kill_at.is_none_or(|at| now < at)
        {
            return;
        }
        let intent = container.stop.intent;
        self.kill_now(id, Reach::All, SignalCause::Grace);
        // U4: it will still be restarted.
        if let Some(container) = self.containers.get_mut(id) {
            container.stop.intent = intent;
        }
    }

    /// Applies everything that is due, container by container.
    pub(crate) fn apply_container_timers(&mut self) {
        let ids: Vec<_> = self.containers.keys().cloned().collect();
        for id in ids {
            self.hook_timer(&id);
            self.takeover_timer(&id);
            self.lone_stop_timer(&id);
            self.kill_timer(&id);
            self.restart_timer(&id);
            self.startup_timers(&id);
        }
    }

    /// When a container next needs the clock.
    pub(crate) fn container_deadlines(&self, container: &Container) -> [Option<PodTime>; 7] {
        let kill = container.stop.kill_at.filter(|_| !container.stop.killed && container.has_process());
        let [hold, probe] = self.startup_deadlines(container);
        let (hook, takeover) = (container.hooks.deadline(), container.takeover_deadline());
        let lone_stop = self.lone_stop_deadline(container);
        [kill, self.restart_deadline(container), hold, probe, hook, takeover, lone_stop]
    }

    /// When the stop next needs the clock.
    pub(crate) fn stop_deadlines(&self) -> [Option<PodTime>; 3] {
        let budget = self.stop.as_ref().and_then(|stop| match stop.budget {
            Budget::Until { at, .. } | Budget::LastCall { kill_at: at } => Some(at),
            Budget::Callers | Budget::Spent => None,
        });
        let completes = self.stop.is_none() && self.is_complete() && self.something_is_left();
        let completion = if completes { self.completion_waits_until() } else { None };
        let others = self.stop.as_ref().map(|stop| stop.others_until);
        [budget, completion, others.filter(|_| self.held_may_be_stopped_yet())]
    }
}

impl Container {
    /// Whether something of it has still to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_alive()
            || matches!(self.phase, Phase::Ending { .. } | Phase::Draining { .. } | Phase::Starting { .. })
            || matches!(self.phase, Phase::Removing { before: Deletable::Created { early_exit: None }, .. })
            || (matches!(self.phase, Phase::Created | Phase::Recreating { .. })
                && self.stop.intent == Intent::End)
            || (self.part == Part::Passthrough && self.has_process())
    }
}
