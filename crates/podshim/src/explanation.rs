//! What a plan makes of a pod, as data: what starts when, what it waits for, what stops when, and how long that can
//! take. Pure. Owns what is said of each container and no wording beyond single words; the order itself is `pod-spec`'s.

mod order;
pub mod show;

use std::time::Duration;

use pod_spec::{Gate, Member, Others, Plan, ProbeTiming, RestartMode, RestartPolicy, Role};
use serde::Serialize;

use self::order::{Entry, Order};
use crate::manifest::List;

/// What everyone still gets when the budget is spent (T6).
const FLOOR: Duration = Duration::from_secs(2);
/// A kubelet's terminationGracePeriodSeconds where the pod does not say one.
const KUBELET_GRACE: Duration = Duration::from_secs(30);
/// What stands for the mains of `*=main` where no manifest says which there are.
pub const EVERY_OTHER: &str = "*";

/// All that is to be said of one pod. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// In the order of the plan, then the mains that only `*=main` names.
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
    /// Its name; [`EVERY_OTHER`] for all that the plan does not name.
    pub name: String,
    /// Its role.
    pub role: RoleWord,
    /// What makes it one of the plan's.
    pub planned: PlannedWord,
    /// Whose standby it is at first (V1): it does not start with the pod.
    pub standby_of: Option<String>,
    /// The step in which it starts, counted from 1; those of one step start together.
    pub start_step: usize,
    /// What it waits for; what these wait for themselves is left out.
    pub waits_for: Vec<Wait>,
    /// What opens its gate, as the annotation says it; `None` where nothing asks for it.
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
    /// Whether its kubelet runs a hook before it stops it, which uses up the same time (F9).
    pub kubelet_hook: bool,
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
    /// What makes a container one of the plan's.
    PlannedWord {
        /// The plan names it.
        Named,
        /// `*=main`.
        Other,
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
        /// No container.
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
        /// The same, although `podshim.io/grace` is longer.
        KubeletFirst,
        /// Nothing: a kubelet's default.
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

/// S8: what is a main by `*=main` alone. What a kubelet starts as an init container is left out.
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
