//! A plan that is at fault against its pod: a container that no caller creates, most often for a typing error. The core knows
//! what is missing; this owns from when on that is a fault, and that the logs have it once.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_lifecycle::{
    Action, InspectedContainer, InspectedPart, InspectedState, Inspection, KubeletType, Missing, MissingEnd,
    Tell,
};
use tokio::time::Instant;
use tracing::warn;

use crate::owner::Owner;

/// A kubelet creates the regular containers of a pod one after another, with a pull between them.
const AFTER: Duration = Duration::from_secs(60);
/// So many names are kept.
const KEPT: usize = 256;

/// The containers that a caller has created: one that has created no other regular one for a while is done with that. A
/// kubelet creates the first regular one when its own init containers are done.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    names: BTreeSet<Box<str>>,
    last: Option<Instant>,
    is_told: bool,
}

impl Creations {
    /// A caller creates a container.
    pub(crate) fn add(&mut self, name: &str, kubelet_type: Option<KubeletType>) {
        if kubelet_type == Some(KubeletType::Ephemeral) || self.names.len() >= KEPT {
            return;
        }
        if self.names.insert(name.into()) && kubelet_type != Some(KubeletType::Init) {
            self.last = Some(Instant::now());
        }
    }

    fn are_over_at(&self) -> Option<Instant> {
        Some(self.last? + AFTER)
    }

    fn are_over(&self) -> bool {
        self.are_over_at().is_some_and(|at| at <= Instant::now())
    }
}

impl Owner {
    /// What is wrong with the plan, for people, once the caller had its time to create all of it.
    pub(crate) fn fault(&self, inspection: &Inspection) -> Option<String> {
        let missing = inspection.missing.as_ref().filter(|_| self.creations.are_over())?;
        let is_stranger = |container: &&InspectedContainer| {
            container.part == InspectedPart::Passthrough
                && self.creations.names.contains(container.name.as_str())
        };
        let strangers = inspection.containers.iter().filter(is_stranger);
        let mut strangers: Vec<_> = strangers.map(|container| format!("{:?}", container.name)).collect();
        strangers.sort();
        // A standby waits for its turn.
        let is_held = |container: &&InspectedContainer| {
            container.state == InspectedState::Held && matches!(container.part, InspectedPart::Planned(_))
        };
        let held = inspection.containers.iter().filter(is_held).count();
        Some(words(missing, &strangers, held))
    }

    /// When there is something to say, if nothing comes in between.
    pub(crate) fn fault_due(&self) -> Option<Instant> {
        let due = self.creations.are_over_at().filter(|_| !self.creations.is_told)?;
        self.pod.missing().map(|_| due)
    }

    /// Tells the log, and the containers that wait in their own, what is wrong with the plan.
    pub(crate) fn tell_fault(&mut self) {
        if self.creations.is_told || !self.creations.are_over() {
            return;
        }
        let inspection = self.inspect();
        let Some(line) = self.fault(&inspection) else { return };
        self.creations.is_told = true;
        warn!("{line}");
        for container in inspection.containers {
            let waits = matches!(container.state, InspectedState::Held | InspectedState::Running)
                && matches!(container.part, InspectedPart::Planned(_));
            if let (true, Some(container)) = (waits, container.id) {
                self.execute(Action::Tell { container, line: line.clone(), to: Tell::Log });
            }
        }
    }
}

/// What is wrong, where so many containers are held.
fn words(missing: &Missing, strangers: &[String], held: usize) -> String {
    let members = all_of(&missing.members);
    let [were, are, images] = match missing.members[..] {
        [_] => ["was", "is", "its image is"],
        _ => ["were", "are", "their images are"],
    };
    if strangers.is_empty() {
        return format!(
            "{members} {are} not created yet: {images} still pulled, or the pod has no such container"
        );
    }
    let effect = match missing.ends_without {
        _ if held > 0 => "the pod does not start: ",
        MissingEnd::Never => "the pod does not end: ",
        MissingEnd::AsPlanned => "",
    };
    let strangers = all_of(strangers);
    format!("{effect}{members} {were} never created; the pod has {strangers}, which the plan does not name")
}

/// A list for a sentence.
fn all_of(names: &[String]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        names => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_what_is_missing_and_what_is_there_instead() {
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let missing = |members: &[&str], ends_without| Missing { members: names(members), ends_without };
        let proxy = missing(&["sidecar \"proxy\""], MissingEnd::AsPlanned);
        let three = missing(&["init \"i\"", "sidecar \"s\"", "main \"worker\""], MissingEnd::Never);
        assert_eq!(
            words(&proxy, &names(&["\"prxoy\""]), 1),
            "the pod does not start: sidecar \"proxy\" was never created; the pod has \"prxoy\", which the plan does \
             not name"
        );
        assert_eq!(
            words(&three, &names(&["\"a\"", "\"b\""]), 0),
            "the pod does not end: init \"i\", sidecar \"s\" and main \"worker\" were never created; the pod has \
             \"a\" and \"b\", which the plan does not name"
        );
        assert_eq!(
            words(&proxy, &[], 1),
            "sidecar \"proxy\" is not created yet: its image is still pulled, or the pod has no such container"
        );
        let text = words(&three, &[], 0);
        assert!(text.ends_with(
            "are not created yet: their images are still pulled, or the pod has no such container"
        ));
    }
}
