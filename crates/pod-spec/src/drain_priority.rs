//! When a drain of the node ends a pod (N11): `podshim.io/drain-priority`, or what a kubelet marks as critical.
//!
//! Owns the value's grammar and the default. It is no part of a plan: a pod without one is drained too.

use crate::error::Problem;
use crate::excerpt::excerpt;
use crate::keys::{DRAIN_PRIORITY, PREFIX};

/// What Kubernetes gives to `system-cluster-critical`, and what a kubelet's graceful shutdown takes for critical.
const CRITICAL: i32 = 2_000_000_000;

/// Where a kubelet has a pod from. It treats pods of any other source than the API server as critical.
const KUBELET_SOURCE: &str = "kubernetes.io/config.source";

/// The priority of a pod with these annotations: a drain ends pods with a lower one first. A value that is not valid counts as
/// 0; [`crate::parse()`] reports it.
pub fn drain_priority<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> i32 {
    let (mut given, mut default) = (None, 0);
    for (key, value) in annotations {
        if key.strip_prefix(PREFIX) == Some(DRAIN_PRIORITY) {
            given = Some(parse(value).unwrap_or_default());
        } else if key == KUBELET_SOURCE && value != "api" {
            default = CRITICAL;
        }
    }
    given.unwrap_or(default)
}

/// Reads a value of the key.
pub(crate) fn parse(value: &str) -> Result<i32, Problem> {
    value.trim().parse().map_err(|_| Problem::NotAPriority { value: excerpt(value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n11_the_key_counts_before_the_kubelets_mark() {
        let priority =
            |annotations: &[(&'static str, &'static str)]| drain_priority(annotations.iter().copied());
        let key = "podshim.io/drain-priority";
        for (annotations, expected) in [
            (&[][..], 0),
            (&[(key, "100")], 100),
            (&[(key, " -5 ")], -5),
            (&[(key, "high")], 0),
            (&[(KUBELET_SOURCE, "api")], 0),
            (&[(KUBELET_SOURCE, "file")], CRITICAL),
            (&[(KUBELET_SOURCE, "file"), (key, "7")], 7),
            (&[(key, "7"), (KUBELET_SOURCE, "http")], 7),
        ] {
            assert_eq!(priority(annotations), expected, "{annotations:?}");
        }
    }
}
