//! What the tests read of a pod. Changes nothing of it.

use std::collections::BTreeMap;

use serde_json::Value;

pub fn annotations(pod: &Value) -> BTreeMap<String, String> {
    let entries = pod["metadata"]["annotations"].as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), value.as_str().expect("a string").to_owned())).collect()
}

pub fn names<'a>(pod: &'a Value, list: &str) -> Vec<&'a str> {
    let containers = pod["spec"][list].as_array().into_iter().flatten();
    containers.map(|container| container["name"].as_str().expect("a name")).collect()
}

pub fn native_sidecars(pod: &Value) -> Vec<&str> {
    let inits = pod["spec"]["initContainers"].as_array().into_iter().flatten();
    let natives = inits.filter(|container| container["restartPolicy"] == "Always");
    natives.map(|container| container["name"].as_str().expect("a name")).collect()
}
