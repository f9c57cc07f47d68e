//! What can happen to a pod: requests of callers, completions of podshim's own operations, exits, time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pod_spec::{Plan, Signal};

use crate::action::OpId;
use crate::time::WallTime;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request of a caller; it is answered by exactly one reply with the same id.
    Request {
        /// The caller's handle for the reply.
        id: RequestId,
        /// The request.
        request: Request,
    },
    /// The caller of a Wait is gone and gets no reply any more. For other requests this changes nothing: what they
    /// began goes on.
    Abandoned {
        /// The id of its request.
        id: RequestId,
    },
    /// An operation that [`crate::Action::Run`] started has ended.
    Done {
        /// The id the action carried.
        op: OpId,
        /// How it ended.
        outcome: Outcome,
        /// When it ended.
        at: WallTime,
    },
    /// A process has exited: a container's init (`exec` is `None`) or one of its execs.
    Exited {
        /// The process.
        target: Target,
        /// Its status and time.
        exit: Exit,
    },
    /// The kernel killed a process of that container for memory.
    OutOfMemory {
        /// The container.
        container: ContainerId,
    },
    /// A request from outside the container API to stop the whole pod in order (T12c): SIGTERM or SIGINT to the shim,
    /// or Stop over its control API.
    StopPod {
        /// The budget; the pod's own grace when `None`.
        grace: Option<Duration>,
    },
    /// Nothing but time has passed.
    Tick,
}

/// A caller's request. Reads (State, Pids, Stats) are not requests: see [`crate::Pod::view`].
#[derive(Clone, Debug)]
pub enum Request {
    /// Create the container's process without running its program.
    Create {
        /// The new container.
        container: ContainerId,
        /// What podshim needs to know of its OCI spec.
        spec: Box<ContainerSpec>,
    },
    /// Register an exec.
    Exec {
        /// The container and the new exec id.
        container: ContainerId,
        /// The new exec.
        exec: ExecId,
    },
    /// Start a created container or a registered exec.
    Start(Target),
    /// Send a signal.
    Kill {
        /// The process.
        target: Target,
        /// The signal.
        signal: Signal,
        /// Init only, or every process of the container.
        reach: crate::action::Reach,
    },
    /// Answer when the process has exited (and the exit is shown).
    Wait(Target),
    /// Forget a container or exec that has ended.
    Delete(Target),
    /// Let the standby of a pair take over; the name of either container will do (V3). Answered when the container that
    /// was active has ended, or when the switch has failed (V5).
    Switch(String),
    /// Freeze.
    Pause(ContainerId),
    /// Thaw.
    Resume(ContainerId),
    /// Write a checkpoint of a running program.
    Checkpoint {
        /// The container.
        container: ContainerId,
        /// What happens to the program then.
        after: AfterCheckpoint,
    },
}

/// What happens to a program when its checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCheckpoint {
    /// It goes on.
    LeaveRunning,
    /// The runtime kills it.
    End,
}

/// The driver's handle for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// containerd's id of a container (a task). Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(Arc<str>);

/// The caller's id of an exec within one container. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecId(Arc<str>);

macro_rules! id_type {
    ($name:ident) => {
        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.into())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}
id_type!(ContainerId);
id_type!(ExecId);

/// A process of the pod: a container's init, or one of its execs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The container.
    pub container: ContainerId,
    /// `None` for the container's init.
    pub exec: Option<ExecId>,
}

impl Target {
    /// The init process of a container.
    pub fn init(container: ContainerId) -> Self {
        Self { container, exec: None }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.exec {
            None => write!(f, "container {}", self.container),
            Some(exec) => write!(f, "exec {exec} of container {}", self.container),
        }
    }
}

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
    /// The plan its own annotations declare. The pod's first one counts (11.4).
    pub plan: Option<Plan>,
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

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// 0 to 255; 128 + signal for a process that a signal ended.
    pub code: u32,
    /// When it was seen.
    pub at: WallTime,
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Ok,
    /// It made a process (Create, StartExec).
    Process {
        /// Its pid in the shim's namespace.
        pid: u32,
    },
    /// It failed.
    Failed(Failure),
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the user reads: the runtime's own text.
    pub message: String,
    /// Which kind of error the caller gets.
    pub kind: crate::action::RefusalKind,
}
