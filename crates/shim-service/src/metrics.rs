//! The numbers of a container's cgroups as containerd's metrics messages.
//!
//! Owns the translation, field by field. May read no files, and never scale or add up numbers. What the kernel did not
//! report stays unset, except where containerd would crash (see `v1`).

mod v1;
mod v2;

use cgroups::Stats;
use protobuf::Message;
use protobuf::well_known_types::any::Any;

/// The resource numbers of one container, for `StatsResponse.stats` (CONTRACT §8).
///
/// The type is `io.containerd.cgroups.v1.Metrics` or `io.containerd.cgroups.v2.Metrics`, by the version of the host's
/// cgroups. Networks stay unset in both: they belong to the pod's network namespace, not to a cgroup.
pub(crate) fn to_any(stats: &Stats) -> Any {
    match stats {
        Stats::V1(stats) => pack(V1_METRICS, &v1::metrics(stats)),
        Stats::V2(stats) => pack(V2_METRICS, &v2::metrics(stats)),
    }
}

// As text: the messages' own names would link protobuf's reflection into the shim, 250 kB.
const V1_METRICS: &str = "io.containerd.cgroups.v1.Metrics";
const V2_METRICS: &str = "io.containerd.cgroups.v2.Metrics";

fn pack(name: &str, metrics: &impl Message) -> Any {
    Any {
        // containerd's collectors look this name up as it is; `Any::pack` would prefix a host.
        type_url: name.to_owned(),
        // invariant: encoding fails only for a missing required field, which proto3 does not have, or above 2 GiB.
        value: metrics.write_to_bytes().expect("metrics can be encoded"),
        ..Any::default()
    }
}
