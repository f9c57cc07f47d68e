//! A plan that names a main which no caller creates, most often because of a typing error.
//!
//! Owns from when on a missing main counts as a fault, the fault's text, and that it is reported once. Which main is missing
//! is `pod-lifecycle`'s to say.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_lifecycle::{
    ContainerId, InspectedContainer, InspectedPart, InspectedState, Inspection, KubeletType, Pod,
};
use pod_spec::RestartPolicy;
use tokio::time::Instant;

/// How long a caller may take from one container to the next: a kubelet pulls an image in between.
const AFTER: Duration = Duration::from_secs(60);
/// The bound on the names.
const KEPT: usize = 256;

/// The names of the regular containers that a caller has created. A caller that has created no new name for a while will
/// create no more. The time counts from the first one: a kubelet creates it when its own init containers are done.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    names: BTreeSet<Box<str>>,
    last: Option<Instant>,
    is_reported: bool,
}

impl Creations {
    /// A caller creates a container.
    pub(crate) fn add(&mut self, name: &str, kubelet_type: Option<KubeletType>) {
        let regular = !matches!(kubelet_type, Some(KubeletType::Init | KubeletType::Ephemeral));
        if regular && self.names.len() < KEPT && !self.names.contains(name) {
            self.names.insert(name.into());
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
        let missing = inspection.missing_main.as_ref().filter(|_| self.are_over())?;
        let is_stranger = |name: &str, part| part == InspectedPart::Passthrough && self.names.contains(name);
        let strangers = inspection.containers.iter();
        let strangers: Vec<_> = strangers
            .filter(|container| is_stranger(&container.name, container.part))
            .map(|container| format!("{:?}", container.name))
            .collect();
        let main = &missing.main;
        if strangers.is_empty() {
            return Some(format!(
                "{main} is not created yet: its image is still pulled, or the pod has no container of that name"
            ));
        }
        let strangers = strangers.join(", ");
        let end = if missing.policy == RestartPolicy::Always { "" } else { "the pod does not end: " };
        Some(format!("{end}{main} was never created; the pod has {strangers}, which the plan does not name"))
    }

    /// When the fault is reported if no container is created until then.
    pub(crate) fn report_due(&self, pod: &Pod) -> Option<Instant> {
        let due = self.are_over_at().filter(|_| !self.is_reported)?;
        pod.missing_main().map(|_| due)
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
