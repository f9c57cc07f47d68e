//! RestartAllContainers (KEP-5532; a kubelet of 1.35 and later): all containers of the living sandbox are killed and removed, and the
//! next sync makes them again, inits among them.
//!
//! Owns what the kubelet does; how far that is are the facts of `restart_order`.

use std::collections::BTreeMap;
use std::collections::VecDeque;

use pod_lifecycle::{ContainerId, PodTime};

use super::restart_order::Stage;
use super::setup::SpecPart;
use super::{Kubelet, Sync, WorkerState};

impl Kubelet {
    pub(super) fn order_restart_of_all(&mut self, now: PodTime) {
        if self.ending.is_none() && !matches!(self.worker, WorkerState::Over | WorkerState::Ending) {
            self.restart_of_all.stage = Stage::Ordered;
            self.relist(now);
        }
    }

    /// The regular containers are killed first, each with the shortest grace, one after another.
    pub(super) fn begin_restart_of_all(&mut self, now: PodTime) {
        self.restart_of_all.stage = Stage::Killing;
        let part = |id: &ContainerId| {
            let listed = self.cri.listed().get(id);
            listed.map_or(SpecPart::Regular, |listed| self.setup.containers[listed.container].part)
        };
        let mut kills = self.cri.listed().running();
        kills.retain(|id| part(id) != SpecPart::Ephemeral);
        kills.sort_by_key(|id| part(id) != SpecPart::Regular);
        self.note("kubelet restarts all containers".to_owned());
        self.worker = WorkerState::Syncing(Sync {
            kills: kills.into(),
            starts: VecDeque::new(),
            dead_since: BTreeMap::new(),
            waits_for: None,
            starts_init: false,
            failed: false,
        });
        self.go_on(now);
    }

    /// All have been killed: they are removed, and the next sync finds none.
    pub(super) fn end_restart_of_all(&mut self) {
        if self.restart_of_all.stage != Stage::Killing {
            return;
        }
        self.restart_of_all.stage = Stage::No;
        for container in 0..self.setup.containers.len() {
            let mut ids = (1..=self.attempts[container]).rev().map(|attempt| self.id_of(container, attempt));
            let done = ids.find(|id| self.ledger.ended_well.contains(id));
            let before = |other: usize| self.restart_of_all.before.get(other).copied().unwrap_or_default();
            let comes_after = |other: &usize| self.setup.containers[*other].part != SpecPart::Ephemeral;
            let later = (container + 1..self.attempts.len()).filter(comes_after);
            // T18: a start that its kubelet has given up shows nothing.
            // One that had ended before the init ran the last time has not come after it.
            let was_started = |other: usize, attempt: u32| {
                let id = self.id_of(other, attempt);
                let was_over = done.as_ref().is_some_and(|done| self.ledger.was_over_before(&id, done));
                self.cri.has_started(&id) && !was_over
            };
            let came_after = later
                .into_iter()
                .any(|other| (before(other) + 1..=self.attempts[other]).any(|it| was_started(other, it)));
            if came_after && done.is_some() {
                self.restart_of_all.owed.insert(container, self.attempts[container] + 1);
            }
            if self.setup.containers[container].part != SpecPart::Ephemeral {
                self.cri.remove_dead(container);
            }
        }
        self.restart_of_all.before.clone_from(&self.attempts);
        self.failed_probes.clear();
        self.back_off.forget();
    }

    /// A container that had completed and has not run again since all were restarted.
    pub(super) fn still_owed(&self) -> Option<usize> {
        let has_run = |container: usize, since: u32| {
            let ids = (since..=self.attempts[container]).map(|attempt| self.id_of(container, attempt));
            ids.into_iter().any(|id| self.ledger.ran.contains(&id))
        };
        let mut owed = self.restart_of_all.owed.iter();
        owed.find(|(container, since)| !has_run(**container, **since)).map(|(container, _)| *container)
    }
}
