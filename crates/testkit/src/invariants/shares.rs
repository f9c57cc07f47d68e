//! How the time of a stop is shared out (T19, T20): a reading of the table of docs/rules.md of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_lifecycle::{ContainerId, PodTime};
use pod_spec::{Plan, Role};

use super::picture::Container;
use super::stop::{Cause, Steps};
use super::{Invariants, Verdict};

/// What a step has by default, and what a grace keeps.
const STEP: Duration = Duration::from_secs(2);

/// A third of a second is no whole number of nanoseconds.
const ROUNDING: Duration = Duration::from_micros(1);

/// When what others stop after has its part of the time behind it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// From then on it may have no stop signal of its turn, and must have one.
    pub(super) signal: PodTime,
    pub(super) kill: PodTime,
}

impl Invariants {
    /// Counted once, as the plan does not change.
    pub(super) fn count_steps(plan: &Option<Plan>) -> Steps {
        let Some(plan) = plan else { return Steps::default() };
        let reading = Self::without_steps(Some(plan.clone()));
        let names =
            |role: Role| plan.members.iter().filter(move |it| it.role == role).map(|it| it.name.as_str());
        let mut after = BTreeMap::new();
        for name in names(Role::Sidecar).chain(names(Role::Init)) {
            reading.steps_after(name, &mut after);
        }
        let mains = names(Role::Sidecar).map(|name| after[name] + 1).max().unwrap_or(0);
        Steps { after, mains }
    }

    fn steps_after(&self, name: &str, known: &mut BTreeMap<String, u32>) -> u32 {
        if let Some(steps) = known.get(name) {
            return *steps;
        }
        let members = self.plan.iter().flat_map(|plan| &plan.members);
        let outlives: Vec<_> = members
            .filter(|it| it.role == Role::Sidecar && it.name != name)
            .filter(|it| {
                let pair = [Some(&*it.name), self.partner(&it.name)];
                pair.into_iter().flatten().any(|other| self.waits_through(name, other))
            })
            .map(|it| it.name.clone())
            .collect();
        let steps = outlives.iter().map(|other| self.steps_after(other, known) + 1).max().unwrap_or(0);
        known.insert(name.to_owned(), steps);
        steps
    }

    /// T19: when a caller that stops the pod asked first for the end of what still lives, of those containers. What it asked for longer
    /// ago than its figure was another stop.
    pub(super) fn asked_since(&self, counts: impl Fn(&Container) -> bool) -> PodTime {
        let figure = self.kubelet_grace().unwrap_or_default();
        let living = self.planned().filter(|(id, it)| self.is_unfinished(id) && counts(it));
        let asked = living.filter_map(|(_, container)| container.asked_at);
        asked.filter(|at| *at + figure > self.now).min().unwrap_or(self.now)
    }

    /// The time that is shared out: since when, and how long. Whichever ends first, the budget or the kubelet's figure, which counts from
    /// then.
    fn time_of_stop(&self, asked_since: PodTime) -> Option<(PodTime, Duration)> {
        let stop = self.stop.filter(|stop| !stop.had_zero_grace)?;
        let budget = stop.budget.map(|budget| (budget.since, budget.ends.since(budget.since)));
        let figure = stop.figure.filter(|_| stop.cause == Cause::Caller);
        let kubelets = figure.map(|figure| (asked_since, figure));
        [budget, kubelets].into_iter().flatten().min_by_key(|(since, length)| *since + *length)
    }

    /// T20: a container's own grace in the stop under way.
    pub(super) fn own_grace(&self, name: &str) -> Option<Duration> {
        let grace = self.member(name)?.grace?;
        let since = self.stop.map_or(self.now, |stop| stop.asked_since);
        let Some((_, length)) = self.time_of_stop(since) else { return Some(grace) };
        let usual = self.stop.map_or(length, |stop| stop.usual);
        let scaled =
            if length < usual { grace.mul_f64(length.as_secs_f64() / usual.as_secs_f64()) } else { grace };
        Some(scaled.max(grace.min(STEP)))
    }

    /// T20, T9: what has its signal when a stop begins or gets less time has no more than its grace is then, whatever follows.
    pub(super) fn shorten_own_times(&mut self) {
        let has_signal = |it: &Container| it.runs_program() && it.signalled_at.is_some();
        let own: Vec<_> = self
            .containers
            .iter()
            .filter(|(_, it)| has_signal(it))
            .filter_map(|(id, it)| Some((id.clone(), self.own_grace(&it.name)?)))
            .collect();
        for (id, grace) in own {
            self.containers.entry(id).and_modify(|it| it.own_time = it.own_time.min(grace));
        }
    }

