//! The order of a plan, without the waits that follow from other waits, and the arithmetic of a stop's bounds. It does
//! not decide which container needs which: [`pod_spec::Order`] and [`pod_spec::needs`] do, for the shim too.

use std::time::Duration;

use pod_spec::{Condition, Link, Member, Plan, Role, Shares, needs, shrunk};

use super::report::{ConditionWord, PlannedWord, Wait};

/// The time that every container still gets when the budget is spent (T6).
pub(super) const MIN_KILL_DELAY: Duration = Duration::from_secs(2);

/// A container in the order.
pub(super) struct Entry {
    pub(super) member: Member,
    pub(super) planned: PlannedWord,
    /// Whether podshim checks its gate (U1, U2).
    pub(super) is_awaited: bool,
    /// Whether its kubelet runs a preStop hook before it stops it.
    pub(super) has_kubelet_hook: bool,
    /// How many steps of a stop follow it (T19).
    steps_after: u32,
    /// The containers that it needs.
    links: Vec<Link>,
}

/// All containers of a plan: those that it names, then the mains of `*=main`.
pub(super) struct Order {
    entries: Vec<Entry>,
}

/// The latest times at which a container gets its stop signal and is gone, from the start of the stop.
#[derive(Clone, Copy)]
pub(super) struct StopTimes {
    pub(super) signal: Duration,
    pub(super) gone: Duration,
}

/// The time of a stop, and how it is shared.
pub(super) struct StopTime {
    pub(super) budget: Duration,
    /// The budget that the pod's figures are meant for (T20).
    pub(super) usual: Duration,
    pub(super) shares: Shares,
}

impl Entry {
    /// A main that the plan does not name; [`Order::of`] fills in what it needs.
    pub(super) fn other_main(name: &str) -> Self {
        let member = Member::new(name, Role::Main, usize::MAX);
        Self {
            member,
            planned: PlannedWord::Other,
            is_awaited: false,
            has_kubelet_hook: false,
            steps_after: 0,
            links: Vec::new(),
        }
    }
}

impl Order {
    /// The order of a plan and of the mains that it does not name.
    pub(super) fn of(plan: &Plan, others: Vec<Entry>, kubelet_hooks: &[String]) -> Self {
        let order = pod_spec::Order::of(plan);
        let named = plan.members.iter().enumerate().map(|(index, member)| Entry {
            member: member.clone(),
            planned: PlannedWord::Named,
            is_awaited: order.is_awaited(index),
            has_kubelet_hook: false,
            steps_after: order.steps_after(index),
            links: order.links(index).to_vec(),
        });
        let links = order.links_of_unnamed_main();
        let others = others.into_iter().map(|entry| Entry {
            links: links.to_vec(),
            steps_after: order.steps(),
            ..entry
        });
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

    /// V1: the partner whose standby a container is at first.
    pub(super) fn standby_of(&self, index: usize) -> Option<usize> {
        let member = &self.entries[index].member;
        member.pair.filter(|_| member.is_second_of_pair(index))
    }

    /// The step of the start in which each container starts, counted from 1.
    pub(super) fn start_steps(&self) -> Vec<usize> {
        self.steps(|index| self.waits_of(index).map(|(earlier, _)| earlier).collect())
    }

    /// The waits worth showing: without those that another awaited container has too, for the same condition.
    pub(super) fn waits(&self, index: usize) -> Vec<Wait> {
        let implied = |wait: &(usize, Condition)| {
            self.waits_of(index)
                .any(|(other, _)| other != wait.0 && self.waits_of(other).any(|its| its == *wait))
        };
        // V2: other containers wait for the active member of a pair, not for its standby.
        let shown = self.waits_of(index).filter(|wait| !implied(wait) && self.standby_of(wait.0).is_none());
        shown
            .map(|(earlier, until)| Wait {
                container: self.name(earlier),
                until: match until {
                    Condition::Started => ConditionWord::Started,
                    Condition::Ready => ConditionWord::Ready,
                    Condition::Done => ConditionWord::Done,
                },
            })
            .collect()
    }

    /// The step of a stop in which each container has its turn, counted from 1.
    pub(super) fn stop_steps(&self) -> Vec<usize> {
        self.steps(|index| self.gone_before(index).collect())
    }

    /// The step of each container, one after the last step that it waits for. Each step is computed only once, because
    /// in a list of 64 every container waits for all before it.
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

    /// T5, T6, T8, T19, T20: the latest times, if every container uses all of its time.
    pub(super) fn stop(&self, time: &StopTime) -> Vec<StopTimes> {
        let mut times = vec![None; self.entries.len()];
        (0..self.entries.len()).map(|index| self.stop_of(index, time, &mut times)).collect()
    }

    fn stop_of(&self, index: usize, time: &StopTime, times: &mut Vec<Option<StopTimes>>) -> StopTimes {
        if let Some(known) = times[index] {
            return known;
        }
        let earlier: Vec<usize> = self.gone_before(index).collect();
        let gone = earlier.into_iter().map(|other| self.stop_of(other, time, times).gone);
        let turn = gone.max().unwrap_or(Duration::ZERO).min(time.budget);
        let Entry { member, steps_after, .. } = &self.entries[index];
        let has_hooks = member.pre_stop.is_some() || member.on_terminate.is_some();
        // Hooks run before the signal, within the container's own grace. After the signal the container has the floor,
        // or its grace if that is shorter (H3, T6).
        let (last_signal, end) = match time.shares.last_signals(*steps_after) {
            Some(signals) => (signals.stop, signals.kill),
            None => (time.budget, time.budget + MIN_KILL_DELAY),
        };
        let grace = member.grace.map(|grace| shrunk(grace, time.budget, time.usual));
        let (signal, gone) = match (grace, has_hooks) {
            // The kubelet's signal comes after its hook, which may use up the whole grace period (F9).
            _ if self.entries[index].has_kubelet_hook => (last_signal, end),
            (Some(grace), true) => (turn + grace, turn + grace + grace.min(MIN_KILL_DELAY)),
            (Some(grace), false) => (turn, turn + grace),
            (None, true) => (last_signal, end),
            (None, false) => (turn, end),
        };
        let found = StopTimes { signal: signal.min(last_signal), gone: gone.min(end) };
        times[index] = Some(found);
        found
    }

    fn waits_of(&self, index: usize) -> impl Iterator<Item = (usize, Condition)> {
        self.entries[index].links.iter().filter_map(|link| Some((link.earlier, link.until?)))
    }

    /// T1: the containers that must be gone before a sidecar's turn. Mains and inits wait for no container (T2, I6).
    fn gone_before(&self, index: usize) -> impl Iterator<Item = usize> {
        let sidecar = self.entries[index].member.role == Role::Sidecar;
        (0..self.entries.len()).filter(move |other| {
            sidecar && *other != index && self.stops(*other) && needs(&self.entries[*other].links, index)
        })
    }

    /// Whether a container has a turn in a stop. Inits have ended by then, or end at once (I6), and so does a standby
    /// (T4).
    fn stops(&self, index: usize) -> bool {
        self.entries[index].member.role != Role::Init && self.standby_of(index).is_none()
    }

    fn name(&self, index: usize) -> String {
        self.entries[index].member.name.clone()
    }
}
