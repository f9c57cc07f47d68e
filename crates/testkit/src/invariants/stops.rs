//! The stops of the pod, as docs/rules.md has them: when one begins and why, what it covers, when it is over (T12, T14, K11,
//! J1, I2, R9), and how long it may take (T5).
//!
//! An independent reading of the rules: it sees what callers ask for, what programs do and what callers are shown, and never
//! asks the core whether it is stopping. Where a run leaves what it reads (`leaves_the_reading`) it judges nothing any more
//! that depends on a stop.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_lifecycle::{ContainerId, KubeletType, MIN_KILL_DELAY, Operation, PodTime, TaskKind};
use pod_spec::{CodeSet, Fatal, RestartMode, RestartPolicy, Role, Signal, ZeroGrace};

use super::Invariants;
use super::picture::{Container, Process};
use super::stop::{Asked, Budget, Cause, End, Making, Stop, ZERO_GRACE};

impl Invariants {
    /// Whether a stop of the pod is under way; `false` too where that is not certain.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_read && self.stop.is_some()
    }

    /// From now on nothing is judged that depends on a stop.
    pub(super) fn leaves_the_reading(&mut self) {
        self.is_read = false;
    }

    /// The newest container of a member, unless it is deleted.
    pub(super) fn newest(&self, name: &str) -> Option<(&ContainerId, &Container)> {
        let id = self.newest.get(name)?;
        self.containers.get_key_value(id)
    }

    /// The newest containers of all members.
    pub(super) fn planned(&self) -> impl Iterator<Item = (&ContainerId, &Container)> {
        self.newest.values().filter_map(|id| self.containers.get_key_value(id))
    }

    /// Whether nothing of a member is left.
    pub(super) fn is_gone(&self, name: &str) -> bool {
        self.newest(name).is_none_or(|(_, container)| container.shown.is_some())
    }

    /// I5: whether it is a completed init whose exit is not shown, and of which nothing is left.
    pub(super) fn is_hidden(&self, id: &ContainerId) -> bool {
        let container = &self.containers[id];
        container.role == Some(Role::Init)
            && container.shown.is_none()
            && container.process == Process::None
            && container.hook.is_none()
            && !container.execs.values().any(|exec| exec.started && exec.exited.is_none())
            && !self.is_being_cleared(id)
            && self.members.get(&container.name).is_some_and(|member| member.completed)
    }

    /// T4: whether its program has been started and its end is not final.
    pub(super) fn is_unfinished(&self, id: &ContainerId) -> bool {
        let container = &self.containers[id];
        let runs = matches!(container.process, Process::Program { .. }) || container.is_starting;
        container.role.is_some()
            && container.shown.is_none()
            && (runs || (container.ran && !container.is_dying && !self.is_hidden(id)))
    }

    /// Whether a caller that stops the pod would stop it too: started, and not ended for callers.
    pub(super) fn lives(&self, id: &ContainerId) -> bool {
        let container = &self.containers[id];
        let is_started = container.started || container.is_starting;
        container.role.is_some() && container.shown.is_none() && is_started && !self.is_hidden(id)
    }

    pub(super) fn is_asked(&self, name: &str) -> bool {
        self.members.get(name).is_some_and(|member| member.asked.is_some())
    }

    fn has_unasked_main(&self) -> bool {
        self.planned().any(|(id, container)| {
            container.role == Some(Role::Main) && self.lives(id) && !self.is_asked(&container.name)
        })
    }

    /// T12: whether a member's stop is evidence of a stop of the pod.
    fn is_evidence(&self, name: &str) -> bool {
        let Some(member) = self.members.get(name).filter(|member| member.asked.is_some()) else {
            return false;
        };
        let Some(end) = member.end.filter(|_| self.is_gone(name)) else { return true };
        self.now <= end.at + self.defaults().lone_stop_window || !self.has_unasked_main()
    }

    /// K11: whether a stop signal to a planned container of this round is evidence.
    pub(super) fn is_announced(&self) -> bool {
        self.members
            .iter()
            .any(|(name, member)| member.asked.is_some_and(|asked| asked.by_signal) && self.is_evidence(name))
    }

    /// T12a.
    fn callers_stop(&self) -> bool {
        let evident: Vec<_> = self.members.keys().filter(|name| self.is_evidence(name)).collect();
        let has = |role| evident.iter().any(|name| self.role_of_member(name) == Some(role));
        let mut living = self.planned().filter(|(id, _)| self.lives(id)).peekable();
        let all = living.peek().is_some() && living.all(|(_, container)| self.is_asked(&container.name));
        self.is_announced() && ((all && evident.len() > 1) || (has(Role::Main) && has(Role::Sidecar)))
    }

    pub(super) fn role_of_member(&self, name: &str) -> Option<Role> {
        // A name that the plan does not have is a main by `*=main`.
        self.member(name).map(|member| member.role).or(self.members.get(name).map(|_| Role::Main))
    }

    /// J1, J6, J11.
    pub(super) fn is_complete(&self) -> bool {
        let Some(policy) = self.policy().filter(|policy| *policy != RestartPolicy::Always) else {
            return false;
        };
        let mut mains = self.members.iter().filter(|(name, _)| self.role_of_member(name) == Some(Role::Main));
        let are_done = mains.all(|(name, member)| {
            let end = member.end.filter(|end| end.counts_from <= self.now);
            // A restart policy of its own, and an exit that it does not repeat.
            let is_last = |code| match self.member(name).and_then(|member| member.restart) {
                Some(restart) => match restart.mode {
                    RestartMode::Never => true,
                    RestartMode::OnFailure => !restart.codes.contains(code),
                    RestartMode::Always | RestartMode::Visible => false,
                },
                None => false,
            };
            end.is_some_and(|end| policy == RestartPolicy::Never || end.code == 0 || is_last(end.code))
        });
        let runs =
            |(id, it): (&ContainerId, &Container)| it.role == Some(Role::Main) && self.is_unfinished(id);
        are_done && !self.planned().any(runs)
    }

    /// J11: what is recreated may be the first of another round, for `replace-wait`.
    fn completion_waits(&self) -> bool {
        let mut mains = self.members.iter().filter(|(name, _)| self.role_of_member(name) == Some(Role::Main));
        let is_of_this_round =
            mains.any(|(_, member)| member.end.is_some_and(|end| end.round == self.rounds));
        !is_of_this_round && self.another_until.is_some_and(|until| self.now < until)
    }

    fn something_is_left(&self) -> bool {
        self.planned().any(|(id, container)| {
            // What the stop itself ends at this moment was left.
            let is_dying = container.is_dying && container.dying_in != self.event;
            container.shown.is_none() && container.started && !is_dying || self.is_unfinished(id)
        })
    }

    /// J9: under Never a main that has ended without what a container waits for is not run again.
    pub(super) fn waits_for_lost_main(&self, container: &Container) -> bool {
        self.policy() == Some(RestartPolicy::Never)
            && self.waits(&container.name).iter().any(|(name, condition)| {
                self.role_of_member(name) == Some(Role::Main)
                    && self.members.get(name).is_some_and(|member| member.end.is_some())
                    && !self.lets(name, *condition)
            })
    }

    /// T1, T4: whether nothing that needs a sidecar is left.
    pub(super) fn turn_has_come(&self, sidecar: &Container) -> bool {
        !self.planned().any(|(id, other)| self.is_unfinished(id) && self.needs(other, sidecar))
    }

    /// The same, where it is not certain: one of a pair that waits for a process may be the standby, which delays no turn (T4,
    /// V4). Which one stands by is not read.
    pub(super) fn may_have_its_turn(&self, sidecar: &Container) -> bool {
        !self.planned().any(|(id, other)| {
            let may_stand_by = self.partner(&other.name).is_some() && !other.runs_program();
            self.is_unfinished(id) && !may_stand_by && self.needs(other, sidecar)
        })
    }

    /// T14: whether something that the stop covers has still to end.
    fn covers_something(&self, stop: Stop) -> bool {
        self.planned().any(|(id, container)| {
            // T6: at the end of its budget a stop ends whatever is left.
            let is_spent = stop.budget.is_some_and(|it| self.now >= it.ends);
            let has_turn = container.role == Some(Role::Sidecar) && self.turn_has_come(container) || is_spent;
            // T11: what is held ends in it, also while its next process is being made (R7).
            // What was created in it is held until it is over, unless the pod has failed (I2).
            let ends_unrun = stop.is_own()
                && container.started
                && !container.ran
                && (!container.is_latecomer || self.failed.is_some())
                && self.is_being_recreated(id);
            // What a caller has stopped ends, though the stop that it was part of was taken back (H1).
            let was_asked = container.asked_ever && container.role != Some(Role::Sidecar);
            let covered = ends_unrun
                || self.is_asked(&container.name)
                || was_asked
                || (stop.is_own() && container.role != Some(Role::Sidecar))
                || container.is_ended_for_good()
                || container.has_last_signal
                || has_turn;
            let is_left =
                container.is_dying || container.is_draining() || self.is_being_cleared(id) || ends_unrun;
            let is_ending = self.is_unfinished(id) || is_left && container.shown.is_none();
            covered && is_ending
        })
    }

    /// T14: a caller's stop is not over while it is in the making and something lives whose stop may be on its way.
    fn others_may_follow(&self, stop: Stop) -> bool {
        let is_open = self.making.as_ref().is_some_and(|making| self.now < making.until);
        stop.cause == Cause::Caller
            && is_open
            && self.planned().any(|(id, it)| self.lives(id) && !self.is_asked(&it.name))
    }

    /// T5, K11, K13: the time of a stop.
    fn limit_of(&self, cause: Cause) -> Option<PodTime> {
        let own = self.plan.as_ref().and_then(|plan| plan.settings.grace);
        let length = match cause {
            Cause::Caller => own?,
            Cause::Sandbox => own.unwrap_or(MIN_KILL_DELAY).min(MIN_KILL_DELAY),
            Cause::ZeroGrace => own.unwrap_or(ZERO_GRACE).min(ZERO_GRACE),
            Cause::Requested | Cause::Completed | Cause::Failed | Cause::Fatal => self.pod_grace(),
        };
        Some(self.now + length)
    }

    pub(super) fn begin_stop(&mut self, cause: Cause) {
        self.begin_stop_within(cause, self.limit_of(cause));
    }

    /// A stop begins, or another one takes it over (T12); the time only gets shorter (T9).
    pub(super) fn begin_stop_within(&mut self, cause: Cause, limit: Option<PodTime>) {
        let floor = match cause {
            Cause::Sandbox | Cause::ZeroGrace => Duration::ZERO,
            _ => MIN_KILL_DELAY,
        };
        let now = self.now;
        let budget = limit.map(|ends| Budget { since: now, ends, kills: ends + floor });
        let shorter = |old: Option<Budget>| match (old, budget) {
            (Some(old), Some(new)) => {
                let since = if new.ends < old.ends { now } else { old.since };
                Some(Budget { since, ends: old.ends.min(new.ends), kills: old.kills.min(new.kills) })
            }
            (old, new) => old.or(new),
        };
        if self.stop.is_none() && self.is_read {
            // H8: what was asked before the stop is no answer after it. Where the reading was left (R14) there may be none.
            self.operations.retain(|_, (_, operation, _)| !matches!(operation, Operation::Check(_)));
            self.note_replaced_in_start();
        }
        self.stop = match self.stop {
            None => {
                let had_zero_grace = cause == Cause::ZeroGrace;
                let may_stand_by = |it: &Container| self.partner(&it.name).is_some() && !it.runs_program();
                let asked_since = self.asked_since(|it| !may_stand_by(it));
                let may_be_asked_since = self.asked_since(|_| true);
                let (figure, usual) = (self.kubelet_grace(), self.pod_grace());
                Some(Stop {
                    cause,
                    since: now,
                    budget,
                    figure,
                    usual,
                    asked_since,
                    may_be_asked_since,
                    had_zero_grace,
                })
            }
            Some(old) if old.cause == Cause::Sandbox && cause == Cause::Requested => {
                Some(Stop { budget: shorter(old.budget), ..old })
            }
            Some(old) if old.cause == Cause::Sandbox && cause != Cause::Sandbox => Some(old),
            Some(old) if cause == Cause::Sandbox || cause == Cause::Requested => {
                let since = if old.cause == cause { old.since } else { self.now };
                Some(Stop { cause, since, budget: shorter(old.budget), ..old })
            }
            old => old,
        };
        self.was_stopped = true;
        self.shorten_own_times();
    }

    /// T12a at a request that will be served: a container that ends at once lives until then.
    pub(super) fn asks_for_end(&mut self, id: &ContainerId, signal: Signal) {
        let container = &self.containers[id];
        let name = container.name.clone();
        // K11: also what waits for its restart, which callers see running.
        let runs = self.is_unfinished(id);
        let orders = self.plan.as_ref().is_some_and(|plan| plan.settings.zero_grace == ZeroGrace::Order);
        let announced = self.is_announced();
        let unannounced = self.stop.is_none() && !announced;
        let may_stand_by = self.partner(&name).is_some() && !container.runs_program();
        let (role, is_kill) = (container.role, signal == Signal::KILL);
        let is_hidden = self.is_hidden(id) && container.started;
        // T18: it may complete before the signal reaches it.
        let runs_for_its_caller = role == Some(Role::Init)
            && self.policy() == Some(RestartPolicy::Always)
            && container.kubelet_type != Some(KubeletType::Init)
            && (container.started || container.is_starting);
        if let Some(member) = self.members.get_mut(&name) {
            member.saw_running = is_hidden || runs_for_its_caller;
            let by_signal = signal != Signal::KILL || member.asked.is_some_and(|asked| asked.by_signal);
            let at = member.asked.map_or(self.now, |asked| asked.at);
            let is_first = member.asked.is_none();
            member.asked = Some(Asked { by_signal, at });
            if is_first {
                let until = self.now + self.defaults().lone_stop_window;
                let making = self.making.get_or_insert(Making { asked: BTreeSet::new(), until });
                making.asked.insert(name.clone());
                making.until = until;
            }
        }
        let now = self.now;
        if let Some(container) = self.containers.get_mut(id) {
            container.asked_ever = true;
            container.asked_at.get_or_insert(now);
            let never_ran = container.started && !container.ran && container.process == Process::None;
            if never_ran && !container.is_starting && container.last_exit.is_some() {
                // It is between two processes, and ends instead of waiting on.
                (container.is_dying, container.dying_in) = (true, self.event);
            }
            // K11: `obey`.
            container.is_obeyed |= unannounced && !orders && is_kill && role == Some(Role::Sidecar);
        }
        if orders && is_kill && runs && may_stand_by {
            // V2: a standby has no past, and which one of a pair stands by is not read.
            return self.leaves_the_reading();
        }
        // K11, T9: a stop of podshim's own has no more time then. Its end is that of T6 once its budget is spent.
        let has_time = |stop: &Stop| stop.budget.is_none_or(|budget| self.now < budget.ends);
        let hurried = self.stop.filter(|stop| stop.is_own() && has_time(stop));
        if let Some(stop) = hurried.filter(|_| orders && is_kill && runs && !announced) {
            let at = self.now + ZERO_GRACE;
            let old = stop.budget.unwrap_or(Budget { since: now, ends: at, kills: at });
            let budget = Budget { since: old.since, ends: old.ends.min(at), kills: old.kills.min(at) };
            self.stop = Some(Stop { budget: Some(budget), had_zero_grace: true, ..stop });
        }
        if unannounced && orders && is_kill && runs {
            self.begin_stop(Cause::ZeroGrace);
        }
        if self.stop.is_none() && self.callers_stop() {
            self.begin_stop(Cause::Caller);
        }
    }

    /// The stops that begin by what has happened until now.
    pub(super) fn read_begin(&mut self) {
        if self.stop.is_none() && self.callers_stop() {
            self.begin_stop(Cause::Caller);
        }
        if self.stop.is_none() && self.is_complete() && self.something_is_left() && !self.completion_waits() {
            self.begin_stop(Cause::Completed);
        }
    }

    /// What follows from everything that has happened until now.
    pub(super) fn read_stops(&mut self) {
        // Each pass ends a stop or begins one; more mean that the rules contradict each other.
        for _ in 0..8 {
            self.read_begin();
            match self.stop.filter(|stop| !stop.is_for_good()) {
                Some(stop) if !self.covers_something(stop) && !self.others_may_follow(stop) => {
                    self.end_stop(stop);
                }
                None if self.stop.is_none() && self.begins_again_if_emptied() => {}
                _ => return,
            }
        }
        self.leaves_the_reading();
    }

    pub(super) fn end_stop(&mut self, stop: Stop) {
        (self.stop, self.making) = (None, None);
        if stop.cause == Cause::Completed {
            self.another_until = None;
        }
        self.forget_stopped_inits();
        self.round_ends();
    }

    /// T18: no stop, but nothing is left, and a caller ended a completed init that it saw running.
    fn begins_again_if_emptied(&mut self) -> bool {
        let any = self.forget_stopped_inits();
        if any {
            self.round_ends();
        }
        any
    }

    fn forget_stopped_inits(&mut self) -> bool {
        let names: Vec<_> = self.members.keys().cloned().collect();
        if !names.iter().all(|name| self.is_gone(name)) {
            return false;
        }
        let (mut any, always) = (false, self.policy() == Some(RestartPolicy::Always));
        if !always && self.members.values().any(|member| member.saw_running && member.asked.is_some()) {
            // R14 hides inits under any policy.
            self.leaves_the_reading();
            return false;
        }
        for member in self.members.values_mut() {
            if member.completed && member.asked.is_some() && member.saw_running && member.is_followed {
                member.completed = false;
                any = true;
            }
        }
        any
    }

    /// T12: a kubelet creates a planned container, so it does not stop the pod.
    pub(super) fn kubelet_creates(&mut self) {
        if let Some(stop) = self.stop.filter(|stop| stop.cause == Cause::Caller) {
            self.end_stop(stop);
        }
    }

    /// I2, R9: what the end of a container that callers see means for its pod.
    pub(super) fn may_fail_the_pod(&mut self, id: &ContainerId, real: u32) {
        let container = &self.containers[id];
        let real = container.counted(real);
        let (name, role) = (container.name.clone(), container.role);
        // I7: what SIGKILL ends has 137; with another code the program was faster.
        let outran_kill =
            container.killed && container.stop_signals == 0 && !container.caller_killed && real != 137;
        let (by_itself, ran) = (!container.is_ended_for_good() || outran_kill, container.ran);
        let Some(member) = self.member(&name).cloned() else { return };
        // T12, T15: its caller may have asked for its end in a stop that was taken back.
        if self.stop.is_some() || self.is_asked(&name) || self.containers[id].asked_ever {
            return;
        }
        let never = self.policy() == Some(RestartPolicy::Never);
        let repeats = !never
            && match member.restart.map(|restart| (restart.mode, restart.codes)) {
                None => true,
                Some((RestartMode::Never, _)) => false,
                Some((RestartMode::OnFailure, codes)) => codes.contains(real),
                Some((RestartMode::Always | RestartMode::Visible, _)) => true,
            };
        let is_fatal = match member.fatal {
            Some(Fatal::Exit) => true,
            Some(Fatal::Failure | Fatal::Restart { .. }) => real != 0,
            None => false,
        };
        if !ran && self.failed.is_none() && (is_fatal || role != Some(Role::Main)) {
            // U6: held for too long. What that means is for another reading.
            return self.leaves_the_reading();
        }
        if role == Some(Role::Init) {
            if real != 0 && by_itself && !repeats && self.failed.is_none() {
                self.failed = Some(name);
                self.begin_stop(Cause::Failed);
            }
        } else if is_fatal && ran {
            self.begin_stop(Cause::Fatal);
            if never {
                self.failed = Some(name);
            }
        }
    }

    /// R14: whether an exit restarts the pod, which is another reading's matter.
    pub(super) fn may_restart_the_pod(&self, container: &Container, code: u32) -> bool {
        let fatal = self.member(&container.name).and_then(|member| member.fatal);
        let is_asked = self.is_asked(&container.name) || container.asked_ever;
        let by_itself = !is_asked && !container.is_ended_for_good();
        matches!(fatal, Some(Fatal::Restart { .. })) && code != 0 && container.exited_in_program && by_itself
    }

    /// I8, R9: under Never podshim gives up what its caller stopped and does not recreate; and the end of what is fatal may
    /// count late (T15).
    pub(super) fn may_be_lost(&self) -> bool {
        let defaults = self.defaults();
        let never = self.policy() == Some(RestartPolicy::Never);
        self.stop.is_none()
            && self.members.iter().any(|(name, member)| {
                let unmet = match self.role_of_member(name) {
                    Some(Role::Init) => !member.completed,
                    Some(Role::Sidecar) => !member.open,
                    Some(Role::Main) | None => false,
                };
                let is_fatal = self.member(name).is_some_and(|member| member.fatal.is_some());
                let is_late = |end: End| end.counts_from > end.at && end.counts_from <= self.now;
                let wait =
                    if member.ended_with_pod { defaults.lone_stop_window } else { defaults.replace_wait };
                member.end.is_some_and(|end| {
                    never && unmet && end.at + wait <= self.now || is_fatal && is_late(end)
                })
            })
    }

    pub(super) fn is_sandbox(&self, id: &ContainerId) -> bool {
        self.containers.get(id).is_some_and(|container| container.kind == TaskKind::Sandbox)
    }

    /// R13: what an init's own key says of its failures.
    pub(super) fn codes_of(&self, name: &str) -> CodeSet {
        self.member(name).and_then(|member| member.restart).map_or(CodeSet::FAILURES, |restart| restart.codes)
    }
}
