//! Explains a plan as data: what starts when, what it waits for, what stops when, and how long that can take. Pure.
//! Owns which facts each container gets, but no text beyond single words; `pod-spec` owns the order itself.

mod order;
mod report;

use std::time::Duration;

use pod_spec::{
    CodeSet, Gate, Member, Others, Plan, ProbeTiming, RestartMode, RestartPolicy, Role, Shares, Source,
};

use self::order::{Entry, MIN_KILL_DELAY, Order, StopTime};
pub use self::report::{
    BudgetSource, Completion, ConditionWord, Cost, EVERY_OTHER, Explanation, FatalWord, OthersWord, Part,
    PlannedWord, RestartWord, RoleWord, SourceWord, StopBounds, Wait,
};
use crate::manifest::List;
use crate::resources::PodResources;

/// The default of terminationGracePeriodSeconds.
const KUBELET_GRACE: Duration = Duration::from_secs(30);
/// What a manifest adds to a plan.
#[derive(Clone, Debug, Default)]
pub struct PodFacts {
    /// `terminationGracePeriodSeconds`.
    pub kubelet_grace: Option<Duration>,
    /// All containers of the pod, and how a kubelet starts each.
    pub containers: Vec<(String, List)>,
    /// Those with a `lifecycle.preStop`, which a kubelet runs before it stops them (F9).
    pub kubelet_hooks: Vec<String>,
    /// What they ask of the node; `None` if a manifest says nothing of that, or something invalid.
    pub resources: Option<PodResources>,
}

/// Explains a plan.
pub fn explain(plan: &Plan, pod: &PodFacts) -> Explanation {
    let (time, budget_from) = time_of(plan, pod);
    let unnamed: Vec<&(String, List)> =
        pod.containers.iter().filter(|(name, _)| plan.member(name).is_none()).collect();
    let order = Order::of(plan, other_mains(plan, &unnamed), &pod.kubelet_hooks);
    let stop = order.stop(&time);
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
            restart: restart_word(member, plan.settings.restart_policy),
            restart_codes: restart_codes(member),
            fatal: member.fatal.map(fatal_word),
            pod_restarts: match member.fatal {
                Some(pod_spec::Fatal::Restart { limit }) => Some(limit),
                _ => None,
            },
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
        held_at_most_ms: plan.settings.gate_timeout.map(milliseconds),
        source: match plan.settings.source {
            Source::Annotations => SourceWord::Annotations,
            Source::Kruise => SourceWord::Kruise,
        },
        completion: completion_of(plan.settings.restart_policy),
        stop: bounds(&time, budget_from),
        resources: pod.resources.as_ref().map(|resources| cost(plan, resources)),
    }
}

fn bounds(time: &StopTime, budget_from: BudgetSource) -> StopBounds {
    StopBounds {
        budget_ms: milliseconds(time.budget),
        budget_from,
        kept_for_each_step_ms: time.shares.step().map(milliseconds),
        gone_within_ms: milliseconds(time.budget + MIN_KILL_DELAY),
    }
}

/// The time of the pod's stop, how it is shared, and who says it.
fn time_of(plan: &Plan, pod: &PodFacts) -> (StopTime, BudgetSource) {
    let (budget, from) = budget_of(plan, pod);
    let usual = plan.settings.grace.unwrap_or(budget);
    let shares = Shares::of(budget, plan.settings.reserve, usual, pod_spec::Order::of(plan).steps());
    (StopTime { budget, usual, shares }, from)
}

fn budget_of(plan: &Plan, pod: &PodFacts) -> (Duration, BudgetSource) {
    match (plan.settings.grace, pod.kubelet_grace) {
        // The kubelet kills first.
        (Some(own), Some(kubelet)) if kubelet < own => (kubelet, BudgetSource::KubeletFirst),
        (Some(own), _) => (own, BudgetSource::Annotation),
        (None, Some(kubelet)) => (kubelet, BudgetSource::Manifest),
        (None, None) => (KUBELET_GRACE, BudgetSource::Default),
    }
}

fn fatal_word(fatal: pod_spec::Fatal) -> FatalWord {
    match fatal {
        pod_spec::Fatal::Failure => FatalWord::Failure,
        pod_spec::Fatal::Exit => FatalWord::Exit,
        pod_spec::Fatal::Restart { .. } => FatalWord::Restart,
    }
}

fn completion_of(policy: RestartPolicy) -> Completion {
    match policy {
        RestartPolicy::Always => Completion::Never,
        RestartPolicy::OnFailure => Completion::MainsSucceeded,
        RestartPolicy::Never => Completion::MainsExited,
    }
}

/// What the pod asks of its node, and what it would ask for with native inits and sidecars in the plan's order.
fn cost(plan: &Plan, resources: &PodResources) -> Cost {
    let native = plan.members.iter().filter_map(|member| match member.role {
        Role::Init => Some((member.name.as_str(), List::Init)),
        Role::Sidecar => Some((member.name.as_str(), List::NativeSidecar)),
        Role::Main => None,
    });
    Cost {
        qos: resources.qos(),
        as_written: resources.counted(),
        native: resources.counted_with(&native.collect::<Vec<_>>()),
    }
}

/// S8: the containers that only `*=main` makes mains. Those that the kubelet starts as init containers are left out.
fn other_mains(plan: &Plan, unnamed: &[&(String, List)]) -> Vec<Entry> {
    if plan.others == Others::Passthrough {
        return Vec::new();
    }
    let regular = unnamed.iter().filter(|(name, list)| *list == List::Regular && plan.makes_main_of(name));
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

/// R13: the codes after which podshim restarts a container, where they are listed.
fn restart_codes(member: &Member) -> Option<String> {
    let restart = member.restart.filter(|restart| restart.mode == RestartMode::OnFailure)?;
    (restart.codes != CodeSet::FAILURES).then(|| restart.codes.to_string())
}

fn role_word(role: Role) -> RoleWord {
    match role {
        Role::Init => RoleWord::Init,
        Role::Sidecar => RoleWord::Sidecar,
        Role::Main => RoleWord::Main,
    }
}

/// A duration as a report has it.
fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
