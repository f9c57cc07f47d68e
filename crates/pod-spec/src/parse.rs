//! One pass over a pod's annotations: classifies every key, reads its value and keeps every error; makes a plan only if
//! there is no error (S5). Owns the order of the checks; the modules below own the grammar of each value. Never makes a
//! plan of a part of the annotations.

mod after;
mod codes;
mod container;
mod fatal;
mod findings;
mod gate;
mod list;
mod options;
mod restart;
mod roles;
mod together;
mod word;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::drain_priority;
use crate::duration;
use crate::error::{InvalidPlan, Problem, printable_key};
use crate::excerpt::excerpt;
use crate::keys::{
    CONTAINER_KEYS, ContainerKey, DRAIN_PRIORITY, EXIT_CODES, OOM_SCORES, POD_KEYS, PREFIX, PodKey,
    RESTART_POLICIES, RESTART_REQUEST, ZERO_GRACES,
};
use crate::limits::{MAX_KEYS, MAX_VALUE_BYTES};
use crate::nearest::{Hint, choose, hint_for_name, nearest};
use crate::plan::Plan;
use crate::restart_request;

use container::Containers;
use findings::Findings;
pub use findings::Parsed;
pub(crate) use gate::kind as gate_kind;
use roles::Roles;
use word::word;

/// Reads the annotations of a pod's sandbox (or of a `ctr` container); ignores keys that are not podshim's.
///
/// With `*=main`, a key of a container that the plan does not name makes that container a named main, as if it stood at
/// the end of the list: `*` makes it a main anyway, and so its settings have a place.
///
/// # Errors
/// S5: everything of 11.4 that annotations alone can show, all of it at once.
pub fn parse<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Parsed, InvalidPlan> {
    // Sorted, so that the same pod gets the same message whatever map the caller uses.
    let mut ours = BTreeMap::new();
    ours.extend(annotations.into_iter().filter_map(|(key, value)| Some((key.strip_prefix(PREFIX)?, value))));
    if ours.is_empty() {
        return Ok(Parsed::default());
    }
    let mut findings = Findings::default();
    without_plan(&mut ours, &mut findings);
    if ours.is_empty() {
        return findings.finish(None);
    }
    if ours.len() > MAX_KEYS {
        findings.error("plan", Problem::TooManyKeys { count: ours.len() });
        return findings.finish(None);
    }
    let roles = Roles::of(&ours);
    let kubelets_own = roles.kubelets_own(&mut findings);
    if roles.say_no_more(&ours) {
        return Ok(Parsed { kubelets_own, ..findings.finish(None)? });
    }
    let mut containers = plan_list(&ours, &roles, &mut findings);
    containers.kubelets_own.extend(kubelets_own);
    let mut plan = Plan::empty(containers.others);
    for (key, value) in &ours {
        if value.len() > MAX_VALUE_BYTES {
            findings.error(key, Problem::ValueTooLong { bytes: value.len() });
            // Its container counts as known all the same: only its value is not read.
            continue;
        }
        let value = value.trim();
        match classify(key) {
            Ok(Key::Pod(pod_key)) => set(&mut plan, pod_key, key, value, &mut findings),
            Ok(Key::Container(container_key, name)) => {
                containers.set(container_key, name, key, value, &mut findings);
            }
            Err(problem) => findings.error(key, problem),
        }
    }
    containers.check_after(&mut findings);
    together::check(&plan.settings, &containers, &mut findings);
    plan.members = containers.members();
    plan.kubelets_own.named = containers.kubelets_own;
    findings.finish(Some(plan))
}

/// N11, R14: the keys that need no plan, and are no part of one.
fn without_plan(ours: &mut BTreeMap<&str, &str>, findings: &mut Findings) {
    let value = ours.remove(DRAIN_PRIORITY);
    if let Some(Err(problem)) = value.map(drain_priority::parse) {
        findings.error(DRAIN_PRIORITY, problem);
    }
    let value = ours.remove(RESTART_REQUEST);
    if let Some(Err(problem)) = value.map(restart_request::parse) {
        findings.error(RESTART_REQUEST, problem);
    }
}

