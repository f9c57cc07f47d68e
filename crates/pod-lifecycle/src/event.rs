//! What can happen to a pod: requests of callers, completions of our own operations, exits, time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pod_spec::{Plan, Signal};

use crate::action::OpId;
use crate::time::WallTime;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A caller asks for something; answered by exactly one reply with the same id.
    Request {
        /// The caller's handle for the reply.
        id: RequestId,
        /// What is asked.
        request: Request,
    },
    /// The caller of a Wait is gone: it gets no reply any more. Of other requests it says nothing, what they have begun
    /// goes on.
    Abandoned {
        /// Whose.
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
        /// Whose process.
        target: Target,
        /// Its status and time.
        exit: Exit,
    },
    /// The kernel killed a process of that container for memory.
    OutOfMemory {
        /// The container.
        container: ContainerId,
    },
    /// Someone other than the container API asks to stop the whole pod in order (T12c): SIGTERM to the shim.
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
        /// What its OCI spec says about it.
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
        /// To whom.
        target: Target,
        /// Which.
        signal: Signal,
        /// Init only, or every process.
        reach: crate::action::Reach,
    },
    /// Answer when the process has exited (and the exit is shown).
    Wait(Target),
    /// Forget a container or exec that has ended.
    Delete(Target),
    /// Let the standby of a pair take over; either of the two names will do (V3). Answered when the other one has
    /// ended, or when the switch has failed (V5).
    Switch(String),
    /// Freeze.
    Pause(ContainerId),
    /// Thaw.
    Resume(ContainerId),
    /// Write down the state of a running program.
    Checkpoint {
        /// The container.
        container: ContainerId,
        /// What becomes of it.
        after: AfterCheckpoint,
    },
}

/// What becomes of a program when its checkpoint is written.
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
    /// `io.kubernetes.cri.container-name`, or the id where nobody gave a name.
    pub name: String,
    /// Sandbox (pause) or ordinary.
    pub kind: TaskKind,
    /// Who made it, which decides what a stop signal is (K7).
    pub caller: Caller,
    /// `io.kubernetes.container.type` of newer kubelets.
    pub kubelet_type: Option<KubeletType>,
    /// Whether the container's init is PID 1 of its own namespace.
    pub pid_namespace: PidNamespace,
    /// The kubelet's terminationGracePeriod annotation (F8): an estimate (T5).
    pub kubelet_grace: Option<Duration>,
    /// What its kubelet says of its hooks, if a kubelet made it: `io.kubernetes.container.hash` (T16).
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
    /// The state in which another one was written down.
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
    /// ctr, nerdctl, moby: any signal, meant as it says.
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

/// `io.kubernetes.container.preStopHandler`: a kubelet runs it before its StopContainer (F9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletHook {
    /// None: in a stop of the pod its StopContainer comes at once.
    None,
    /// It has one.
    PreStop,
}

/// Whose death ends the other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PidNamespace {
    /// The kernel ends everything with the init.
    Private,
    /// The init has company that outlives it: what is left must be killed (CONTRACT §6).
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
    /// How the caller should take it.
    pub kind: crate::action::RefusalKind,
}
