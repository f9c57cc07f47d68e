//! The pod as an operator sees it: types only. Decides nothing: `questions::inspect` fills them in.

use std::time::Duration;

use pod_spec::{Condition, Gate, Role, Signal};

use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::stop_cause::StopCause;

/// What there is to know of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The stop under way, if one is.
    pub stop: Option<InspectedStop>,
    /// How the pod ended, if its restart policy says that it has (J1).
    pub outcome: Option<PodOutcome>,
    /// What no caller has created of the plan (U10), in a pod that has not ended and is not being stopped. The driver
    /// knows whether the caller is still at work.
    pub missing: Option<Missing>,
    /// The names that the pod's object has of init and ephemeral containers (S15); `None` if the plan has no `*=main`, to which they
    /// matter.
    pub kubelets_own: Option<Vec<String>>,
    /// The pause container, then the plan in its order, then all others.
    pub containers: Vec<InspectedContainer>,
}

/// How a pod ended (J1, I2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodOutcome {
    /// All mains exited with 0.
    Succeeded,
    /// A main failed, or an init or a sidecar under Never.
    Failed,
}

/// The containers of the plan that no caller has created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// As messages name them, in the plan's order: `main "app"`. At least one.
    pub members: Vec<String>,
    /// Whether a main is among them, without which a job does not end (J1).
    pub ends_without: MissingEnd,
}

/// Whether a pod would end without what it misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingEnd {
    /// A main is missing, and the restart policy lets the pod end once all have.
    Never,
    /// No main is missing, or the pod does not end by itself at all.
    AsPlanned,
}

/// A stop under way (T12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedStop {
    /// Why it began.
    pub cause: StopCause,
    /// What is left of its time.
    pub budget: BudgetLeft,
}

/// What is left of a stop's budget (T5, T6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetLeft {
    /// The caller counts the time.
    Callers,
    /// The time left; then every container that is left gets a stop signal.
    Until(Duration),
    /// Every container has had one; the time left until SIGKILL.
    LastCall(Duration),
    /// Everything has been killed.
    Spent,
}

/// One container, or a member of the plan that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedContainer {
    /// containerd's id; `None` where there is no such container.
    pub id: Option<ContainerId>,
    /// Its name in the plan.
    pub name: String,
    /// What it is to the pod.
    pub part: InspectedPart,
    /// Where it is in its life.
    pub state: InspectedState,
    /// Its process, if it has one of its own.
    pub pid: Option<u32>,
    /// What opens its gate, if anything waits for that, and whether it is open.
    pub gate: Option<(Gate, GateProgress)>,
    /// What it waits for when it starts (S2), by name.
    pub after: Vec<(String, Condition)>,
    /// Why it is held.
    pub held_for: Option<String>,
    /// Its restarts by podshim since its last good run (R4).
    pub restarts: u32,
    /// All restarts of this container by podshim.
    pub restarts_total: u32,
    /// How its last run really ended.
    pub real_exit: Option<Exit>,
    /// How callers see that exit (J2).
    pub shown_exit: Option<Exit>,
    /// A stop signal that waits for its turn (T3), or for the container's hooks.
    pub pending_signal: Option<Signal>,
    /// The time until SIGKILL is due (T7, T8).
    pub kill_in: Option<Duration>,
    /// The time until its next restart (R4).
    pub restart_in: Option<Duration>,
}

impl InspectedContainer {
    /// A container of which only the name exists.
    pub fn not_created(name: &str, part: InspectedPart) -> Self {
        Self {
            id: None,
            name: name.to_owned(),
            part,
            state: InspectedState::NotCreated,
            pid: None,
            gate: None,
            after: Vec::new(),
            held_for: None,
            restarts: 0,
            restarts_total: 0,
            real_exit: None,
            shown_exit: None,
            pending_signal: None,
            kill_in: None,
            restart_in: None,
        }
    }
}

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectedPart {
    /// The pause container.
    Sandbox,
    /// Not in the plan (S8).
    Passthrough,
    /// In the plan.
    Planned(Role),
    /// The standby of a pair (V1).
    Standby,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectedState {
    /// In the plan, and no caller has created it (U10).
    NotCreated,
    /// Being created.
    Creating,
    /// Created, and not started by its caller.
    Created,
    /// Started by its caller; its program waits (U7).
    Held,
    /// Its program is being started.
    Starting,
    /// Its program runs.
    Running,
    /// Frozen.
    Paused,
    /// It waits for its next restart (R4).
    BackingOff,
    /// It is being recreated (R6).
    Restarting,
    /// A completed init whose exit its caller does not see yet, or which was created again (I4, I5).
    Completed,
    /// It is ending.
    Ending,
    /// It has ended, and its caller sees that.
    Stopped,
}

/// How far a gate is (U1, U2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateProgress {
    /// No check has seen its program run.
    Closed,
    /// Its program runs, and is not ready.
    Started,
    /// Open.
    Open,
}
