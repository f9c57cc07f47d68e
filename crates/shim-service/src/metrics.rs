//! The numbers of a container's cgroups as the message that containerd's Stats call answers with.
//!
//! Owns the translation field by field, nothing else: it reads no files and never scales or sums a number.
//! What the kernel did not report stays unset, except where containerd would crash (see `v1`).

mod v1;
mod v2;

use oci_runtime::cgroup::Stats;
use protobuf::MessageFull;
use protobuf::well_known_types::any::Any;

/// The resource numbers of one container, for `StatsResponse.stats` (CONTRACT §8).
///
/// The type is `io.containerd.cgroups.v1.Metrics` or `io.containerd.cgroups.v2.Metrics`, as the host's cgroups
/// are. Networks stay unset in both: they belong to the pod's network namespace, not to a cgroup.
pub(crate) fn to_any(stats: &Stats) -> Any {
    match stats {
        Stats::V1(stats) => pack(&v1::metrics(stats)),
        Stats::V2(stats) => pack(&v2::metrics(stats)),
    }
}

fn pack<M: MessageFull>(metrics: &M) -> Any {
    Any {
        // containerd's collectors look this name up as it is; `Any::pack` would put a host before it.
        type_url: M::descriptor().full_name().to_owned(),
        // invariant: encoding fails only for a missing required field, which proto3 has not, or above 2 GiB.
        value: metrics.write_to_bytes().expect("metrics can be encoded"),
        ..Any::default()
    }
}
