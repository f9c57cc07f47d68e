//! What OpenKruise writes on a pod that its SidecarSets inject, and the plan that it means (S12).
//!
//! Owns Kruise's words. They are no words to podshim: nothing in them refuses a pod. May never know when they count; that is
//! the node's file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::excerpt::excerpt;
use crate::limits::MAX_VALUE_BYTES;
use crate::name::is_name;
use crate::plan::{Member, Others, Plan, Role, Source};

/// For each SidecarSet of the pod what it has injected, as JSON.
pub const SIDECARSETS: &str = "kruise.io/sidecarset-hash";
/// For each container that is upgraded hot the one of its two that works, as JSON.
pub const WORKING: &str = "kruise.io/sidecarset-working-hotupgrade-container";
/// `Ordered`: Kruise puts the pod's containers behind its start barrier, in the order of the pod's spec.
pub const LAUNCH: &str = "apps.kruise.io/container-launch-priority";
/// The variable by which Kruise's start barrier keeps a kubelet from creating a container, until all with a higher
/// priority are ready (S13).
pub const BARRIER: &str = "KRUISE_CONTAINER_BARRIER";
/// The variable that has a container's priority. Kruise makes barriers of it.
pub const PRIORITY: &str = "KRUISE_CONTAINER_PRIORITY";
/// The globs of containerd's `pod_annotations` by which a shim sees all of Kruise's marks (F7).
pub const GLOBS: [&str; 3] = ["kruise.io/*", "apps.kruise.io/*", "*.sidecarset.kruise.io/*"];

/// Why Kruise's marks make no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarksProblem {
    /// No JSON of the form that Kruise writes.
    #[error("{0} is not what OpenKruise writes")]
    Form(&'static str),
    /// Early releases of Kruise write no lists.
    #[error("no SidecarSet has a sidecarList")]
    NoList,
    /// No container can have that name.
    #[error("{0:?} is no container's name")]
    Name(String),
    /// More than a plan may have, or the node allows.
    #[error("more than {0} containers")]
    TooMany(usize),
}

/// Whether a plan can follow from an annotation of that key.
pub fn is_mark(key: &str) -> bool {
    [SIDECARSETS, WORKING].contains(&key)
}

/// S12: the plan of the marks; `None` if no SidecarSet has injected anything.
pub(crate) fn plan(
    annotations: &[(&str, &str)],
    kubelets_own: &BTreeSet<String>,
    most: usize,
) -> Option<Result<Plan, MarksProblem>> {
    let value =
        |wanted: &str| annotations.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value.trim());
    let sets = value(SIDECARSETS)?;
    match sidecars(sets, value(WORKING)) {
        Ok(mut sidecars) => {
            sidecars.retain(|sidecar| !kubelets_own.contains(&sidecar.name));
            (!sidecars.is_empty()).then(|| of_sidecars(&sidecars, most))
        }
        Err(problem) => Some(Err(problem)),
    }
}

/// One sidecar of a `sidecarList`.
struct Sidecar {
    name: String,
    upgrade: Upgrade,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Upgrade {
    /// One container.
    Cold,
    /// Two, which Kruise's controller flips.
    Hot,
}

/// The SidecarSets by name, as Kruise writes them, and the containers of each as its list has them.
fn sidecars(sets: &str, working: Option<&str>) -> Result<Vec<Sidecar>, MarksProblem> {
    let mut by_name: BTreeMap<String, Value> = BTreeMap::new();
    by_name.extend(object(SIDECARSETS, sets)?);
    let hot = working.map_or(Ok(Map::new()), |working| object(WORKING, working))?;
    let lists: Vec<&Vec<Value>> =
        by_name.values().filter_map(|set| set.get("sidecarList").and_then(Value::as_array)).collect();
    if lists.is_empty() && !by_name.is_empty() {
        return Err(MarksProblem::NoList);
    }
    let mut seen = BTreeSet::new();
    let mut sidecars = Vec::new();
    for name in lists.into_iter().flatten() {
        let name = name.as_str().ok_or(MarksProblem::Form(SIDECARSETS))?;
        if seen.insert(name) {
            let upgrade = if hot.contains_key(name) { Upgrade::Hot } else { Upgrade::Cold };
            sidecars.push(Sidecar { name: name.to_owned(), upgrade });
        }
    }
    Ok(sidecars)
}

fn object(key: &'static str, text: &str) -> Result<Map<String, Value>, MarksProblem> {
    let value = if text.len() > MAX_VALUE_BYTES { None } else { serde_json::from_str(text).ok() };
    match value {
        Some(Value::Object(object)) => Ok(object),
        _ => Err(MarksProblem::Form(key)),
    }
}

fn of_sidecars(sidecars: &[Sidecar], most: usize) -> Result<Plan, MarksProblem> {
    let mut plan = Plan::empty(Others::Mains);
    plan.settings.source = Source::Kruise;
    for (entry, sidecar) in sidecars.iter().enumerate() {
        let base = &sidecar.name;
        let names = match sidecar.upgrade {
            Upgrade::Cold => vec![base.clone()],
            // A group, not a standby pair: Kruise's controller flips them, and the one with the empty image runs too.
            Upgrade::Hot => vec![format!("{base}-1"), format!("{base}-2")],
        };
        for name in names {
            if !is_name(&name) {
                return Err(MarksProblem::Name(excerpt(&name)));
            }
            // A list that has the name of a half beside its base says nothing new.
            if plan.member(&name).is_none() {
                plan.members.push(Member::new(&name, Role::Sidecar, entry));
            }
        }
        if plan.members.len() > most {
            return Err(MarksProblem::TooMany(most));
        }
    }
    Ok(plan)
}
