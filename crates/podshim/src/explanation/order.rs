//! The order of a plan with what follows from other waits left out, and the arithmetic of a stop's bounds. Who needs whom
//! is not decided here: [`pod_spec::Order`] and [`pod_spec::needs`] are what the shim asks too.

use std::time::Duration;

use pod_spec::{Condition, Link, Member, Plan, Role, needs};

use super::{ConditionWord, FLOOR, PlannedWord, Wait};

/// A container as the order knows it.
pub(super) struct Entry {
    pub(super) member: Member,
    pub(super) planned: PlannedWord,
    /// Whether anything asks for its gate.
    pub(super) is_awaited: bool,
    /// Whether its kubelet runs a preStop hook before it stops it.
    pub(super) has_kubelet_hook: bool,
    /// What it needs.
    links: Vec<Link>,
}

/// All containers of a plan, the mains of `*=main` behind those it names.
pub(super) struct Order {
    entries: Vec<Entry>,
}

/// When a container gets its stop signal and is gone, at the latest.
#[derive(Clone, Copy)]
pub(super) struct StopTimes {
    pub(super) signal: Duration,
    pub(super) gone: Duration,
}

impl Entry {
    /// A main that the plan does not name; what it needs is the order's to say.
    pub(super) fn other_main(name: &str) -> Self {
        let member = Member::new(name, Role::Main, usize::MAX);
        Self {
            member,
            planned: PlannedWord::Other,
            is_awaited: false,
            has_kubelet_hook: false,
            links: Vec::new(),
        }
    }
}

impl Order {
    /// Of a plan and the mains it does not name.
    pub(super) fn of(plan: &Plan, others: Vec<Entry>, kubelet_hooks: &[String]) -> Self {
        let order = pod_spec::Order::of(plan);
        let named = plan.members.iter().enumerate().map(|(index, member)| Entry {
            member: member.clone(),
            planned: PlannedWord::Named,
            is_awaited: order.is_awaited(index),
            has_kubelet_hook: false,
            links: order.links(index).to_vec(),
        });
        let links = order.links_of_unnamed_main();
        let others = others.into_iter().map(|entry| Entry { links: links.to_vec(), ..entry });
        let entries = named.chain(others).map(|entry| {
            // A sidecar's hook runs at T0 (H5), beside what it waits for.
            let has_kubelet_hook =
                entry.member.role == Role::Main && kubelet_hooks.contains(&entry.member.name);
            Entry { has_kubelet_hook, ..entry }
        });
        Self { entries: entries.collect() }
    }

    pub(super) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// V1: whose standby it is at first.
    pub(super) fn standby_of(&self, index: usize) -> Option<usize> {
        let member = &self.entries[index].member;
        member.pair.filter(|_| member.is_second_of_pair(index))
    }

    /// In which step of the start each begins, counted from 1.
    pub(super) fn start_steps(&self) -> Vec<usize> {
        self.steps(|index| self.waits_of(index).map(|(earlier, _)| earlier).collect())
    }

    /// What must be said: whatever another wait waits for itself, in the same way, goes without saying.
    pub(super) fn waits(&self, index: usize) -> Vec<Wait> {
        let implied = |wait: &(usize, Condition)| {
            self.waits_of(index)
                .any(|(other, _)| other != wait.0 && self.waits_of(other).any(|its| its == *wait))
        };
        // V2: of a pair the active one is waited for.
        let said = self.waits_of(index).filter(|wait| !implied(wait) && self.standby_of(wait.0).is_none());
        said.map(|(earlier, until)| Wait {
            container: self.name(earlier),
            until: match until {
                Condition::Started => ConditionWord::Started,
                Condition::Ready => ConditionWord::Ready,
                Condition::Done => ConditionWord::Done,
            },
        })
        .collect()
    }

    /// In which step of a stop each has its turn, counted from 1.
    pub(super) fn stop_steps(&self) -> Vec<usize> {
        self.steps(|index| self.gone_before(index).collect())
    }

    /// Each one's place behind all that it waits for. A step is worked out once: of a list of 64 each waits for all
    /// before it.
    fn steps(&self, waits: impl Fn(usize) -> Vec<usize>) -> Vec<usize> {
        fn step(index: usize, waits: &impl Fn(usize) -> Vec<usize>, steps: &mut [usize]) -> usize {
            if steps[index] == 0 {
                let last = waits(index).into_iter().map(|earlier| step(earlier, waits, steps)).max();
                steps[index] = 1 + last.unwrap_or(0);
            }
            steps[index]
        }
        let mut steps = vec![0; self.entries.len()];
        for index in 0..self.entries.len() {
            step(index, &waits, &mut steps);
        }
        steps
    }

    pub(super) fn stops_after(&self, index: usize) -> Vec<String> {
        if !self.stops(index) {
            return Vec::new();
        }
        let implied =
            |one: usize| self.gone_before(index).any(|other| self.gone_before(other).any(|its| its == one));
        self.gone_before(index).filter(|one| !implied(*one)).map(|one| self.name(one)).collect()
    }

    /// T5, T6, T8: the latest moments, if everything uses all of its time.
    pub(super) fn stop(&self, budget: Duration) -> Vec<StopTimes> {
        let mut times = vec![None; self.entries.len()];
        (0..self.entries.len()).map(|index| self.stop_of(index, budget, &mut times)).collect()
    }

    fn stop_of(&self, index: usize, budget: Duration, times: &mut Vec<Option<StopTimes>>) -> StopTimes {
        if let Some(known) = times[index] {
            return known;
        }
        let earlier: Vec<usize> = self.gone_before(index).collect();
        let gone = earlier.into_iter().map(|other| self.stop_of(other, budget, times).gone);
        let turn = gone.max().unwrap_or(Duration::ZERO).min(budget);
        let member = &self.entries[index].member;
        let has_hooks = member.pre_stop.is_some() || member.on_terminate.is_some();
        // Hooks run before the signal, within the container's own grace, and leave it the floor of that (F9).
        let end = budget + FLOOR;
        let (signal, gone) = match (member.grace, has_hooks) {
            // The kubelet's signal comes after its hook, which may use up the whole grace period (F9).
            _ if self.entries[index].has_kubelet_hook => (budget, end),
            (Some(grace), true) => (turn + grace, turn + grace + grace.min(FLOOR)),
            (Some(grace), false) => (turn, turn + grace),
            (None, true) => (budget, end),
            (None, false) => (turn, end),
        };
        let found = StopTimes { signal: signal.min(budget), gone: gone.min(end) };
        times[index] = Some(found);
        found
    }

    fn waits_of(&self, index: usize) -> impl Iterator<Item = (usize, Condition)> {
        self.entries[index].links.iter().filter_map(|link| Some((link.earlier, link.until?)))
    }

    /// T1: whose end a sidecar's turn waits for. Mains and inits wait for nothing (T2, I6).
    fn gone_before(&self, index: usize) -> impl Iterator<Item = usize> {
        let sidecar = self.entries[index].member.role == Role::Sidecar;
        (0..self.entries.len()).filter(move |other| {
            sidecar && *other != index && self.stops(*other) && needs(&self.entries[*other].links, index)
        })
    }

    /// Who is there when a stop begins: inits have ended by then, or end at once (I6), and so does a standby (T4).
    fn stops(&self, index: usize) -> bool {
        self.entries[index].member.role != Role::Init && self.standby_of(index).is_none()
    }

    fn name(&self, index: usize) -> String {
        self.entries[index].member.name.clone()
    }
}
