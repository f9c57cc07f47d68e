//! What a plan makes of a pod, as data: what starts when, what it waits for, what stops when, and how long that can
//! take. Pure. Owns the arithmetic of the bounds and no wording beyond single words; the order itself is `pod-spec`'s.

pub mod show;

use std::time::Duration;

use pod_spec::{Condition, Gate, Member, Others, Plan, ProbeTiming, RestartMode, RestartPolicy, Role};
use serde::Serialize;

/// What everyone still gets when the budget is spent (T6).
const FLOOR: Duration = Duration::from_secs(2);
/// A kubelet's terminationGracePeriodSeconds where the pod does not say one.
const KUBELET_GRACE: Duration = Duration::from_secs(30);

/// All that is to be said of one pod. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// In the order of the plan.
    pub containers: Vec<Part>,
    /// What happens to containers that the plan does not name.
    pub others: OthersWord,
    /// Containers of the pod that the plan does not name.
    pub unnamed: Vec<String>,
    /// How long a container is held at most before it exits with 125 (U6); `None`: for ever.
    pub held_at_most_ms: Option<u64>,
    /// What ends the pod (J1).
    pub completion: Completion,
    /// How a stop is bounded.
    pub stop: StopBounds,
}

/// One container of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: RoleWord,
    /// Whose standby it is at first (V1): it does not start with the pod.
    pub standby_of: Option<String>,
    /// The step in which it starts, counted from 1; those of one step start together.
    pub start_step: usize,
    /// What it waits for; what these wait for themselves is left out.
    pub waits_for: Vec<Wait>,
    /// What opens its gate, as the annotation says it; `None` where nothing waits for a gate.
    pub gate: Option<String>,
    /// The longest from its program's start until the gate opens or the sidecar is restarted (U4); `None` where that
    /// is not bounded.
    pub gate_within_ms: Option<u64>,
    /// Who restarts it.
    pub restart: RestartWord,
    /// Which exit of it ends the pod (R9).
    pub fatal: Option<FatalWord>,
    /// The step of a stop in which it gets its stop signal, counted from 1.
    pub stop_step: usize,
    /// What must be gone first; what these wait for themselves is left out.
    pub stops_after: Vec<String>,
    /// The longest from the stop's begin to its stop signal.
    pub signal_within_ms: u64,
    /// The longest from the stop's begin to its end.
    pub gone_within_ms: u64,
    /// The command run in it when the stop begins (H1).
    pub on_terminate: Option<Vec<String>>,
    /// The command run in it before its stop signal (H2).
    pub pre_stop: Option<Vec<String>>,
}

/// One thing that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The container.
    pub container: String,
    /// What must be true of it.
    pub until: ConditionWord,
}

/// The bounds of a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StopBounds {
    /// The budget (T5).
    pub budget_ms: u64,
    /// Who says it.
    pub budget_from: BudgetSource,
    /// From the stop's begin to the last exit: the budget and the floor.
    pub gone_within_ms: u64,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$variant_doc])* $variant),* }
    };
}

words! {
    /// A role (S1).
    RoleWord {
        /// Must exit with 0.
        Init,
        /// Lives as long as anything needs it.
        Sidecar,
        /// The work itself.
        Main,
    }
}
words! {
    /// What is waited for.
    ConditionWord {
        /// Its program runs.
        Started,
        /// Its gate is open.
        Ready,
        /// It has exited with 0.
        Done,
    }
}
words! {
    /// Containers that the plan does not name (S8).
    OthersWord {
        /// Neither held nor counted.
        Passthrough,
        /// Mains, by `*=main`.
        Mains,
    }
}
words! {
    /// Who restarts a container.
    RestartWord {
        /// podshim, after every exit.
        Always,
        /// podshim, after a failure.
        OnFailure,
        /// The caller, who sees each exit.
        Caller,
        /// Nobody.
        Never,
    }
}
words! {
    /// What is fatal (R9).
    FatalWord {
        /// An exit other than 0.
        Failure,
        /// Any exit.
        Exit,
    }
}
words! {
    /// When the pod is done by itself (J1).
    Completion {
        /// Never.
        Never,
        /// When all mains have exited with 0.
        MainsSucceeded,
        /// When all mains have exited.
        MainsExited,
    }
}
words! {
    /// Who says how long a stop may take (T5).
    BudgetSource {
        /// `podshim.io/grace`: enforced on every container.
        Annotation,
        /// `terminationGracePeriodSeconds`: the kubelet's own SIGKILL ends it.
        Manifest,
        /// Nobody: a kubelet's default.
        Default,
    }
}

