//! How the trace shows what an operator sees of a pod: one line for the pod, one for each container.
//!
//! Owns the wording. Fields that say nothing are left out.

use std::time::Duration;

use pod_lifecycle::{InspectedContainer, InspectedStop, Inspection, PodTime};

use crate::text::{show_cause, show_duration, show_signal};
use crate::trace::Trace;

impl Trace {
    pub(crate) fn inspection(&mut self, now: PodTime, inspection: &Inspection) {
        let Inspection { stop, outcome, missing, kubelets_own, containers } = inspection;
        let stop = stop
            .as_ref()
            .map(|InspectedStop { cause, budget }| format!("stop: {}, {budget:?}", show_cause(*cause)));
        let outcome = outcome.map(|outcome| format!("{outcome:?}"));
        let missing = missing
            .as_ref()
            .map(|it| format!("misses {}, ends without: {:?}", it.members.join(", "), it.ends_without));
        let own = kubelets_own.as_ref().filter(|names| !names.is_empty());
        let own = own.map(|names| format!("the kubelet's own: {}", names.join(", ")));
        self.push(now, &format!("inspect -> {}", joined([stop, outcome, missing, own])));
        for container in containers {
            self.push(now, &format!("inspect {}", one(container)));
        }
    }
}

fn one(container: &InspectedContainer) -> String {
    let InspectedContainer { name, part, state, pid, gate, held_for, restarts, .. } = container;
    let until =
        |what: &str, time: Option<Duration>| time.map(|time| format!("{what} in {}", show_duration(time)));
    let facts = joined([
        Some(format!("{part:?}")),
        Some(format!("{state:?}")),
        pid.map(|_| "own pid".to_owned()),
        gate.as_ref().map(|(gate, progress)| format!("gate {gate} {progress:?}")),
        held_for.as_ref().map(|reason| format!("held: {reason}")),
        (*restarts > 0).then(|| format!("restarts {restarts}")),
        container.real_exit.map(|exit| format!("really {}", exit.code)),
        container.shown_exit.map(|exit| format!("shown {}", exit.code)),
        container.pending_signal.map(|signal| format!("{} waits", show_signal(signal))),
        until("KILL", container.kill_in),
        until("restart", container.restart_in),
    ]);
    let unknown = if container.id.is_none() { " (no container)" } else { "" };
    format!("{name}{unknown} -> {facts}")
}

fn joined<const N: usize>(facts: [Option<String>; N]) -> String {
    let facts: Vec<_> = facts.into_iter().flatten().collect();
    if facts.is_empty() { "nothing".to_owned() } else { facts.join("; ") }
}
