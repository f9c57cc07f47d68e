//! One random run under a kubelet. Owns the values that say which run it is, and nothing of what it is made of.

use pod_spec::RestartPolicy;

use super::faults::FaultKind;
use crate::kubelet::KubeletVersion;

/// A run: the same values give the same run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeletRun {
    /// What the kubelet knows of sidecars.
    pub version: KubeletVersion,
    /// The pod's restart policy, and the plan's.
    pub policy: RestartPolicy,
    /// What befalls the pod.
    pub kind: FaultKind,
    /// Everything else.
    pub seed: u64,
}
