//! Pods as the commands show them: the control API's answers as data, with the names of `docs/podshim-json.md`.
//!
//! Owns those names. Scripts rely on them: names may be added, but none changes its meaning.

use control_api::client::ClientError;
use control_api::container::{GateState, Role, State};
use control_api::event::Cause;
use control_api::{Budget, Container, Cost, InspectResponse, Outcome, StopReason};
use node_state::entry::Entry;
use pod_spec::Signal;
use serde::Serialize;

use crate::shims::{SHORT_ID, Shim};
use crate::words::{self, DisplayWord};

/// A pod.
#[derive(Debug, Serialize)]
pub struct PodReport {
    /// The id of the group that the shim serves: under CRI, the sandbox's id.
    pub id: String,
    /// Its name and namespace in Kubernetes, if it has them.
    pub name: Option<String>,
    /// See `name`.
    pub pod_namespace: Option<String>,
    /// See `name`.
    pub uid: Option<String>,
    /// containerd's namespace.
    pub namespace: String,
    /// The pod's state.
    pub state: PodState,
    /// Why the shim gave no answer; `None` if it answered.
    pub error: Option<String>,
    /// The shim's release.
    pub release: Option<String>,
    /// When its shim was started.
    pub started_at_ms: Option<i64>,
    /// The longest time for which the shim's one thread was away from what it serves; `longest_away_on` says on what.
    pub longest_away_ms: Option<u64>,
    /// See `longest_away_ms`.
    pub longest_away_on: Option<String>,
    /// The longest time for which a thread of the pod's streams was away from them: a container held the lock of its pipe.
    pub streams_longest_away_ms: Option<u64>,
    /// For how long one has been away now; 0 if none is.
    pub streams_away_ms: Option<u64>,
    /// How the plan does not fit the pod, such as a main that no caller has created.
    pub fault: Option<String>,
    /// The names that an agent has given of its init and ephemeral containers (S15); `None` if its plan has no `*=main`.
    pub kubelets_own: Option<Vec<String>>,
    /// Processor time that was spent for the pod outside of its containers.
    pub cost: Option<CostReport>,
    /// The stop under way, or the last one.
    pub stop: Option<StopReport>,
    /// Its containers, in the order of its plan.
    pub containers: Vec<ContainerReport>,
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    /// The pod lives, and no stop is under way.
    Running,
    /// A stop is under way.
    Stopping,
    /// A stop is under way after which the pod starts again (R14).
    Restarting,
    /// Its restart policy says that it has succeeded, and none of its containers runs.
    Completed,
    /// Its restart policy says that it has failed, and none of its containers runs.
    Failed,
    /// All containers have ended, the sandbox too, and the restart policy has no verdict.
    Stopped,
    /// Its shim is dead.
    ShimDead,
    /// Its shim does not answer, or its answer cannot be understood.
    ShimSilent,
}

/// Processor time that was spent for a pod outside of its containers' cgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CostReport {
    /// By its shim.
    pub shim_ms: u64,
    /// By the OCI runtime, for exec probes.
    pub probes_ms: u64,
    /// By the OCI runtime, for hooks.
    pub hooks_ms: u64,
    /// By the OCI runtime, for restarts in place.
    pub restarts_ms: u64,
    /// By the OCI runtime, for callers' requests.
    pub requests_ms: u64,
}

impl CostReport {
    fn of(cost: Cost) -> Self {
        Self {
            shim_ms: cost.shim_ms,
            probes_ms: cost.probes_ms,
            hooks_ms: cost.hooks_ms,
            restarts_ms: cost.restarts_ms,
            requests_ms: cost.requests_ms,
        }
    }

