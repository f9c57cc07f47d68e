//! The node's shutdown: the properties of a container's systemd scope, so that systemd stops it after the drain, and whether
//! the node is being drained.
//!
//! Owns these properties. Decides nothing of the order of a pod's stop, which is `pod-lifecycle`'s.

use std::io;
use std::path::Path;
use std::time::Duration;

use oci_runtime::spec::Spec;
use pod_lifecycle::{ContainerId, StopOrder};
use serde_json::{Value, json};

use crate::spec_draft::SpecDraft;

/// The prefix of annotations that runc and crun turn into properties of the scope when they create it. Later is too late:
/// systemd does not change the order of a live scope.
const PROPERTY: &str = "org.systemd.property.";
/// The unit whose stop is `podshim drain`. systemd stops what starts before it after it: by then the pods have ended.
const DRAIN_UNIT: &str = "podshim-drain.service";
/// systemd's last target. A scope outside a pod's slice (ctr's) has no other relation to it.
const SHUTDOWN: &str = "shutdown.target";

/// The longest time that systemd gives a scope to end. The drain has given the pod all of its time before (this is the drain's
/// own limit); a grace of a year would keep the node from going down.
const SCOPE_LONGEST: Duration = Duration::from_secs(300);

/// A property of a scope: its name without the prefix, and its value.
pub(crate) type Property = (&'static str, String);

/// N7: while this file exists, no container is created on the node. A directory of that name is a namespace's state.
pub(crate) fn is_draining(file: &Path) -> bool {
    file.is_file()
}

/// The scope that an OCI runtime creates for a `cgroupsPath` of the systemd driver, which is `slice:prefix:name`. N6: under the
/// cgroupfs driver there is none, and `podshim drain` alone keeps the order.
pub(crate) fn scope_of(spec: &Spec) -> Option<String> {
    let path = spec.linux.as_ref()?.cgroups_path.as_deref()?;
    let mut parts = path.splitn(3, ':');
    let (_slice, prefix, name) = (parts.next()?, parts.next()?, parts.next()?);
    // A name with the suffix of a slice makes a slice, not a scope.
    (!name.is_empty() && !name.ends_with(".slice")).then(|| format!("{prefix}-{name}.scope"))
}

/// N5: a new container's place in its pod's stop, as properties of its scope. `order` is `None` for a pod without a plan, whose specs
/// stay as they are.
pub(crate) fn properties_of(
    order: Option<StopOrder>,
    id: &ContainerId,
    scope: impl Fn(&ContainerId) -> Option<String>,
) -> Vec<Property> {
    match (order, scope(id)) {
        (Some(order), Some(_)) => properties(&order, scope),
        _ => Vec::new(),
    }
}

/// Adds the properties to the spec, for systemd.
///
/// # Errors
/// [`SpecDraft::changed`].
pub(crate) fn add_to(draft: SpecDraft, properties: Vec<Property>) -> io::Result<SpecDraft> {
    if properties.is_empty() {
        return Ok(draft);
    }
    draft.changed(|spec| {
        add(spec, properties);
        Ok(())
    })
}

/// A unit that starts before another is stopped after it. No property may name a scope that a restart in place (R6) recreates:
/// systemd keeps a unit that another unit names, and the restart finds its scope taken (seen with runc 1.1 and 1.3).
fn properties(order: &StopOrder, scope: impl Fn(&ContainerId) -> Option<String>) -> Vec<Property> {
    let mut properties = vec![
        ("Before", list([DRAIN_UNIT.to_owned(), SHUTDOWN.to_owned()])),
        ("Conflicts", list([SHUTDOWN.to_owned()])),
        ("TimeoutStopUSec", format!("uint64 {}", order.grace.min(SCOPE_LONGEST).as_micros())),
    ];
    // runc fails on an empty list.
    if let Some(sandbox) = order.outlived_by.as_ref().and_then(scope) {
        properties.push(("After", list([sandbox])));
    }
    properties
}

/// A list of units in the one form that runc and crun both parse.
fn list(units: impl IntoIterator<Item = String>) -> String {
    let units: Vec<_> = units.into_iter().map(|unit| format!("'{unit}'")).collect();
    format!("[{}]", units.join(", "))
}

/// Adds the properties that the container's own annotations do not set.
fn add(spec: &mut Value, properties: Vec<Property>) {
    if spec.get("annotations").is_none_or(Value::is_null) {
        spec["annotations"] = json!({});
    }
    let Some(annotations) = spec["annotations"].as_object_mut() else { return };
    for (name, value) in properties {
        annotations.entry(format!("{PROPERTY}{name}")).or_insert(value.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(cgroups_path: &str) -> Spec {
        serde_json::from_value(json!({"linux": {"cgroupsPath": cgroups_path}})).unwrap()
    }

    #[test]
    fn n5_only_the_systemd_driver_makes_scopes() {
        for (path, scope) in [
            ("kubepods-pod1.slice:cri-containerd:abc", Some("cri-containerd-abc.scope")),
            ("system.slice:ctr:web", Some("ctr-web.scope")),
            (":ctr:web", Some("ctr-web.scope")),
            ("a.slice:b:c.slice", None),
            ("/kubepods/pod1/abc", None),
            ("pods:abc", None),
        ] {
            assert_eq!(scope_of(&spec(path)).as_deref(), scope, "{path}");
        }
        assert_eq!(scope_of(&Spec::default()), None);
    }

    /// N5, R6: the drain and the sandbox, and no scope that may be recreated.
    #[test]
    fn n5_r6_a_container_is_after_the_sandbox_and_before_the_drain() {
        let order = StopOrder { outlived_by: Some("pause".into()), grace: Duration::from_secs(32) };
        let scope = |id: &ContainerId| Some(format!("c-{id}.scope"));
        let mut changed =
            json!({"annotations": {"org.systemd.property.Conflicts": "['x.target']", "a": "b"}});
        add(&mut changed, properties(&order, scope));
        assert_eq!(
            changed["annotations"],
            json!({
                "a": "b",
                "org.systemd.property.Before": "['podshim-drain.service', 'shutdown.target']",
                "org.systemd.property.After": "['c-pause.scope']",
                "org.systemd.property.Conflicts": "['x.target']",
                "org.systemd.property.TimeoutStopUSec": "uint64 32000000",
            })
        );
        let year = StopOrder { outlived_by: None, grace: pod_spec::limits::MAX_DURATION };
        let timeout = properties(&year, scope).into_iter().find(|(name, _)| *name == "TimeoutStopUSec");
        assert_eq!(timeout.map(|(_, value)| value).as_deref(), Some("uint64 300000000"));
        let first = StopOrder { outlived_by: None, ..order };
        let mut changed = json!({"annotations": null});
        add(&mut changed, properties(&first, scope));
        assert_eq!(changed["annotations"].get("org.systemd.property.After"), None);
    }
}