    /// T19: its part of the time, if steps follow it. Whether something of them lives is not asked.
    fn part(&self, container: &Container, asked_since: PodTime) -> Option<Part> {
        // From its end on T6 counts.
        let is_over = self.stop?.budget.is_some_and(|budget| budget.ends <= self.now);
        let (since, length) = self.time_of_stop(asked_since).filter(|_| !is_over)?;
        let after = match container.role? {
            Role::Main => self.steps.mains,
            _ => *self.steps.after.get(&container.name)?,
        };
        let (steps, total) = (f64::from(self.steps.mains), length.as_secs_f64());
        let usual = self.stop?.usual.as_secs_f64();
        let reserve = match self.plan.as_ref()?.settings.reserve {
            None => (2.0 * steps).min(total / 3.0),
            Some(own) => {
                let shrinks = if total < usual { total / usual } else { 1.0 };
                (own.as_secs_f64() * shrinks).min(total * steps / (steps + 1.0))
            }
        };
        if after == 0 || reserve <= 0.0 {
            return None;
        }
        let step = reserve / steps;
        let kill = total - step * f64::from(after);
        let own = if after == self.steps.mains { kill } else { step };
        let at = |seconds: f64| since + Duration::from_secs_f64(seconds.max(0.0));
        Some(Part { signal: at(kill - (own / 2.0).min(STEP.as_secs_f64())), kill: at(kill) })
    }

    fn earliest_part(&self, container: &Container) -> Option<Part> {
        self.part(container, self.stop?.may_be_asked_since)
    }

    /// Whether its part of the time may be so far over that its hooks and its turn count no more.
    pub(super) fn may_have_last_signal(&self, container: &Container) -> bool {
        self.earliest_part(container).is_some_and(|part| part.signal <= self.now + ROUNDING)
    }

    /// Whether its part may be over.
    pub(super) fn may_have_last_kill(&self, container: &Container) -> bool {
        self.earliest_part(container).is_some_and(|part| part.kill <= self.now + ROUNDING)
    }

    /// T19: what is followed by something that lives ends by then, so that what follows has its own time.
    pub(super) fn check_part(&self, id: &ContainerId, container: &Container) -> Verdict {
        let since = self.stop.map_or(self.now, |stop| stop.asked_since);
        let Some(part) = self.part(container, since).filter(|_| container.begun) else { return Ok(()) };
        let lives_after = |other: &Container| {
            let lives = other.role == Some(Role::Sidecar) && other.runs_program() && other.begun;
            lives && self.needs(container, other)
        };
        if part.signal + ROUNDING > self.now || !self.containers.values().any(lives_after) {
            return Ok(());
        }
        if part.kill + ROUNDING <= self.now {
            return self.violated(format!("{id} lives beyond its part of the budget (T19)"));
        }
        match container.signalled_at {
            None => {
                self.violated(format!("{id} has no stop signal at the end of its part of the budget (T19)"))
            }
            Some(_) => Ok(()),
        }
    }

    /// T19, T10: what is being started when its part is over gets its signal once it runs, and ends in the stop. If it has ended before
    /// that, its start is given up when SIGKILL is due.
    pub(super) fn note_last_signals(&mut self) {
        let Some(since) = self.stop.map(|stop| stop.asked_since) else { return };
        let lives_after = |container: &Container| {
            let needed = |(id, it): (&ContainerId, &Container)| {
                it.role == Some(Role::Sidecar) && self.is_unfinished(id) && self.needs(container, it)
            };
            self.planned().any(needed)
        };
        let is_due = |it: &Container| {
            let has_process = it.runs_program();
            let at = |part: Part| if has_process { part.signal } else { part.kill };
            self.part(it, since).is_some_and(|part| at(part) <= self.now + ROUNDING)
        };
        let starting = self.containers.iter().filter(|(_, it)| it.is_starting && !it.has_last_signal);
        let due: Vec<_> =
            starting.filter(|(_, it)| is_due(it) && lives_after(it)).map(|(id, _)| id.clone()).collect();
        for id in due {
            self.containers.entry(id).and_modify(|container| container.has_last_signal = true);
        }
    }

    /// T2, T5, T8, T19: a main has its time, unless its caller ends it.
    pub(super) fn may_kill_main(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let Some(stop) = self.stop.filter(|_| self.is_read && container.begun && !container.killed) else {
            return Ok(());
        };
        let is_over = stop.had_zero_grace || stop.budget.is_some_and(|budget| budget.kills <= self.now);
        // A signal that came while it was being started counts from then (T8).
        let was_asked = container.asked_at.map_or(stop.since, |at| at.min(stop.since));
        let came_early = container.signalled_at == Some(container.begun_at);
        let begun = container
            .ends_since
            .or(container.signalled_at)
            .map(|at| if came_early { was_asked.min(at) } else { at });
        let own = self.own_grace(&container.name).map(|own| own.min(container.own_time));
        let has_had_its_own = begun.zip(own).is_some_and(|(begun, own)| begun + own <= self.now + ROUNDING);
        let is_asked = container.caller_killed || self.is_asked_to_kill(id);
        if is_over || has_had_its_own || is_asked || self.may_have_last_kill(container) {
            return Ok(());
        }
        self.violated(format!("main {id} gets SIGKILL before its time is over (T5, T8, T19)"))
    }
}