    /// Each part with its name.
    pub fn parts(&self) -> [(&'static str, u64); 5] {
        [
            ("shim", self.shim_ms),
            ("probes", self.probes_ms),
            ("hooks", self.hooks_ms),
            ("restarts", self.restarts_ms),
            ("requests", self.requests_ms),
        ]
    }
}

/// A stop.
#[derive(Debug, Serialize)]
pub struct StopReport {
    /// Why it began.
    #[serde(serialize_with = "words::serialize")]
    pub reason: StopReason,
    /// Who counts the stop's time.
    #[serde(serialize_with = "words::serialize")]
    pub budget: Budget,
    /// What is left of the budget, or of the time until SIGKILL; only where podshim counts it.
    pub left_ms: Option<u64>,
}

/// A container, or a name of the plan for which no caller has created a container.
#[derive(Debug, Serialize)]
pub struct ContainerReport {
    /// containerd's id.
    pub id: Option<String>,
    /// Its name.
    pub name: String,
    /// Its role in the pod.
    #[serde(serialize_with = "words::serialize")]
    pub role: Role,
    /// Its state, as its shim has it.
    #[serde(skip)]
    pub state: State,
    /// The word for it; `stopping` if its program runs and has got a signal that is to end it.
    #[serde(rename = "state")]
    pub state_word: String,
    /// The pid of its process.
    pub pid: Option<u32>,
    /// What opens its gate, if a container waits for that gate.
    pub gate: Option<String>,
    /// Whether the gate is closed, started or open.
    #[serde(serialize_with = "words::serialize_some")]
    pub gate_state: Option<GateState>,
    /// What it waits for when it starts, as in its `after` annotation; empty from a shim that does not report it.
    pub after: Vec<String>,
    /// Why it is held.
    pub held_for: Option<String>,
    /// Its restarts by podshim since it last ran for ten minutes (R4).
    pub restarts: u32,
    /// All restarts by podshim of containers of this name; `None` from a shim that does not count them.
    pub restarts_total: Option<u32>,
    /// The real exit code of its program's last run, also while it runs again.
    pub real_exit_code: Option<u32>,
    /// How often the kernel killed a process of it for memory; `None` from a shim that does not count this.
    pub oom_kills: Option<u32>,
    /// Whether it did so in its program's last run.
    pub out_of_memory: bool,
    /// The exit code that callers see.
    pub shown_exit_code: Option<u32>,
    /// A stop signal from a caller that podshim keeps until the container's turn.
    pub pending_signal: Option<String>,
    /// The first signal that is to end its program and has not, why it was sent, and how long ago.
    pub stop_signal: Option<String>,
    /// See `stop_signal`.
    #[serde(serialize_with = "words::serialize_some")]
    pub stop_cause: Option<Cause>,
    /// See `stop_signal`.
    pub stopping_for_ms: Option<u64>,
    /// Milliseconds until SIGKILL.
    pub kill_in_ms: Option<u64>,
    /// Milliseconds until podshim restarts it.
    pub restart_in_ms: Option<u64>,
    /// When its program's last run ended, in milliseconds since 1970.
    pub exited_at_ms: Option<i64>,
    /// For how many milliseconds it is held for gates, or was held before its program started last.
    pub gate_wait_ms: Option<u64>,
}

/// The state of a container that has got a signal which is to end it, and has not ended.
pub const STOPPING: &str = "stopping";

fn all_have_ended(containers: &[ContainerReport]) -> bool {
    !containers.is_empty() && containers.iter().all(ContainerReport::has_ended)
}

impl ContainerReport {
    /// Whether its program has ended, or was never created.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state, State::STOPPED | State::EXITED | State::COMPLETED | State::NOT_CREATED)
    }

    /// Its restarts by podshim, as many as its shim knows.
    pub(crate) fn all_restarts(&self) -> u32 {
        self.restarts_total.unwrap_or(self.restarts)
    }
}

impl PodReport {
    /// The report of a pod whose shim was asked.
    pub fn of(shim: Shim) -> Self {
        match shim.answer {
            Ok(answer) => Self::of_answer(answer),
            Err(error) => Self::of_silent(shim.entry, &error),
        }
    }

    /// The report of a pod whose shim answered.
    pub fn of_answer(answer: InspectResponse) -> Self {
        let stop = stop_of(&answer);
        let containers: Vec<_> = answer.containers.into_iter().map(ContainerReport::of).collect();
        let programs = || containers.iter().filter(|container| container.role != Role::SANDBOX);
        let nothing_runs = programs().next().is_some() && programs().all(ContainerReport::has_ended);
        let state = match (&stop, answer.outcome.enum_value_or_default()) {
            (_, Outcome::SUCCEEDED) if nothing_runs => PodState::Completed,
            (_, Outcome::FAILED) if nothing_runs => PodState::Failed,
            _ if all_have_ended(&containers) => PodState::Stopped,
            (Some(stop), _) if stop.reason == StopReason::RESTART => PodState::Restarting,
            (Some(_), _) => PodState::Stopping,
            (None, _) => PodState::Running,
        };
        let cost = answer.cost.into_option().map(CostReport::of);
        Self {
            id: answer.id,
            name: non_empty(answer.pod_name),
            pod_namespace: non_empty(answer.pod_namespace),
            uid: non_empty(answer.pod_uid),
            namespace: answer.namespace,
            state,
            error: None,
            release: non_empty(answer.release),
            started_at_ms: Some(answer.started_at_ms),
            longest_away_ms: answer.longest_away_us.map(|away| away.div_ceil(1000)),
            longest_away_on: non_empty(answer.longest_away_on),
            streams_longest_away_ms: answer.streams_longest_away_us.map(|away| away.div_ceil(1000)),
            streams_away_ms: answer.streams_away_us.map(|away| away.div_ceil(1000)),
            fault: non_empty(answer.fault),
            kubelets_own: answer.kubelets_own.into_option().map(|own| own.names),
            cost,
            stop,
            containers,
        }
    }