/// The containers of `podshim.io/plan`, or of the `role.<c>` (S10). Without a readable list every name counts as known, so that one mistake does
/// not make an error for every key.
fn plan_list(ours: &BTreeMap<&str, &str>, roles: &Roles<'_>, findings: &mut Findings) -> Containers {
    if let (Some(_), Some((key, name, _))) = (ours.get("plan"), roles.planned.first()) {
        findings.error(key, Problem::RoleBesidePlan { name: excerpt(name) });
    }
    match ours.get("plan") {
        Some(value) if value.len() <= MAX_VALUE_BYTES => {
            let list = list::parse(value, findings);
            roles.check_planned(&list, findings);
            Containers::from_list(list)
        }
        Some(_) => Containers::unknown(),
        None if !roles.planned.is_empty() => Containers::from_list(roles::list(&roles.planned, findings)),
        None => {
            // Not for a misspelt `plan`, whose error has its own hint.
            if let Some(key) = ours.keys().find(|key| classify(key).is_ok() && !roles.needs_no_plan(key)) {
                findings.error("plan", Problem::PlanMissing { key: printable_key(key) });
            }
            Containers::unknown()
        }
    }
}

/// What a key is about.
enum Key<'a> {
    Pod(PodKey),
    Container(ContainerKey, &'a str),
}

/// Splits a key, given without the prefix. A key's word has no dot; names may have one.
fn classify(key: &str) -> Result<Key<'_>, Problem> {
    match key.split_once('.') {
        None => choose(key, &POD_KEYS).map(Key::Pod).map_err(|_| not_of_the_pod(key)),
        Some((word, name)) => match choose(word, &CONTAINER_KEYS) {
            Ok(_) if name.is_empty() => Err(not_of_the_pod(word)),
            Ok(container_key) => Ok(Key::Container(container_key, name)),
            Err(_) => Err(not_of_a_container(word, name)),
        },
    }
}

/// The error for a word without a container that is no key of the pod.
fn not_of_the_pod(word: &str) -> Problem {
    if let Some((word, _)) = CONTAINER_KEYS.iter().find(|(valid, _)| *valid == word) {
        return Problem::ContainerMissing { word };
    }
    let words = POD_KEYS.iter().map(|(word, _)| *word).chain(CONTAINER_KEYS.iter().map(|(word, _)| *word));
    let hint = match nearest(word, words) {
        Some(word) if POD_KEYS.iter().any(|(valid, _)| *valid == word) => {
            Hint::Nearest(format!("{PREFIX}{word}"))
        }
        Some(word) => Hint::Nearest(format!("{PREFIX}{word}.<container>")),
        None => Hint::Nothing,
    };
    Problem::UnknownKey { hint }
}

/// The error for a word with a container that is no key of a container.
fn not_of_a_container(word: &str, name: &str) -> Problem {
    if let Some((word, _)) = POD_KEYS.iter().find(|(valid, _)| *valid == word) {
        return Problem::OfThePod { word };
    }
    let hint = match nearest(word, CONTAINER_KEYS.iter().map(|(word, _)| *word)) {
        Some(word) => Hint::Nearest(format!("{PREFIX}{word}.{}", excerpt(name))),
        None => hint_for_name(word, POD_KEYS.iter().map(|(word, _)| *word)),
    };
    Problem::UnknownKey { hint }
}

/// Reads one of the pod's own keys.
fn set(plan: &mut Plan, pod_key: PodKey, key: &str, value: &str, findings: &mut Findings) {
    match pod_key {
        // Read before all other keys.
        PodKey::Plan | PodKey::DrainPriority | PodKey::RestartRequest => {}
        PodKey::RestartPolicy => {
            findings.keep(key, word(value, &RESTART_POLICIES), &mut plan.settings.restart_policy)
        }
        PodKey::Grace => findings.keep(key, duration::parse(value).map(Some), &mut plan.settings.grace),
        PodKey::Reserve => findings.keep(key, duration::parse(value).map(Some), &mut plan.settings.reserve),
        PodKey::GateTimeout => findings.keep(key, gate_timeout(value), &mut plan.settings.gate_timeout),
        PodKey::ZeroGrace => findings.keep(key, word(value, &ZERO_GRACES), &mut plan.settings.zero_grace),
        PodKey::ExitCodes => findings.keep(key, word(value, &EXIT_CODES), &mut plan.settings.exit_codes),
        PodKey::OomScore => findings.keep(key, word(value, &OOM_SCORES), &mut plan.settings.oom_score),
    }
}

/// `gate-timeout`: 0, with or without a unit, means no limit (U6).
fn gate_timeout(value: &str) -> Result<Option<Duration>, Problem> {
    if value == "0" {
        return Ok(None);
    }
    Ok(Some(duration::parse(value)?).filter(|timeout| !timeout.is_zero()))
}
