//! A plan that names a container which no caller creates, most often because of a typing error.
//!
//! Owns from when on a missing container counts as a fault, the fault's text, and that it is reported once. Which containers
//! are missing is `pod-lifecycle`'s to say.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_lifecycle::{
    ContainerId, InspectedContainer, InspectedPart, InspectedState, Inspection, KubeletType, Missing,
    MissingEnd, Pod,
};
use tokio::time::Instant;

/// How long a caller may take from one container to the next: a kubelet pulls an image in between.
const AFTER: Duration = Duration::from_secs(60);
/// The bound on the names.
const KEPT: usize = 256;

/// The names of the containers that a caller has created. A caller that has created no other regular one for a while will
/// create no more. A kubelet creates the first regular one when its own init containers are done.
#[derive(Debug, Default)]
pub(crate) struct CreatedNames {
    names: BTreeSet<Box<str>>,
    last: Option<Instant>,
    is_reported: bool,
}

impl CreatedNames {
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

    /// What is wrong with the plan, once the caller has had time to create all of it.
    pub(crate) fn fault(&self, inspection: &Inspection) -> Option<String> {
        let missing = inspection.missing.as_ref().filter(|_| self.are_over())?;
        let is_stranger = |container: &&InspectedContainer| {
            container.part == InspectedPart::Passthrough && self.names.contains(container.name.as_str())
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

    /// When the fault is reported if no container is created until then.
    pub(crate) fn report_due(&self, pod: &Pod) -> Option<Instant> {
        let due = self.are_over_at().filter(|_| !self.is_reported)?;
        pod.missing().map(|_| due)
    }

    /// Whether a fault found now would be reported.
    pub(crate) fn may_report(&self) -> bool {
        !self.is_reported && self.are_over()
    }

    /// The fault, to be reported: it is not reported again.
    pub(crate) fn report(&mut self, inspection: &Inspection) -> Option<String> {
        let line = self.fault(inspection)?;
        self.is_reported = true;
        Some(line)
    }
}

/// The containers whose logs get the fault: those of the plan that run or are held.
pub(crate) fn waiting_containers(inspection: Inspection) -> impl Iterator<Item = ContainerId> {
    let waits = |container: &InspectedContainer| {
        matches!(container.state, InspectedState::Held | InspectedState::Running)
            && matches!(container.part, InspectedPart::Planned(_))
    };
    inspection.containers.into_iter().filter(waits).filter_map(|container| container.id)
}

/// The fault as a text. `held` is how many containers wait.
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

/// The names as a list in a sentence.
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
