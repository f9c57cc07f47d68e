//! The node: its pods' stories and their objects, and what of them is to be written.
//!
//! Owns which pod may be written about: one that the API server has on this node, with the uid, namespace and name that its shim knows.
//! Has no IO and knows no clock. Decides nothing about a pod.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use control_api::{Event, InspectResponse};

use crate::bucket::Bucket;
use crate::conditions::{ConditionPatch, Conditions};
use crate::object::{PodObject, ReadinessGate, Shown, Status};
use crate::report::{PodName, Reason, Report, Topic};
use crate::story::started::{Started, StartedReason};
use crate::story::{Change, Now, Question, Story};

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
    /// The shims that were found in the run directory and have not ended, by their ids.
    found: BTreeMap<String, FoundShim>,
    directory: Directory,
}

/// A shim that was found in the run directory, whether it answers or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundShim {
    /// Its id.
    pub id: String,
    /// The namespace of its pod in Kubernetes.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
}

/// Whether the run directory was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Directory {
    #[default]
    Unread,
    Read,
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
                Change::Dropped => writes.push(Write::Dropped),
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

    /// The run directory was read. These shims are new in it.
    pub fn shims_found(&mut self, found: Vec<FoundShim>, now: Now) -> Vec<Write> {
        self.found.extend(found.into_iter().map(|shim| (shim.id.clone(), shim)));
        if self.directory == Directory::Read {
            return Vec::new();
        }
        self.directory = Directory::Read;
        self.without_shim(now)
    }

    /// A shim has ended, or it was dead when it was found.
    pub fn shim_gone(&mut self, id: &str, now: Now) -> Vec<Write> {
        self.found.remove(id);
        let Some(story) = self.stories.remove(id) else { return self.without_shim(now) };
        let (uid, mut open) = (&story.pod().uid, story.open());
        let next = newest(&self.stories, uid);
        // What the next one has reported is so.
        let still: BTreeSet<Topic> = next.map(Story::open).unwrap_or_default();
        open.retain(|topic| !still.contains(topic));
        let has_next = next.is_some();
        let mut writes: Vec<Write> = open.into_iter().map(Write::Withdraw).collect();
        if has_next {
            writes.extend(self.of_pod(uid, now));
            return writes;
        }
        self.parked.remove(uid);
        // After a stop it is false already.
        if let Some(known) = self.objects.get(uid)
            && story.started(&known.object.containers).reason.is_true()
        {
            writes.extend(self.conditions.want(&known.object, &ended(), now).map(Write::Condition));
        }
        writes
    }

    /// Pods that ended while there was no agent, as those of a node that was booted again: their objects show what was so before.
    fn without_shim(&mut self, now: Now) -> Vec<Write> {
        if self.directory == Directory::Unread {
            return Vec::new();
        }
        let is_served = |object: &PodObject| {
            let PodName { uid, namespace, name } = &object.pod;
            let of_pod = |shim: &FoundShim| (&shim.namespace, &shim.name) == (namespace, name);
            newest(&self.stories, uid).is_some() || self.found.values().any(of_pod)
        };
        // Of a pod that another runtime runs another program writes the condition.
        let is_own =
            |shown: &Shown| shown.status == Status::True && StartedReason::true_by(&shown.reason).is_some();
        let objects = self.objects.values().map(|known| &known.object);
        let shown = objects.filter(|object| object.condition.as_ref().is_some_and(is_own));
        let ended_pods: Vec<&PodObject> = shown.filter(|object| !is_served(object)).collect();
        let conditions = &mut self.conditions;
        let wanted = ended_pods.into_iter().filter_map(|object| conditions.want(object, &ended(), now));
        wanted.map(Write::Condition).collect()
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
            let (stale, fresh): (Vec<_>, Vec<_>) = parked.partition(|report| report.is_stale(now.wall_ms));
            writes.extend(stale.iter().map(|_| Write::Dropped));
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
    pub fn pods_listed(&mut self, uids: &BTreeSet<String>, now: Now) -> Vec<Write> {
        let gone: Vec<String> = self.objects.keys().filter(|uid| !uids.contains(*uid)).cloned().collect();
        let mut writes: Vec<Write> = gone.iter().flat_map(|uid| self.pod_gone(uid)).collect();
        writes.extend(self.without_shim(now));
        writes
    }

    /// The API server has taken a condition, or has no such pod.
    pub fn condition_answered(&mut self, patch: &ConditionPatch, now: Now) {
        self.conditions.answered(patch, now);
    }

    /// Some time is over.
    pub fn tick(&mut self, now: Now) -> Vec<Write> {
        let is_named = |known: &&Known| known.object.gate == ReadinessGate::Named;
        let named = self.objects.values().filter(is_named);
        let uids: Vec<String> = named.map(|known| known.object.pod.uid.clone()).collect();
        uids.iter().flat_map(|uid| self.of_pod(uid, now)).collect()
    }

    /// What shims are to be asked now, with their ids; each is named once until it has answered.
    pub fn take_due(&mut self, now: Now) -> Vec<(String, Question)> {
        let due = self.stories.iter_mut().filter_map(|(id, story)| Some((id.clone(), story.take_due(now)?)));
        due.collect()
    }

    /// When something is due, if nothing happens until then.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Option<Duration> {
        self.stories.values().filter_map(Story::next_due).chain(self.conditions.next_due(now)).min()
    }

    /// What follows from its object and its story together.
    fn of_pod(&mut self, uid: &str, now: Now) -> Vec<Write> {
        let Some(id) = newest_id(&self.stories, uid) else { return Vec::new() };
        let Some(story) = self.stories.get_mut(&id) else { return Vec::new() };
        let Some(known) = self.objects.get_mut(uid).filter(|known| known.object.pod == *story.pod()) else {
            return Vec::new();
        };
        let started = story.started(&known.object.containers);
        let condition = self.conditions.want(&known.object, &started, now).map(Write::Condition);
        let mut writes: Vec<Write> = condition.into_iter().collect();
        story.want_kubelets_own(&known.object.kubelets_own);
        let refused = story.want_restart(known.object.restart.as_deref(), now);
        if story.has_plan() && known.mismatch == Mismatch::Unreported {
            known.mismatch = Mismatch::Reported;
            let object = &known.object;
            let mistaken = object.mistaken_mains.iter().filter(|_| !story.takes_kubelets_own());
            let reports: Vec<Report> = object
                .contradictions
                .iter()
                .chain(mistaken)
                .map(|text| {
                    let report = Report::new(&object.pod, Reason::PlanMismatch, text, &"", text);
                    report.at(now.wall_ms).while_so()
                })
                .collect();
            writes.extend(self.bounded(uid, reports.into_iter(), now));
        }
        writes.extend(self.bounded(uid, refused.into_iter(), now));
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

/// The condition of a pod whose shim has ended.
fn ended() -> Started {
    Started {
        reason: StartedReason::NotRunning,
        message: "the pod's shim has ended, and the pod with it".to_owned(),
    }
}

/// The newest story of a pod: a kubelet may make it another sandbox.
fn newest<'a>(stories: &'a BTreeMap<String, Story>, uid: &str) -> Option<&'a Story> {
    stories.get(&newest_id(stories, uid)?)
}

fn newest_id(stories: &BTreeMap<String, Story>, uid: &str) -> Option<String> {
    let of_pod = stories.iter().filter(|(_, story)| story.pod().uid == uid);
    of_pod.max_by_key(|(_, story)| story.started_at_ms()).map(|(id, _)| id.clone())
}

#[cfg(test)]
mod tests;
