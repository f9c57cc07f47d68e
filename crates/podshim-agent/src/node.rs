//! The node: its pods' stories and their objects, and what of them is to be written.
//!
//! Owns which pod may be written about: one that the API server has on this node, with the uid, namespace and name that its shim knows.
//! Has no IO and knows no clock. Decides nothing about a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use control_api::{Event, InspectResponse};

use crate::bucket::Bucket;
use crate::conditions::{ConditionPatch, Conditions};
use crate::object::{PodObject, ReadinessGate};
use crate::report::{Reason, Report, Topic};
use crate::story::started::{Started, StartedReason};
use crate::story::{Change, Now, Story};

/// How many events a pod gets at once, and after what time one more: the kubelet's own figures for one object.
const BURST: u32 = 25;
const EVERY: Duration = Duration::from_secs(300);
/// How many reports wait for their pod's object.
const PARKED: usize = 16;

/// What is to be written.
#[derive(Debug, PartialEq, Eq)]
pub enum Write {
    /// An event.
    Report(Report),
    /// Not this one, if it is not written yet.
    Withdraw(Topic),
    /// A pod's condition.
    Condition(ConditionPatch),
    /// Nothing more about the pod with this uid.
    Forget(String),
    /// A report that its pod's bound leaves out.
    Dropped,
}

/// The pods of a node.
#[derive(Debug, Default)]
pub struct Node {
    /// By the ids of their shims.
    stories: BTreeMap<String, Story>,
    /// By their uids.
    objects: BTreeMap<String, Known>,
    /// What waits for the pod's object.
    parked: BTreeMap<String, BTreeMap<Topic, Report>>,
    conditions: Conditions,
}

#[derive(Debug)]
struct Known {
    object: PodObject,
    bucket: Bucket,
    mismatch: Mismatch,
}

/// Whether a pod's contradictions are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mismatch {
    Unreported,
    Reported,
}

impl Node {
    /// A shim has answered.
    pub fn shim_seen(&mut self, seen: &InspectResponse, events: &[Event], now: Now) -> Vec<Write> {
        let story = self.stories.entry(seen.id.clone()).or_insert_with(|| Story::of(seen));
        let (pod, changes) = (story.pod().clone(), story.see(seen, events, now));
        let mut writes = Vec::new();
        // Of several about the same only the newest costs a token.
        let mut reports = BTreeMap::new();
        for change in changes {
            match change {
                Change::Report(report) => drop(reports.insert(report.topic.clone(), report)),
                Change::Withdraw(topic) => {
                    reports.remove(&topic);
                    if let Some(parked) = self.parked.get_mut(&topic.uid) {
                        parked.remove(&topic);
                    }
                    writes.push(Write::Withdraw(topic));
                }
            }
        }
        if self.objects.get(&pod.uid).is_some_and(|known| known.object.pod == pod) {
            writes.extend(self.bounded(&pod.uid, reports.into_values(), now));
        } else {
            let parked = self.parked.entry(pod.uid.clone()).or_default();
            for (topic, report) in reports {
                if parked.len() < PARKED || parked.contains_key(&topic) {
                    parked.insert(topic, report);
                } else {
                    writes.push(Write::Dropped);
                }
            }
        }
        writes.extend(self.of_pod(&pod.uid, now));
        writes
    }

    /// A shim has ended.
    pub fn shim_gone(&mut self, id: &str, now: Now) -> Vec<Write> {
        let Some(story) = self.stories.remove(id) else { return Vec::new() };
        let uid = &story.pod().uid;
        if newest(&self.stories, uid).is_some() {
            return self.of_pod(uid, now);
        }
        self.parked.remove(uid);
        // After a stop it is false already.
        let Some(known) = self.objects.get(uid).filter(|_| story.started().reason.is_true()) else {
            return Vec::new();
        };
        let ended = Started {
            reason: StartedReason::NotRunning,
            message: "the pod's shim has ended, and the pod with it".to_owned(),
        };
        self.conditions.want(&known.object, &ended, now).map(Write::Condition).into_iter().collect()
    }