    /// Whether nothing of it runs, its sandbox included: a job may be complete before that.
    pub fn has_stopped(&self) -> bool {
        all_have_ended(&self.containers)
    }

    fn of_silent(entry: Entry, error: &ClientError) -> Self {
        let dead = matches!(error, ClientError::Dead { .. });
        Self {
            id: entry.id,
            name: non_empty(entry.pod_name),
            pod_namespace: non_empty(entry.pod_namespace),
            uid: None,
            namespace: entry.namespace,
            state: if dead { PodState::ShimDead } else { PodState::ShimSilent },
            error: Some(error.to_string()),
            release: None,
            started_at_ms: None,
            longest_away_ms: None,
            longest_away_on: None,
            streams_longest_away_ms: None,
            streams_away_ms: None,
            fault: None,
            kubelets_own: None,
            cost: None,
            stop: None,
            containers: Vec::new(),
        }
    }

    /// `namespace/name` as people write it; the id if the pod has no name.
    pub fn title(&self) -> String {
        match (&self.name, &self.pod_namespace) {
            (Some(name), Some(namespace)) => format!("{namespace}/{name}"),
            (Some(name), None) => name.clone(),
            _ => self.id.clone(),
        }
    }
}

impl PodState {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Running,
        Self::Stopping,
        Self::Restarting,
        Self::Completed,
        Self::Failed,
        Self::Stopped,
        Self::ShimDead,
        Self::ShimSilent,
    ];

    /// The state as the tables show it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Restarting => "restarting",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
            Self::ShimDead => "shim dead",
            Self::ShimSilent => "shim silent",
        }
    }
}

impl ContainerReport {
    fn of(container: Container) -> Self {
        let gate = non_empty(container.gate);
        let gate_state = gate.is_some().then(|| container.gate_state.enum_value_or_default());
        let state = container.state.enum_value_or_default();
        let is_stopping = container.stopping_for_ms.is_some() && state == State::RUNNING;
        Self {
            id: non_empty(container.id),
            name: container.name,
            role: container.role.enum_value_or_default(),
            state,
            state_word: if is_stopping { STOPPING.to_owned() } else { state.word() },
            pid: (container.pid != 0).then_some(container.pid),
            gate,
            gate_state,
            after: container.after,
            held_for: non_empty(container.held_for),
            restarts: container.restarts,
            restarts_total: container.restarts_total,
            real_exit_code: container.real_exit_code,
            oom_kills: container.oom_kills,
            out_of_memory: container.out_of_memory,
            shown_exit_code: container.shown_exit_code,
            pending_signal: (container.pending_signal != 0).then(|| signal(container.pending_signal)),
            stop_signal: (container.stop_signal != 0).then(|| signal(container.stop_signal)),
            stop_cause: container.stopping_for_ms.map(|_| container.stop_cause.enum_value_or_default()),
            stopping_for_ms: container.stopping_for_ms,
            kill_in_ms: container.kill_in_ms,
            restart_in_ms: container.restart_in_ms,
            exited_at_ms: container.exited_at_ms,
            gate_wait_ms: container.gate_wait_ms,
        }
    }
}

fn stop_of(answer: &InspectResponse) -> Option<StopReport> {
    let reason = answer.stop_reason.enum_value_or_default();
    if reason == StopReason::NOT_STOPPING {
        return None;
    }
    let budget = answer.budget.enum_value_or_default();
    let counted = matches!(budget, Budget::ENFORCED | Budget::LAST_CALL);
    Some(StopReport { reason, budget, left_ms: counted.then_some(answer.budget_left_ms) })
}

/// The name to show for a container. A container without a name is listed under its id, which means nothing to people:
/// show `(sandbox)` if it is the pod's id, as under CRI, else the short id.
pub fn display_name(name: &str, pod_id: &str) -> String {
    let is_id = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_id {
        true if name == pod_id => "(sandbox)".to_owned(),
        true => name.chars().take(SHORT_ID).collect(),
        false => name.to_owned(),
    }
}

/// The name of a signal, or its number if it has no name.
pub(crate) fn signal(number: u32) -> String {
    Signal::parse(&number.to_string()).map_or_else(|_| number.to_string(), |signal| signal.to_string())
}

/// `None` for an empty text: that is how the control API says "not known".
pub(crate) fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
