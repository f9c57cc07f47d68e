//! Explains a plan as data: what starts when, what it waits for, what stops when, and how long that can take. Pure.
//! Owns which facts each container gets, but no text beyond single words; `pod-spec` owns the order itself.

mod order;
pub mod show;

use std::time::Duration;

use pod_spec::{Gate, Member, Others, Plan, ProbeTiming, RestartMode, RestartPolicy, Role};
use serde::Serialize;

use self::order::{Entry, Order};
use crate::manifest::List;

/// The time that every container still gets when the budget is spent (T6).
const FLOOR: Duration = Duration::from_secs(2);
/// The default of terminationGracePeriodSeconds.
const KUBELET_GRACE: Duration = Duration::from_secs(30);
/// Stands for the mains of `*=main` if no manifest lists them.
pub const EVERY_OTHER: &str = "*";

/// The facts about one pod. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// In the order of the plan, then the mains that only `*=main` names.
    pub containers: Vec<Part>,
    /// What happens to containers that the plan does not name.
    pub others: OthersWord,
    /// Containers of the pod that the plan does not name.
    pub unnamed: Vec<String>,
    /// How long a container is held before it exits with 125 (U6). `None`: no limit.
    pub held_at_most_ms: Option<u64>,
    /// What ends the pod (J1).
    pub completion: Completion,
    /// The bounds of its stop.
    pub stop: StopBounds,
}

/// One container of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Its name; [`EVERY_OTHER`] for all that the plan does not name.
    pub name: String,
    /// Its role.
    pub role: RoleWord,
    /// How the plan includes it.
    pub planned: PlannedWord,
    /// The partner whose standby it is at first (V1). A standby does not start with the pod.
    pub standby_of: Option<String>,
    /// The step in which it starts, counted from 1. Containers of one step start together.
    pub start_step: usize,
    /// What it waits for, without what these containers wait for themselves.
    pub waits_for: Vec<Wait>,
    /// What opens its gate, as the annotation writes it; `None` if podshim never checks the gate (U1, U2).
    pub gate: Option<String>,
    /// The longest time from its program's start until the gate opens or podshim restarts the sidecar (U4); `None` if
    /// there is no limit.
    pub gate_within_ms: Option<u64>,
    /// Who restarts it.
    pub restart: RestartWord,
    /// Which exit of it ends the pod (R9).
    pub fatal: Option<FatalWord>,
    /// The step of a stop in which it gets its stop signal, counted from 1.
    pub stop_step: usize,
    /// The containers that must be gone first, without those that these wait for themselves.
    pub stops_after: Vec<String>,
    /// The longest time from the start of the stop to its stop signal.
    pub signal_within_ms: u64,
    /// The longest time from the start of the stop to its exit.
    pub gone_within_ms: u64,
    /// The command that podshim runs in it when the stop begins (H1).
    pub on_terminate: Option<Vec<String>>,
    /// The command that podshim runs in it before its stop signal (H2).
    pub pre_stop: Option<Vec<String>>,
    /// Whether its kubelet runs a hook before it stops it, which uses up the same time (F9).
    pub kubelet_hook: bool,
}

/// A container that another one waits for.
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
    /// Where it is set.
    pub budget_from: BudgetSource,
    /// From the start of the stop to the last exit: the budget plus the floor.
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
    /// How the plan includes a container.
    PlannedWord {
        /// The plan names it.
        Named,
        /// `*=main` includes it.
        Other,
    }
}
words! {
    /// What must be true of an awaited container.
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
        /// The caller, which sees each exit.
        Caller,
        /// It is never restarted.
        Never,
    }
}
words! {
    /// Which exit of a container ends the pod (R9).
    FatalWord {
        /// An exit other than 0.
        Failure,
        /// Any exit.
        Exit,
    }
}
words! {
    /// When the pod ends by itself (J1).
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
    /// What sets how long a stop may take (T5).
    BudgetSource {
        /// `podshim.io/grace`: podshim enforces it on every container.
        Annotation,
        /// `terminationGracePeriodSeconds`: the kubelet's own SIGKILL ends it.
        Manifest,
        /// `terminationGracePeriodSeconds`, as it is shorter than `podshim.io/grace`.
        KubeletFirst,
        /// Neither is set: the default of `terminationGracePeriodSeconds`.
        Default,
    }
}

