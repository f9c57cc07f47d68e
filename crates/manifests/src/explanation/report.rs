//! What an explanation says, as data: `podshim plan --json` shows it as it is (docs/podshim-json.md).

use serde::Serialize;

use crate::resources::{Counted, Qos};

/// Stands for the mains of `*=main` if no manifest lists them.
pub const EVERY_OTHER: &str = "*";

/// The facts about one pod. Times are in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// In the order of the plan, then the mains that only `*=main` names.
    pub containers: Vec<Part>,
    /// What happens to containers that the plan does not name.
    pub others: OthersWord,
    /// Containers of the pod that the plan does not name.
    pub unnamed: Vec<String>,
    /// How long a container is held before it exits with 125 (U6). `None`: no limit.
    pub held_at_most_ms: Option<u64>,
    /// Whose words the plan is made of.
    pub source: SourceWord,
    /// What ends the pod (J1).
    pub completion: Completion,
    /// The bounds of its stop.
    pub stop: StopBounds,
    /// What it asks of its node; `None` without a manifest.
    pub resources: Option<Cost>,
}

/// What a pod asks of its node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cost {
    /// Its QoS class.
    pub qos: Qos,
    /// With the containers where the manifest has them.
    pub as_written: Counted,
    /// With the plan's inits and sidecars as native ones.
    pub native: Counted,
}

/// One container of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Part {
    /// Its name; [`EVERY_OTHER`] for all that the plan does not name.
    pub name: String,
    /// Its role.
    pub role: RoleWord,
    /// How the plan includes it.
    pub planned: PlannedWord,
    /// The partner whose standby it is at first (V1). A standby does not start with the pod.
    pub standby_of: Option<String>,
    /// The step in which it starts, counted from 1. Containers of one step start together.
    pub start_step: usize,
    /// What it waits for, without what these containers wait for themselves.
    pub waits_for: Vec<Wait>,
    /// What opens its gate, as the annotation writes it; `None` if podshim never checks the gate (U1, U2).
    pub gate: Option<String>,
    /// The longest time from its program's start until the gate opens or podshim restarts the sidecar (U4); `None` if
    /// there is no limit.
    pub gate_within_ms: Option<u64>,
    /// Who restarts it.
    pub restart: RestartWord,
    /// With [`RestartWord::OnFailure`]: after which exit codes, if not after all but 0 (R13).
    pub restart_codes: Option<String>,
    /// Which exit of it ends the pod (R9), or restarts it (R14).
    pub fatal: Option<FatalWord>,
    /// With [`FatalWord::Restart`]: how often; the next one ends the pod.
    pub pod_restarts: Option<u32>,
    /// The step of a stop in which it gets its stop signal, counted from 1.
    pub stop_step: usize,
    /// The containers that must be gone first, without those that these wait for themselves.
    pub stops_after: Vec<String>,
    /// The longest time from the start of the stop to its stop signal.
    pub signal_within_ms: u64,
    /// The longest time from the start of the stop to its exit.
    pub gone_within_ms: u64,
    /// The command that podshim runs in it when the stop begins (H1).
    pub on_terminate: Option<Vec<String>>,
    /// The command that podshim runs in it before its stop signal (H2).
    pub pre_stop: Option<Vec<String>>,
    /// Whether its kubelet runs a hook before it stops it, which uses up the same time (F9).
    pub kubelet_hook: bool,
}

/// A container that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Wait {
    /// The container.
    pub container: String,
    /// What must be true of it.
    pub until: ConditionWord,
}

/// The bounds of a stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StopBounds {
    /// The budget (T5).
    pub budget_ms: u64,
    /// Where it is set.
    pub budget_from: BudgetSource,
    /// What is kept of it for each step after the mains, if something is (T19).
    pub kept_for_each_step_ms: Option<u64>,
    /// From the start of the stop to the last exit: the budget plus the floor.
    pub gone_within_ms: u64,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$variant_doc])* $variant),* }
    };
}

words! {
    /// A role (S1).
    RoleWord {
        /// Must exit with 0.
        Init,
        /// Lives as long as anything needs it.
        Sidecar,
        /// The work itself.
        Main,
    }
}
words! {
    /// How the plan includes a container.
    PlannedWord {
        /// The plan names it.
        Named,
        /// `*=main` includes it.
        Other,
    }
}
words! {
    /// What must be true of an awaited container.
    ConditionWord {
        /// Its program runs.
        Started,
        /// Its gate is open.
        Ready,
        /// It has exited with 0.
        Done,
    }
}
words! {
    /// Containers that the plan does not name (S8).
    OthersWord {
        /// Neither held nor counted.
        Passthrough,
        /// Mains, by `*=main`.
        Mains,
    }
}
words! {
    /// Whose words a plan is made of (S12).
    SourceWord {
        /// podshim's annotations.
        Annotations,
        /// OpenKruise's marks.
        Kruise,
    }
}
words! {
    /// Who restarts a container.
    RestartWord {
        /// podshim, after every exit.
        Always,
        /// podshim, after a failure.
        OnFailure,
        /// The caller, which sees each exit.
        Caller,
        /// It is never restarted.
        Never,
    }
}
words! {
    /// Which exit of a container ends the pod (R9), or restarts it (R14).
    FatalWord {
        /// An exit other than 0.
        Failure,
        /// Any exit.
        Exit,
        /// An exit other than 0 restarts the pod.
        Restart,
    }
}
words! {
    /// When the pod ends by itself (J1).
    Completion {
        /// Never.
        Never,
        /// When all mains have exited with 0.
        MainsSucceeded,
        /// When all mains have exited.
        MainsExited,
    }
}
words! {
    /// What sets how long a stop may take (T5).
    BudgetSource {
        /// `podshim.io/grace`: podshim enforces it on every container.
        Annotation,
        /// `terminationGracePeriodSeconds`: the kubelet's own SIGKILL ends it.
        Manifest,
        /// `terminationGracePeriodSeconds`, as it is shorter than `podshim.io/grace`.
        KubeletFirst,
        /// Neither is set: the default of `terminationGracePeriodSeconds`.
        Default,
    }
}