/// What a manifest adds to a plan.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `terminationGracePeriodSeconds`.
    pub kubelet_grace: Option<Duration>,
    /// All containers of the pod.
    pub containers: Vec<String>,
}

/// Explains a plan.
pub fn explain(plan: &Plan, surroundings: &Surroundings) -> Explanation {
    let (budget, budget_from) = match (plan.grace, surroundings.kubelet_grace) {
        (Some(own), _) => (own, BudgetSource::Annotation),
        (None, Some(kubelet)) => (kubelet, BudgetSource::Manifest),
        (None, None) => (KUBELET_GRACE, BudgetSource::Default),
    };
    let order = Order::of(plan);
    let stop = order.stop(plan, budget);
    let containers = plan.members.iter().enumerate().map(|(index, member)| {
        let second = member.is_second_of_pair(index);
        let gate = order.is_awaited(index).then_some(&member.gate);
        Part {
            name: member.name.clone(),
            role: role_word(member.role),
            standby_of: member.pair.filter(|_| second).map(|first| plan.members[first].name.clone()),
            start_step: order.start_step(index),
            waits_for: order.waits(plan, index),
            gate: gate.map(ToString::to_string),
            gate_within_ms: gate.and_then(gate_bound).map(milliseconds),
            restart: restart_word(member, plan.restart_policy),
            fatal: member.fatal.map(|fatal| match fatal {
                pod_spec::Fatal::Failure => FatalWord::Failure,
                pod_spec::Fatal::Exit => FatalWord::Exit,
            }),
            stop_step: order.stop_step(plan, index),
            stops_after: order.stops_after(plan, index),
            signal_within_ms: milliseconds(stop[index].signal),
            gone_within_ms: milliseconds(stop[index].gone),
            on_terminate: member.on_terminate.clone(),
            pre_stop: member.pre_stop.clone(),
        }
    });
    let named = |name: &&String| plan.member(name).is_none();
    Explanation {
        containers: containers.collect(),
        others: match plan.others {
            Others::Passthrough => OthersWord::Passthrough,
            Others::Mains => OthersWord::Mains,
        },
        unnamed: surroundings.containers.iter().filter(named).cloned().collect(),
        held_at_most_ms: plan.gate_timeout.map(milliseconds),
        completion: match plan.restart_policy {
            RestartPolicy::Always => Completion::Never,
            RestartPolicy::OnFailure => Completion::MainsSucceeded,
            RestartPolicy::Never => Completion::MainsExited,
        },
        stop: StopBounds {
            budget_ms: milliseconds(budget),
            budget_from,
            gone_within_ms: milliseconds(budget + FLOOR),
        },
    }
}

/// The order of a plan, with what follows from other waits left out.
struct Order {
    /// What each member waits for before it starts.
    waits: Vec<Vec<(usize, Condition)>>,
    /// The members that must be gone before each sidecar.
    before_stop: Vec<Vec<usize>>,
}

/// When a member gets its stop signal and is gone, at the latest.
#[derive(Clone, Copy)]
struct StopTimes {
    signal: Duration,
    gone: Duration,
}

impl Order {
    fn of(plan: &Plan) -> Self {
        let links: Vec<_> = (0..plan.members.len()).map(|index| plan.links(index)).collect();
        let waits = links
            .iter()
            .map(|links| links.iter().filter_map(|link| Some((link.earlier, link.until?))).collect());
        let before_stop = (0..plan.members.len()).map(|sidecar| {
            let needs = |member: &usize| {
                *member != sidecar
                    && plan.members[sidecar].role == Role::Sidecar
                    && links[*member].iter().any(|link| link.earlier == sidecar)
            };
            (0..plan.members.len()).filter(needs).collect()
        });
        Self { waits: waits.collect(), before_stop: before_stop.collect() }
    }

    fn is_awaited(&self, index: usize) -> bool {
        self.waits.iter().flatten().any(|(earlier, until)| *earlier == index && *until == Condition::Ready)
    }

    fn start_step(&self, index: usize) -> usize {
        1 + self.waits[index].iter().map(|(earlier, _)| self.start_step(*earlier)).max().unwrap_or(0)
    }

    /// What must be said: whatever another wait waits for itself, in the same way, goes without saying.
    fn waits(&self, plan: &Plan, index: usize) -> Vec<Wait> {
        let own = &self.waits[index];
        let implied = |wait: &(usize, Condition)| {
            own.iter().any(|(other, _)| *other != wait.0 && self.waits[*other].contains(wait))
        };
        let said =
            own.iter().filter(|wait| !implied(wait) && !plan.members[wait.0].is_second_of_pair(wait.0));
        said.map(|(earlier, until)| Wait {
            container: plan.members[*earlier].name.clone(),
            until: match until {
                Condition::Started => ConditionWord::Started,
                Condition::Ready => ConditionWord::Ready,
                Condition::Done => ConditionWord::Done,
            },
        })
        .collect()
    }

