//! A plan that is at fault against its pod: a main that no caller creates, most often for a typing error. The core knows what
//! is missing; this owns from when on that is a fault, and that the logs have it once.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_lifecycle::{
    ContainerId, InspectedContainer, InspectedPart, InspectedState, Inspection, KubeletType, Pod,
};
use pod_spec::RestartPolicy;
use tokio::time::Instant;

/// A kubelet creates the regular containers of a pod one after another, with a pull between them.
const AFTER: Duration = Duration::from_secs(60);
/// So many names are kept.
const KEPT: usize = 256;

/// The regular containers that a caller has created: one that has created no other name for a while is done with that. A
/// kubelet creates the first one when its own init containers are done.
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

    /// What is wrong with the plan, for people, once the caller had its time to create all of it.
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

    /// When there is a fault to report, if no container is created before.
    pub(crate) fn report_due(&self, pod: &Pod) -> Option<Instant> {
        let due = self.are_over_at().filter(|_| !self.is_reported)?;
        pod.missing_main().map(|_| due)
    }

    /// Whether a fault would be reported now.
    pub(crate) fn may_report(&self) -> bool {
        !self.is_reported && self.are_over()
    }

    /// The fault, the first time that there is one.
    pub(crate) fn report(&mut self, inspection: &Inspection) -> Option<String> {
        let line = self.fault(inspection)?;
        self.is_reported = true;
        Some(line)
    }
}

/// The containers of a pod whose own logs are to have its fault: those of the plan that run or wait.
pub(crate) fn waiting_containers(inspection: Inspection) -> impl Iterator<Item = ContainerId> {
    let waits = |container: &InspectedContainer| {
        matches!(container.state, InspectedState::Held | InspectedState::Running)
            && matches!(container.part, InspectedPart::Planned(_))
    };
    inspection.containers.into_iter().filter(waits).filter_map(|container| container.id)
}