/// What a manifest adds to a plan.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `terminationGracePeriodSeconds`.
    pub kubelet_grace: Option<Duration>,
    /// All containers of the pod, and how a kubelet starts each.
    pub containers: Vec<(String, List)>,
    /// Those with a `lifecycle.preStop`, which a kubelet runs before it stops them (F9).
    pub kubelet_hooks: Vec<String>,
}

/// Explains a plan.
pub fn explain(plan: &Plan, surroundings: &Surroundings) -> Explanation {
    let (budget, budget_from) = match (plan.grace, surroundings.kubelet_grace) {
        // The kubelet kills first.
        (Some(own), Some(kubelet)) if kubelet < own => (kubelet, BudgetSource::KubeletFirst),
        (Some(own), _) => (own, BudgetSource::Annotation),
        (None, Some(kubelet)) => (kubelet, BudgetSource::Manifest),
        (None, None) => (KUBELET_GRACE, BudgetSource::Default),
    };
    let unnamed: Vec<&(String, List)> =
        surroundings.containers.iter().filter(|(name, _)| plan.member(name).is_none()).collect();
    let order = Order::of(plan, other_mains(plan, &unnamed), &surroundings.kubelet_hooks);
    let stop = order.stop(budget);
    let (start_steps, stop_steps) = (order.start_steps(), order.stop_steps());
    let containers = order.entries().iter().enumerate().map(|(index, entry)| {
        let member = &entry.member;
        let gate = entry.is_awaited.then_some(&member.gate);
        // U4: a main's gate restarts nothing.
        let bound = gate.filter(|_| member.role == Role::Sidecar).and_then(gate_bound);
        Part {
            name: member.name.clone(),
            role: role_word(member.role),
            planned: entry.planned,
            standby_of: order.standby_of(index).map(|first| order.entries()[first].member.name.clone()),
            start_step: start_steps[index],
            waits_for: order.waits(index),
            gate: gate.map(ToString::to_string),
            gate_within_ms: bound.map(milliseconds),
            restart: restart_word(member, plan.restart_policy),
            fatal: member.fatal.map(|fatal| match fatal {
                pod_spec::Fatal::Failure => FatalWord::Failure,
                pod_spec::Fatal::Exit => FatalWord::Exit,
            }),
            stop_step: stop_steps[index],
            stops_after: order.stops_after(index),
            signal_within_ms: milliseconds(stop[index].signal),
            gone_within_ms: milliseconds(stop[index].gone),
            on_terminate: member.on_terminate.clone(),
            pre_stop: member.pre_stop.clone(),
            kubelet_hook: entry.has_kubelet_hook,
        }
    });
    Explanation {
        containers: containers.collect(),
        others: match plan.others {
            Others::Passthrough => OthersWord::Passthrough,
            Others::Mains => OthersWord::Mains,
        },
        unnamed: unnamed.iter().map(|(name, _)| name.clone()).collect(),
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

/// S8: the containers that only `*=main` makes mains. Those that the kubelet starts as init containers are left out.
fn other_mains(plan: &Plan, unnamed: &[&(String, List)]) -> Vec<Entry> {
    if plan.others == Others::Passthrough {
        return Vec::new();
    }
    let regular = unnamed.iter().filter(|(_, list)| *list == List::Regular);
    let mut names: Vec<&str> = regular.map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        names.push(EVERY_OTHER);
    }
    names.into_iter().map(Entry::other_main).collect()
}

/// U4: how long podshim probes a gate before it restarts the sidecar; `None` without a limit.
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
