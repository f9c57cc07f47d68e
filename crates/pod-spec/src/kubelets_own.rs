//! The containers that are the kubelet's own (S8): what a plan calls `none`, and what the node's list has. Owns the names, the
//! patterns of that list, and the names that are in it on every node. Never knows what follows for such a container.

use std::collections::BTreeSet;

use crate::limits::MAX_NAME_BYTES;
use crate::name::is_name;

/// What public injectors call their init containers, and `kubectl debug` its own. Their kubelet runs them to completion
/// before it creates the containers of a plan, or they are nothing that a pod waits for.
const WELL_KNOWN: [&str; 19] = [
    "istio-init",
    "istio-validation",
    "enable-core-dump",
    "linkerd-init",
    "linkerd-network-validator",
    "kuma-init",
    "kuma-validation",
    "consul-connect-inject-init*",
    "osm-init",
    "proxyinit",
    "azwi-proxy-init",
    "vault-agent-init",
    "copy-vault-env",
    "copy-op-bin",
    "install-oneagent",
    "datadog-init-*",
    "datadog-lib-*",
    "opentelemetry-auto-instrumentation*",
    "debugger-*",
];

/// Which containers are the kubelet's own unless the plan gives them another role.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeletsOwn {
    /// What the pod's annotations call `none`.
    pub named: BTreeSet<String>,
    /// What the node's file adds to the well-known names.
    pub listed: Vec<NamePattern>,
}

impl KubeletsOwn {
    /// Whether a container of that name is one.
    pub fn has(&self, name: &str) -> bool {
        self.named.contains(name)
            || WELL_KNOWN.iter().any(|pattern| matches(pattern, name))
            || self.listed.iter().any(|pattern| matches(&pattern.0, name))
    }
}

/// A container's name, or the beginning of names with a `*` behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamePattern(String);

impl NamePattern {
    /// `None` if no container's name can match, or every name does.
    pub fn new(text: &str) -> Option<Self> {
        let begins = text.strip_suffix('*');
        // A name ends with a letter or a digit, its beginning need not.
        let is_valid = match begins {
            Some(beginning) => is_name(&format!("{beginning}0")),
            None => is_name(text),
        };
        (is_valid && begins != Some("") && text.len() <= MAX_NAME_BYTES).then(|| Self(text.to_owned()))
    }
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == pattern,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s8_the_well_known_names_are_patterns() {
        for pattern in WELL_KNOWN {
            assert!(NamePattern::new(pattern).is_some(), "{pattern}");
        }
    }

    #[test]
    fn s8_a_pattern_is_a_name_or_a_beginning() {
        let own = |texts: &[&str]| KubeletsOwn {
            named: BTreeSet::new(),
            listed: texts.iter().filter_map(|text| NamePattern::new(text)).collect(),
        };
        let listed = own(&["copy-*", "load"]);
        for (name, expected) in [
            ("copy-x", true),
            ("copy-", true),
            ("copy", false),
            ("load", true),
            ("loader", false),
            ("debugger-7xk2p", true),
            ("debugger", false),
            ("istio-init", true),
            ("istio-proxy", false),
        ] {
            assert_eq!(listed.has(name), expected, "{name}");
        }
        for bad in ["", "*", "a*b", "*a", "-a", "a b*", "a/*", "-"] {
            assert_eq!(NamePattern::new(bad), None, "{bad}");
        }
        assert!(NamePattern::new(&"a".repeat(MAX_NAME_BYTES)).is_some());
        assert_eq!(NamePattern::new(&format!("{}*", "a".repeat(MAX_NAME_BYTES))), None);
    }
}
