//! Pods that have ended, as the commands show them. Owns how one is found; the shim decides what a record keeps.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use control_api::event::Kind;
use control_api::{Event, StopReason};
use node_state::past;
use serde::Serialize;

use crate::events::EventReport;
use crate::outcome::CommandError;
use crate::pods::{ContainerReport, PodReport, PodState};
use crate::words;

/// A pod that has ended.
#[derive(Debug, Serialize)]
pub struct PastReport {
    /// When it ended, in milliseconds since 1970.
    pub ended_at_ms: i64,
    /// Its shim was killed: what happened before that is not known.
    pub shim_was_killed: bool,
    /// Why the pod was stopped: the newest reason in its events. The end of the sandbox always comes last, so it counts
    /// only if there is no other reason.
    #[serde(serialize_with = "words::serialize_some")]
    pub reason: Option<StopReason>,
    /// The last state of the pod.
    pub pod: PodReport,
    /// How many events at the beginning were not kept.
    pub lost: u64,
    /// What happened to it. Lists leave it out.
    #[serde(skip)]
    pub events: Vec<EventReport>,
}

/// All recorded pods that ended at or after a time, oldest first, and the records that could not be read.
///
/// # Errors
/// The directory cannot be read.
pub fn list(root: &Path, since_ms: i64) -> Result<(Vec<PastReport>, Vec<PathBuf>), CommandError> {
    let (all, unreadable) = past::list(root)
        .map_err(|error| CommandError::Input(format!("cannot read {}: {error}", root.display())))?;
    let recent = all.into_iter().filter(|past| past.ended_at_ms >= since_ms);
    Ok((recent.map(PastReport::of).collect(), unreadable))
}

/// The newest pod with that id or name. A whole id or name goes before a prefix.
///
/// # Errors
/// No pod matches, or a prefix fits several pods.
pub fn find(root: &Path, called: &str, namespace: Option<&str>) -> Result<PastReport, CommandError> {
    let (mut all, _) = list(root, i64::MIN)?;
    all.retain(|past| past.is_in(namespace));
    let is_whole = |past: &PastReport| {
        past.pod.id == called || past.pod.name.as_deref() == Some(called) || past.pod.title() == called
    };
    if let Some(at) = all.iter().rposition(is_whole) {
        return Ok(all.swap_remove(at));
    }
    all.retain(|past| past.has_name(called));
    let titles: BTreeSet<String> = all.iter().map(|past| past.pod.title()).collect();
    match all.pop() {
        Some(newest) if titles.len() == 1 => Ok(newest),
        Some(_) => {
            let titles: Vec<_> = titles.into_iter().collect();
            Err(CommandError::Input(format!("{called:?} can be any of: {}", titles.join(", "))))
        }
        None => Err(CommandError::Input(format!(
            "no pod {called:?} in {}: `podshim history` lists them",
            root.display()
        ))),
    }
}

/// All that is known of a pod whose shim was killed: when its containers ended, and the codes that the shim had recorded.
fn exits(pod: &PodReport) -> Vec<EventReport> {
    let ended = |container: &ContainerReport| Some((container.exited_at_ms?, container.real_exit_code));
    let mut ends: Vec<_> = pod
        .containers
        .iter()
        .filter_map(|container| Some((ended(container)?, container.name.clone())))
        .collect();
    ends.sort();
    // The shim's clock has gone with it.
    let first = ends.first().map_or(0, |((at, _), _)| *at);
    let event = |(sequence, ((at, code), name)): (u64, ((i64, Option<u32>), String))| {
        EventReport::of(Event {
            sequence,
            wall_ms: at,
            monotonic_ms: u64::try_from(at - first).unwrap_or_default(),
            kind: Kind::EXITED.into(),
            name,
            code,
            ..Default::default()
        })
    };
    (1..).zip(ends).map(event).collect()
}

impl PastReport {
    /// The report of a record.
    pub fn of(past: control_api::Past) -> Self {
        let (answer, events) =
            (past.pod.into_option().unwrap_or_default(), past.events.into_option().unwrap_or_default());
        let mut pod = PodReport::of_answer(answer);
        // The record has the pod as the shim last saw it; all of it has ended since.
        if !matches!(pod.state, PodState::Completed | PodState::Failed) {
            pod.state = PodState::Stopped;
        }
        let lost = events.lost;
        let mut events: Vec<_> = events.events.into_iter().map(EventReport::of).collect();
        if past.shim_was_killed && events.is_empty() {
            events = exits(&pod);
        }
        let reasons = || events.iter().rev().filter_map(|event| event.reason);
        let cause =
            reasons().find(|reason| *reason != StopReason::SANDBOX_ENDED).or_else(|| reasons().next());
        Self {
            ended_at_ms: past.ended_at_ms,
            shim_was_killed: past.shim_was_killed,
            reason: cause.or_else(|| pod.stop.as_ref().map(|stop| stop.reason)),
            pod,
            lost,
            events,
        }
    }

    /// Whether `word` means this pod: namespace/name, or a prefix of its name or id.
    pub fn has_name(&self, word: &str) -> bool {
        let name = self.pod.name.as_deref().unwrap_or_default();
        !word.is_empty()
            && (name.starts_with(word) || self.pod.id.starts_with(word) || self.pod.title() == word)
    }

    /// Whether it was in that namespace of Kubernetes, if one is asked for.
    pub fn is_in(&self, namespace: Option<&str>) -> bool {
        namespace.is_none_or(|namespace| self.pod.pod_namespace.as_deref() == Some(namespace))
    }

    /// How long it lived, in milliseconds; `None` if its start is not known.
    pub fn lived_ms(&self) -> Option<i64> {
        self.pod.started_at_ms.filter(|at| *at > 0).map(|at| self.ended_at_ms - at)
    }

    /// How many restarts by podshim there were. A shim of the release before did not count them: then those in its events, with a
    /// `+` if events are lost.
    pub fn restarts(&self) -> String {
        let counted = self.pod.containers.iter().filter_map(|container| container.restarts_total);
        if let Some(all) = counted.reduce(u32::saturating_add) {
            return all.to_string();
        }
        let seen = self.events.iter().filter(|event| event.kind == Kind::RESTART_DUE).count();
        format!("{seen}{}", if self.lost > 0 { "+" } else { "" })
    }

    /// The word for why it ended.
    pub fn why(&self) -> String {
        match self.reason {
            _ if self.shim_was_killed => "shim-killed".to_owned(),
            Some(reason) => reason.word().to_owned(),
            None => "-".to_owned(),
        }
    }
}