    /// The API server has a pod of this node, or it has changed.
    pub fn pod_applied(&mut self, object: PodObject, now: Now) -> Vec<Write> {
        let pod = object.pod.clone();
        let known = self.objects.entry(pod.uid.clone()).or_insert_with(|| Known {
            object: object.clone(),
            bucket: Bucket::new(BURST, EVERY),
            mismatch: Mismatch::Unreported,
        });
        known.object = object;
        let mut writes = Vec::new();
        if newest(&self.stories, &pod.uid).is_some_and(|story| *story.pod() == pod) {
            let parked = self.parked.remove(&pod.uid).unwrap_or_default().into_values();
            let fresh: Vec<_> = parked.filter(|report| !report.is_stale(now.wall_ms)).collect();
            writes.extend(self.bounded(&pod.uid, fresh.into_iter(), now));
        }
        writes.extend(self.of_pod(&pod.uid, now));
        writes
    }

    /// The object of that pod, as it was known last.
    #[must_use]
    pub fn object(&self, uid: &str) -> Option<&PodObject> {
        self.objects.get(uid).map(|known| &known.object)
    }

    /// The API server has the pod with that uid no more.
    pub fn pod_gone(&mut self, uid: &str) -> Vec<Write> {
        self.objects.remove(uid);
        self.parked.remove(uid);
        self.conditions.forget(uid);
        vec![Write::Forget(uid.to_owned())]
    }

    /// All pods that the API server has are known: others are gone.
    pub fn pods_listed(&mut self, uids: &BTreeSet<String>) -> Vec<Write> {
        let gone: Vec<String> = self.objects.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        gone.iter().flat_map(|uid| self.pod_gone(uid)).collect()
    }

    /// The API server has taken a condition.
    pub fn condition_taken(&mut self, patch: &ConditionPatch, now: Now) {
        self.conditions.taken(patch, now);
    }

    /// Some time is over.
    pub fn tick(&mut self, now: Now) -> Vec<Write> {
        let is_named = |known: &&Known| known.object.gate == ReadinessGate::Named;
        let named = self.objects.values().filter(is_named);
        let uids: Vec<String> = named.map(|known| known.object.pod.uid.clone()).collect();
        uids.iter().flat_map(|uid| self.of_pod(uid, now)).collect()
    }

    /// The ids of the shims that are to be asked now; each is named once until it has answered.
    pub fn take_due(&mut self, now: Now) -> Vec<String> {
        let due = self.stories.iter_mut().filter_map(|(id, story)| story.take_due(now).then(|| id.clone()));
        due.collect()
    }

    /// When something is due, if nothing happens until then.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Option<Duration> {
        self.stories.values().filter_map(Story::next_due).chain(self.conditions.next_due(now)).min()
    }

    /// What follows from its object and its story together.
    fn of_pod(&mut self, uid: &str, now: Now) -> Vec<Write> {
        let Some(story) = newest(&self.stories, uid) else { return Vec::new() };
        let Some(known) = self.objects.get_mut(uid).filter(|known| known.object.pod == *story.pod()) else {
            return Vec::new();
        };
        let condition = self.conditions.want(&known.object, story.started(), now).map(Write::Condition);
        let mut writes: Vec<Write> = condition.into_iter().collect();
        if story.has_plan() && known.mismatch == Mismatch::Unreported {
            known.mismatch = Mismatch::Reported;
            let reports: Vec<Report> = known
                .object
                .contradictions
                .iter()
                .map(|text| {
                    let report = Report::new(&known.object.pod, Reason::PlanMismatch, text, &"", text);
                    report.at(now.wall_ms).while_so()
                })
                .collect();
            writes.extend(self.bounded(uid, reports.into_iter(), now));
        }
        writes
    }

    /// As many of them as the pod's bound allows.
    fn bounded(&mut self, uid: &str, reports: impl Iterator<Item = Report>, now: Now) -> Vec<Write> {
        let Some(known) = self.objects.get_mut(uid) else { return Vec::new() };
        let bucket = &mut known.bucket;
        reports
            .map(|report| if bucket.take(now.run) { Write::Report(report) } else { Write::Dropped })
            .collect()
    }
}

/// The newest story of a pod: a kubelet may make it another sandbox.
fn newest<'a>(stories: &'a BTreeMap<String, Story>, uid: &str) -> Option<&'a Story> {
    let of_pod = stories.values().filter(|story| story.pod().uid == uid);
    of_pod.max_by_key(|story| story.started_at_ms())
}

#[cfg(test)]
mod tests;
