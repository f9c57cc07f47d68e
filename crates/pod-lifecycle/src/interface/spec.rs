//! What the core needs to know of a container's OCI spec.
//!
//! Knows nothing of JSON: the driver reads the spec.

use std::time::Duration;

use pod_spec::Plan;

/// What the core needs to know of a container's OCI spec.
#[derive(Clone, Debug)]
pub struct ContainerSpec {
    /// `io.kubernetes.cri.container-name`, or the id if the caller set no name.
    pub name: String,
    /// Sandbox (pause) or ordinary.
    pub kind: TaskKind,
    /// Which kind of caller created it: this decides which signals are stop signals (K7).
    pub caller: Caller,
    /// `io.kubernetes.container.type` of newer kubelets.
    pub kubelet_type: Option<KubeletType>,
    /// Whether the container's init is PID 1 of its own namespace.
    pub pid_namespace: PidNamespace,
    /// The kubelet's terminationGracePeriod annotation (F8): an estimate (T5).
    pub kubelet_grace: Option<Duration>,
    /// Whether its kubelet runs a preStop hook for it (T16). `None` if no kubelet created it, that is without
    /// `io.kubernetes.container.hash`.
    pub kubelet: Option<KubeletHook>,
    /// `oom_score_adj` of its spec; `None` where the runtime chooses (N8).
    pub oom_score_adj: Option<i32>,
    /// What its first process is.
    pub origin: Origin,
    /// Who orders its start beside the plan (S13).
    pub start_barrier: StartBarrier,
    /// The plan its own annotations declare. The pod's first one counts (11.4).
    pub plan: Option<Plan>,
}

/// Whether a controller above the CRI keeps a caller from creating a container until its turn has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartBarrier {
    /// No controller does.
    #[default]
    None,
    /// One does, as OpenKruise's launch priority. The barrier of a container that is created is open.
    Open,
}

/// What a container's first process is made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// Its program.
    #[default]
    Program,
    /// A checkpoint.
    Checkpoint,
}

/// The CRI's `io.kubernetes.cri.container-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// The pause container, which owns the pod's namespaces.
    Sandbox,
    /// Any other container.
    Container,
}

/// Who talks to containerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The CRI plugin: sends the image's STOPSIGNAL, whatever the number, and SIGKILL, nothing else.
    Cri,
    /// ctr, nerdctl, moby: any signal, with its usual meaning.
    Other,
}

/// The values of `io.kubernetes.container.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletType {
    /// An init container, native sidecars included.
    Init,
    /// A regular container.
    Regular,
    /// A debug container (S8: it must start in a stuck pod).
    Ephemeral,
}

/// Whether the kubelet runs a preStop hook before its StopContainer (F9): `io.kubernetes.container.preStopHandler`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletHook {
    /// No hook: in a stop of the pod the StopContainer comes at once.
    None,
    /// A hook: the StopContainer comes after it.
    PreStop,
}

/// Whether a container has a PID namespace of its own, in which the init's death ends all other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// The kernel ends all other processes with the init.
    Private,
    /// Other processes may outlive the init: podshim must kill them (CONTRACT §6).
    Shared,
}
