//! A plan that is at fault against its pod: a main that nobody creates, most often for a typing error. The core knows what
//! is missing; this owns from when on that is a fault, and that the containers' logs have it once.

use std::time::Duration;

use pod_lifecycle::{Action, InspectedPart, InspectedState, Inspection, Tell};
use tokio::time::Instant;

use crate::owner::Owner;

/// A kubelet creates the containers of a pod one after another, with a pull between them.
const AFTER: Duration = Duration::from_secs(60);

/// When something was created last: a caller that creates nothing for a while is done with that.
#[derive(Debug, Default)]
pub(crate) struct Creations {
    last: Option<Instant>,
    said: bool,
}

impl Creations {
    pub(crate) fn another(&mut self) {
        self.last = Some(Instant::now());
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
        let missing = inspection.missing_main.as_ref().filter(|_| self.creations.are_over())?;
        let strangers =
            inspection.containers.iter().filter(|container| container.part == InspectedPart::Passthrough);
        let strangers: Vec<_> = strangers.map(|container| format!("{:?}", container.name)).collect();
        Some(match strangers.as_slice() {
            [] => missing.clone(),
            _ => format!("{missing}; the pod has {}, which the plan does not name", strangers.join(", ")),
        })
    }

    /// When there is something to say, if nothing comes in between.
    pub(crate) fn fault_due(&self) -> Option<Instant> {
        let due = self.creations.are_over_at().filter(|_| !self.creations.said)?;
        self.pod.missing_main().map(|_| due)
    }

    /// Tells the containers that wait, in their logs, what is wrong with the plan.
    pub(crate) fn tell_fault(&mut self) {
        if self.creations.said || !self.creations.are_over() {
            return;
        }
        let inspection = self.inspect();
        let Some(line) = self.fault(&inspection) else { return };
        self.creations.said = true;
        for container in inspection.containers {
            let waits = matches!(container.state, InspectedState::Held | InspectedState::Running)
                && matches!(container.part, InspectedPart::Planned(_));
            if let (true, Some(container)) = (waits, container.id) {
                self.execute(Action::Tell { container, line: line.clone(), to: Tell::Log });
            }
        }
    }
}
