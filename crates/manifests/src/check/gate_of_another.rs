//! A gate that asks the port of a container which waits for that gate (U2): neither gets any further.
//!
//! Owns whose port it is, by the ports that the manifest names. Knows no container that something adds later.

use pod_spec::{Condition, Gate, GateAction, Link, Member, PREFIX, Plan};

use super::waits::links_of;
use crate::annotations::annotation_line;
use crate::finding::{Finding, Severity};
use crate::manifest::Container;
use crate::yaml::Node;

/// The finding on the gate of a member.
pub(super) fn of_member(
    file: &str,
    member: usize,
    plan: &Plan,
    containers: &[Container<'_>],
    annotations: &Node,
) -> Option<Finding> {
    let asked = &plan.members[member];
    let port = asked_port(asked)?;
    let has_it = |container: &&Container<'_>| has_port(container, port);
    let mut owners = containers.iter().filter(has_it).peekable();
    if owners.peek().is_none() || containers.iter().filter(has_it).any(|own| own.name == asked.name) {
        return None;
    }
    let owner = owners.find(|container| leads_to_gate(links_of(container, plan), member, plan))?;
    let (name, other) = (&asked.name, owner.name);
    let key = format!("{PREFIX}ready.{}", asked.alias.as_ref().unwrap_or(name));
    let message = format!(
        "the gate of {name:?} asks port {port}, which is {other:?}'s, and {other:?} waits for that gate: neither gets any further"
    );
    let finding = Finding::new(Severity::Error, file, annotation_line(annotations, &key), message).key(&key);
    let finding = match annotations.text_of(&key) {
        Some(value) => finding.value(value),
        None => finding,
    };
    // What it waits for without the gate stays.
    let others = links_of(owner, plan)
        .into_iter()
        .filter(|link| link.earlier != member && !leads_to_gate(plan.links(link.earlier), member, plan));
    let others = others
        .filter_map(|link| Some(format!(", {}={}", plan.members[link.earlier].name, link.until?.word())));
    let key = plan.member(other).and_then(|(_, member)| member.alias.as_deref()).unwrap_or(other);
    Some(finding.fix(format!("write {PREFIX}after.{key}: {name}=started{}", others.collect::<String>())))
}

/// The port that a gate asks in the pod's network.
fn asked_port(member: &Member) -> Option<u16> {
    let Gate::Probe { action, .. } = &member.gate else { return None };
    match action {
        GateAction::Tcp { port, .. } | GateAction::Http { port, .. } | GateAction::Grpc { port, .. } => {
            Some(*port)
        }
        _ => None,
    }
}

fn has_port(container: &Container<'_>, port: u16) -> bool {
    let ports = container.node.get("ports").map(Node::items).unwrap_or_default();
    ports.iter().any(|one| one.number_of("containerPort") == Some(port.into()))
}

/// Whether one of these is a wait for the member's gate, directly or through others.
fn leads_to_gate(links: Vec<Link>, member: usize, plan: &Plan) -> bool {
    let (mut unread, mut read) = (vec![links], Vec::new());
    while let Some(links) = unread.pop() {
        for Link { earlier, until } in links {
            if earlier == member && until == Some(Condition::Ready) {
                return true;
            }
            if until.is_some() && earlier != member && !read.contains(&earlier) {
                read.push(earlier);
                unread.push(plan.links(earlier));
            }
        }
    }
    false
}
