//! Whether a scenario under a kubelet asks for something that can come true: after shrinking, a failing run must still
//! be a pod whose programs behave in the end.
//!
//! Owns that judgement only. A scenario without a kubelet is fair.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_spec::{Gate, Member, Plan, RestartPolicy, Role};

use crate::command::Command;
use crate::kubelet::fault::Fault;
use crate::kubelet::{KubeletSetup, PodContainer, SpecPart};
use crate::program::Program;

/// Whether the scenario is fair.
pub(crate) fn is_fair(commands: &[Command]) -> bool {
    let Some(setup) = commands.iter().find_map(|command| match command {
        Command::Kubelet(setup) => Some(setup),
        _ => None,
    }) else {
        return true;
    };
    let Some(Command::Pod { annotations, .. }) = commands.first() else { return false };
    let full: Vec<_> =
        annotations.iter().map(|(key, value)| (format!("{}{key}", pod_spec::PREFIX), value)).collect();
    let parsed = pod_spec::parse(full.iter().map(|(key, value)| (key.as_str(), value.as_str())));
    let Some(plan) = parsed.ok().and_then(|parsed| parsed.plan) else { return false };
    // Two limits that work against each other: a hold that ends in failure, which ends the container that it waits for. So it does
    // where the plan does not say that the kubelet retries that failure (J11); `podshim check` calls that an error.
    let is_retried_unsaid = |container: &PodContainer| {
        container.own_policy == Some(RestartPolicy::OnFailure)
            && plan.member(&container.name).is_some_and(|(_, member)| member.restart.is_none())
    };
    let strangled = plan.settings.gate_timeout.is_some()
        && (plan.members.iter().any(|member| member.fatal.is_some())
            || setup.policy == RestartPolicy::Never && setup.containers.iter().any(is_retried_unsaid));
    plan.settings.restart_policy == setup.policy
        && !strangled
        && !gate_outlasts_holds(&plan)
        && names_agree(&plan, setup, &facts(commands))
        && debuggers_are_known(&plan, commands)
        && programs_behave(&plan, setup, commands)
}

/// Whether a gate opens too late for `gate-timeout`, however fast its program is.
pub(crate) fn gate_outlasts_holds(plan: &Plan) -> bool {
    let least = |member: &Member| match &member.gate {
        Gate::Probe { timing, .. } => timing.delay + timing.period * timing.successes.saturating_sub(1),
        _ => Duration::ZERO,
    };
    plan.settings.gate_timeout.is_some_and(|limit| plan.members.iter().any(|member| least(member) >= limit))
}

/// S15: what an agent names.
fn facts(commands: &[Command]) -> BTreeSet<&str> {
    let names = commands.iter().filter_map(|command| match command {
        Command::KubeletsOwn(names) => Some(names),
        _ => None,
    });
    names.flatten().map(String::as_str).collect()
}

fn names_agree(plan: &Plan, setup: &KubeletSetup, facts: &BTreeSet<&str>) -> bool {
    // S8: of the containers that the plan does not name only those of its kubelet's own, and mains by `*=main`.
    let may_be_unnamed = |container: &PodContainer| match container.part {
        SpecPart::Init => plan.kubelets_own.has(&container.name) || facts.contains(container.name.as_str()),
        SpecPart::Regular | SpecPart::Sidecar | SpecPart::Ephemeral => plan.makes_main_of(&container.name),
    };
    let strangers = setup.containers.iter().filter(|container| plan.member(&container.name).is_none());
    strangers.into_iter().all(may_be_unnamed)
        && plan.members.iter().all(|member| setup.containers.iter().any(|other| other.name == member.name))
}

/// Whether a container that `kubectl debug` adds is known to be the kubelet's own when it comes: a main by `*=main` shows a shim that the
/// kubelet waits for no init (I5).
fn debuggers_are_known(plan: &Plan, commands: &[Command]) -> bool {
    let is_known = |name: &str, before: &[Command]| !plan.makes_main_of(name) || facts(before).contains(name);
    commands.iter().enumerate().all(|(place, command)| match command {
        Command::Fault(Fault::Debug(name)) => is_known(name, &commands[..place]),
        _ => true,
    })
}

fn programs_behave(plan: &Plan, setup: &KubeletSetup, commands: &[Command]) -> bool {
    let own = |name: &str| setup.containers.iter().find(|other| other.name == name)?.own_policy;
    let programs: BTreeMap<&str, &Program> = commands
        .iter()
        .filter_map(|command| match command {
            Command::Program(name, program) => Some((name.as_str(), program)),
            _ => None,
        })
        .collect();
    let named = plan.members.iter().map(|member| (member.name.as_str(), member.role));
    // S8: mains by `*=main`.
    let is_main = |it: &&PodContainer| it.part == SpecPart::Regular && plan.makes_main_of(&it.name);
    let unnamed = setup.containers.iter().filter(is_main);
    named.chain(unnamed.map(|container| (container.name.as_str(), Role::Main))).all(|(name, role)| {
        let runs = programs.get(name).map_or(&[][..], |program| program.runs());
        let last = runs.last().cloned().unwrap_or_default();
        let ends = last.ends.map(|end| end.code);
        if role != Role::Sidecar && runs.iter().rev().skip(1).any(|run| run.ends.is_none()) {
            return false;
        }
        let policy = match (own(name), plan.settings.restart_policy) {
            // A kubelet that retries it does so until it succeeds.
            (Some(RestartPolicy::OnFailure), _) => RestartPolicy::OnFailure,
            // I2, J1: its first end is its last.
            (Some(RestartPolicy::Never), policy) if role == Role::Init || policy == RestartPolicy::Always => {
                RestartPolicy::Never
            }
            (_, policy) => policy,
        };
        match (role, policy) {
            (Role::Sidecar, _) => ends.is_none() && last.ready_after.is_some_and(|after| after.is_zero()),
            (Role::Main, RestartPolicy::Always) => ends.is_none(),
            (Role::Main | Role::Init, RestartPolicy::Never) => ends.is_some(),
            (Role::Main, RestartPolicy::OnFailure) | (Role::Init, _) => ends == Some(0),
        }
    })
}