    /// Who is there when a stop begins: inits have ended by then, or end at once (I6), and so does a standby (T4).
    fn stops(plan: &Plan, index: usize) -> bool {
        plan.members[index].role != Role::Init && !plan.members[index].is_second_of_pair(index)
    }

    fn stop_step(&self, plan: &Plan, index: usize) -> usize {
        let earlier = self.before_stop[index].iter().filter(|other| Self::stops(plan, **other));
        1 + earlier.map(|other| self.stop_step(plan, *other)).max().unwrap_or(0)
    }

    fn stops_after(&self, plan: &Plan, index: usize) -> Vec<String> {
        if !Self::stops(plan, index) {
            return Vec::new();
        }
        let own: Vec<usize> =
            self.before_stop[index].iter().copied().filter(|other| Self::stops(plan, *other)).collect();
        let said = own.iter().filter(|one| !own.iter().any(|other| self.before_stop[*other].contains(one)));
        said.map(|other| plan.members[*other].name.clone()).collect()
    }

    /// T5, T6, T8: the latest moments, if everything uses all of its time.
    fn stop(&self, plan: &Plan, budget: Duration) -> Vec<StopTimes> {
        let mut times: Vec<Option<StopTimes>> = vec![None; plan.members.len()];
        for index in 0..plan.members.len() {
            self.stop_of(plan, index, budget, &mut times);
        }
        let end = StopTimes { signal: budget, gone: budget + FLOOR };
        times.into_iter().map(|times| times.unwrap_or(end)).collect()
    }

    fn stop_of(
        &self,
        plan: &Plan,
        index: usize,
        budget: Duration,
        times: &mut Vec<Option<StopTimes>>,
    ) -> StopTimes {
        if let Some(known) = times[index] {
            return known;
        }
        let earlier = self.before_stop[index].iter().filter(|other| Self::stops(plan, **other));
        let turn = earlier
            .map(|other| self.stop_of(plan, *other, budget, times).gone)
            .max()
            .unwrap_or(Duration::ZERO)
            .min(budget);
        let member = &plan.members[index];
        let has_hooks = member.pre_stop.is_some() || member.on_terminate.is_some();
        // Hooks run before the signal, within the container's own grace, and leave it the floor of that (F9).
        let end = budget + FLOOR;
        let (signal, gone) = match (member.grace, has_hooks) {
            (Some(grace), true) => (turn + grace, turn + grace + grace.min(FLOOR)),
            (Some(grace), false) => (turn, turn + grace),
            (None, true) => (budget, end),
            (None, false) => (turn, end),
        };
        let found = StopTimes { signal: signal.min(budget), gone: gone.min(end) };
        times[index] = Some(found);
        found
    }
}

/// U4: how long a gate's probe goes on before its sidecar is restarted.
fn gate_bound(gate: &Gate) -> Option<Duration> {
    match gate {
        Gate::Skip => Some(Duration::ZERO),
        Gate::Running => None,
        Gate::Probe { action, timing } if action.is_waited_for() => {
            Some(timing.delay + timing.period.saturating_mul(timing.failures))
        }
        Gate::Probe { timing, .. } => {
            let ProbeTiming { delay, period, timeout, failures, .. } = *timing;
            Some(delay + period.max(timeout).saturating_mul(failures.saturating_sub(1)) + timeout)
        }
    }
}

fn restart_word(member: &Member, policy: RestartPolicy) -> RestartWord {
    match (member.restart.map(|restart| restart.mode), member.role, policy) {
        (Some(RestartMode::Always), _, _) | (None, Role::Sidecar, _) => RestartWord::Always,
        (Some(RestartMode::OnFailure), _, _) => RestartWord::OnFailure,
        (Some(RestartMode::Visible), _, _) | (None, Role::Main, _) => RestartWord::Caller,
        (Some(RestartMode::Never), _, _) | (None, Role::Init, RestartPolicy::Never) => RestartWord::Never,
        (None, Role::Init, _) => RestartWord::OnFailure,
    }
}

fn role_word(role: Role) -> RoleWord {
    match role {
        Role::Init => RoleWord::Init,
        Role::Sidecar => RoleWord::Sidecar,
        Role::Main => RoleWord::Main,
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
