//! Proposes the fixes that take more than one word. Never proposes what `check` would refuse next: a test applies every
//! proposal of the examples until no finding is left.

use pod_spec::{GateAction, ListError, Member, Others, PREFIX, PlanError, Problem, Role};

use crate::manifest::{List, Template};
use crate::yaml::Node;

/// The entry that a job's plan cannot have.
const OTHERS: &str = "*=main";
/// The role of what is the kubelet's own.
pub const KUBELETS_OWN: &str = "none";
/// The restart policy under which a plan can have it.
const ALWAYS: &str = "Always";

/// Whether the plan's list names a container; if not, only a key names it.
pub fn lists(annotations: &Node, name: &str) -> bool {
    list(annotations).split([',', '+', '|', '=', '@']).any(|word| word.trim() == name)
}

/// The fix that makes a container a main.
pub fn add_main(annotations: &Node, name: &str, restart_policy: &str) -> String {
    if is_by_role(annotations) {
        return add_role(name, Role::Main);
    }
    let add = format!("add {name}=main to {PREFIX}plan");
    if restart_policy == ALWAYS { format!("{add}, or {OTHERS} at its end") } else { add }
}

/// The fix for a sidecar that the plan does not name.
pub fn add_sidecar(annotations: &Node, name: &str) -> String {
    if is_by_role(annotations) {
        return add_role(name, Role::Sidecar);
    }
    format!("add {name}=sidecar at the beginning of {PREFIX}plan")
}

/// The key that says the plan, without the prefix: `plan`, or the first of the roles (S10).
pub fn plan_key(annotations: &Node) -> String {
    roles(annotations).min().map_or_else(|| "plan".to_owned(), |name| format!("role.{name}"))
}

/// The fix that repeats the pod's restart policy in the annotations (J1). A job's plan must name each main (11.4).
pub fn restart_policy(template: &Template<'_>, annotations: &Node, others: Others) -> String {
    let policy = template.restart_policy();
    let say = format!("write {PREFIX}restart-policy: {policy}");
    if policy == ALWAYS || others == Others::Passthrough {
        return say;
    }
    format!("{say}, and {}", name_mains(template, annotations))
}

/// The fix for a parser's error that can be found only with the pod at hand.
pub fn of_parser(template: &Template<'_>, annotations: &Node, error: &PlanError) -> Option<String> {
    match &error.problem {
        Problem::List(ListError::OthersInJob { .. }) | Problem::MainsOfJobUnknown { .. }
            if template.restart_policy() == ALWAYS =>
        {
            Some(format!("write {PREFIX}restart-policy: {ALWAYS}"))
        }
        Problem::List(ListError::OthersInJob { .. }) | Problem::MainsOfJobUnknown { .. } => {
            Some(format!("write {}", name_mains(template, annotations)))
        }
        Problem::NoSuchContainer { name, .. } if error.key.ends_with(&format!(".{name}")) => {
            let list = template.containers().into_iter().find(|own| own.name == name).map(|own| own.list);
            Some(match list {
                Some(List::Regular) if is_by_role(annotations) => add_role(name, Role::Main),
                Some(List::Regular) => format!("add {name}=main to {PREFIX}plan"),
                Some(List::NativeSidecar) => add_sidecar(annotations, name),
                Some(List::Init) => "remove it: the kubelet runs that container before the plan".to_owned(),
                None => "remove it: neither the plan nor the pod has that container".to_owned(),
            })
        }
        _ => None,
    }
}

/// The right key in place of a misspelt one.
pub fn right_key(error: &PlanError) -> Option<String> {
    let word = error.problem.nearest()?;
    match &error.problem {
        Problem::UnknownKey { .. } => Some(word.into_owned()),
        Problem::NoSuchContainer { name, .. } => {
            Some(format!("{}.{word}", error.key.strip_suffix(name.as_str())?.strip_suffix('.')?))
        }
        _ => None,
    }
}

/// The fix that lets podshim run a preStop hook when the mains have ended, in place of the kubelet.
pub fn pre_stop(member: &Member, container: &Node) -> String {
    let hook = |keys: &[&str]| container.at(&["lifecycle", "preStop"]).and_then(|hook| hook.at(keys));
    let key = format!("{PREFIX}pre-stop.{}", member.alias.as_ref().unwrap_or(&member.name));
    if member.pre_stop.is_some() {
        return format!("remove it: {key} runs when they have ended");
    }
    if hook(&["sleep"]).is_some() {
        return format!("remove it: {:?} gets its stop signal when they have ended", member.name);
    }
    match hook(&["exec", "command"]) {
        Some(command) => {
            let command = command.items().iter().filter_map(Node::text).map(str::to_owned).collect();
            format!(
                "write {key}: '{}' instead, which runs when they have ended",
                GateAction::Exec(command).to_string().replace('\'', "''")
            )
        }
        None => format!(
            "write {key}: exec:<a command that does the same> instead, which runs when they have ended"
        ),
    }
}

/// The fix that writes the plan with the names of the pod's containers in place of `*=main`.
fn name_mains(template: &Template<'_>, annotations: &Node) -> String {
    if is_by_role(annotations) {
        let containers = template.containers();
        let unnamed = containers.iter().filter(|own| {
            own.list == List::Regular && annotations.get(&format!("{PREFIX}role.{}", own.name)).is_none()
        });
        let roles: Vec<String> = unnamed.map(|own| format!("{PREFIX}role.{}: main", own.name)).collect();
        return if roles.is_empty() { format!("{PREFIX}role.<main>: main") } else { roles.join(", and ") };
    }
    let list = list(annotations);
    let mut entries: Vec<String> =
        list.split(',').map(str::trim).filter(|entry| *entry != OTHERS).map(str::to_owned).collect();
    let containers = template.containers();
    let regular = containers.iter().filter(|container| container.list == List::Regular);
    let unnamed = regular.filter(|container| !lists(annotations, container.name));
    entries.extend(unnamed.map(|container| format!("{}=main", container.name)));
    if entries.iter().any(|entry| entry.ends_with("=main")) {
        format!("{PREFIX}plan: {:?}", entries.join(", "))
    } else {
        format!("{PREFIX}plan with the name of each main in place of {OTHERS}")
    }
}

/// The fix that says a container's role beside those of the others (S10).
fn add_role(name: &str, role: Role) -> String {
    format!("add {PREFIX}role.{name}: {role}")
}

/// Whether the plan is said container by container (S10).
fn is_by_role(annotations: &Node) -> bool {
    roles(annotations).next().is_some()
}

/// The containers that have a role of their own in a plan: `none` is none (S8).
fn roles(annotations: &Node) -> impl Iterator<Item = &str> {
    let planned = annotations.entries().iter().filter(|(_, role)| role.text() != Some(KUBELETS_OWN));
    planned.filter_map(|(key, _)| key.text()?.strip_prefix(PREFIX)?.strip_prefix("role."))
}

fn list(annotations: &Node) -> &str {
    annotations.text_of(&format!("{PREFIX}plan")).unwrap_or_default()
}
