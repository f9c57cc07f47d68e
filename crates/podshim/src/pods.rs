//! Pods as the commands show them: the control API's answers in the words of `docs/podshim-json.md`.
//!
//! Owns those words. They are what scripts rely on: new ones may come, none changes its meaning.

use control_api::client::ClientError;
use control_api::container::{GateState, Role, State};
use control_api::entry::Entry;
use control_api::{Budget, Container, Cost, InspectResponse, Outcome, StopReason};
use pod_spec::Signal;
use serde::Serialize;

use crate::shims::Shim;

/// A pod.
#[derive(Debug, Serialize)]
pub struct PodReport {
    /// Its sandbox's id.
    pub id: String,
    /// Its name and namespace in Kubernetes, if it has them.
    pub name: Option<String>,
    /// See `name`.
    pub pod_namespace: Option<String>,
    /// See `name`.
    pub uid: Option<String>,
    /// containerd's namespace.
    pub namespace: String,
    /// How it is.
    pub state: PodState,
    /// Why nothing more is known.
    pub error: Option<String>,
    /// The shim's release.
    pub release: Option<String>,
    /// When its shim was started.
    pub started_at_ms: Option<i64>,
    /// The longest that its shim was away from what it serves, and on what.
    pub longest_away_ms: Option<u64>,
    /// See `longest_away_ms`.
    pub longest_away_on: Option<String>,
    /// What is wrong with its plan, where it does not fit to the pod.
    pub fault: Option<String>,
    /// What was spent for it outside of its containers.
    pub cost: Option<CostReport>,
    /// The stop under way, or the last one.
    pub stop: Option<StopReport>,
    /// Its containers, in the order of its plan.
    pub containers: Vec<ContainerReport>,
}

/// How a pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PodState {
    /// It lives.
    Running,
    /// A stop is under way.
    Stopping,
    /// Its mains have done what they are there for, and nothing of it is left to end.
    Completed,
    /// It has ended for good, and not well.
    Failed,
    /// All its containers have ended.
    Stopped,
    /// Its shim is dead.
    ShimDead,
    /// Its shim does not answer, or not in words that are understood.
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
    /// By the OCI runtime, for what callers asked for.
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

    /// Each of them, with what it is for.
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
    /// Why.
    pub reason: &'static str,
    /// Who counts its time.
    pub budget: &'static str,
    /// What is left of that, where podshim counts it.
    pub left_ms: Option<u64>,
}

/// A container, or a name of the plan that no caller has created.
#[derive(Debug, Serialize)]
pub struct ContainerReport {
    /// containerd's id.
    pub id: Option<String>,
    /// Its name.
    pub name: String,
    /// What it is to the pod.
    pub role: &'static str,
    /// Where it is in its life.
    pub state: &'static str,
    /// Its process.
    pub pid: Option<u32>,
    /// What opens its gate, where something waits for that.
    pub gate: Option<String>,
    /// How far that is.
    pub gate_state: Option<&'static str>,
    /// Why it is held.
    pub held_for: Option<String>,
    /// Its restarts by podshim since it last ran for ten minutes.
    pub restarts: u32,
    /// How its program really ended last.
    pub real_exit_code: Option<u32>,
    /// What callers see.
    pub shown_exit_code: Option<u32>,
    /// A stop signal that waits for its turn.
    pub pending_signal: Option<String>,
    /// When SIGKILL is due.
    pub kill_in_ms: Option<u64>,
    /// When it is started again.
    pub restart_in_ms: Option<u64>,
    /// When its program ended last, since 1970.
    pub exited_at_ms: Option<i64>,
}

impl PodReport {
    /// Of a shim that was asked.
    pub fn of(shim: Shim) -> Self {
        match shim.answer {
            Ok(answer) => Self::of_answer(answer),
            Err(error) => Self::of_silent(shim.entry, &error),
        }
    }

    /// Of an answer.
    pub fn of_answer(answer: InspectResponse) -> Self {
        let stop = stop_of(&answer);
        let containers: Vec<_> = answer.containers.into_iter().map(ContainerReport::of).collect();
        let has_ended = |container: &ContainerReport| {
            matches!(container.state, "stopped" | "exited" | "completed" | "not-created")
        };
        let programs = || containers.iter().filter(|container| container.role != "sandbox");
        let nothing_runs = programs().next().is_some() && programs().all(has_ended);
        let state = match (&stop, answer.outcome.enum_value_or_default()) {
            (_, Outcome::SUCCEEDED) if nothing_runs => PodState::Completed,
            (_, Outcome::FAILED) if nothing_runs => PodState::Failed,
            _ if !containers.is_empty() && containers.iter().all(has_ended) => PodState::Stopped,
            (Some(_), _) => PodState::Stopping,
            (None, _) => PodState::Running,
        };
        let cost = answer.cost.into_option().map(CostReport::of);
        Self {
            id: answer.id,
            name: said(answer.pod_name),
            pod_namespace: said(answer.pod_namespace),
            uid: said(answer.pod_uid),
            namespace: answer.namespace,
            state,
            error: None,
            release: said(answer.release),
            started_at_ms: Some(answer.started_at_ms),
            longest_away_ms: answer.longest_away_us.map(|away| away.div_ceil(1000)),
            longest_away_on: said(answer.longest_away_on),
            fault: said(answer.fault),
            cost,
            stop,
            containers,
        }
    }

    fn of_silent(entry: Entry, error: &ClientError) -> Self {
        let dead = matches!(error, ClientError::Dead { .. });
        Self {
            id: entry.id,
            name: said(entry.pod_name),
            pod_namespace: said(entry.pod_namespace),
            uid: None,
            namespace: entry.namespace,
            state: if dead { PodState::ShimDead } else { PodState::ShimSilent },
            error: Some(error.to_string()),
            release: None,
            started_at_ms: None,
            longest_away_ms: None,
            longest_away_on: None,
            fault: None,
            cost: None,
            stop: None,
            containers: Vec::new(),
        }
    }

    /// What people call it.
    pub fn title(&self) -> String {
        match (&self.name, &self.pod_namespace) {
            (Some(name), Some(namespace)) => format!("{namespace}/{name}"),
            (Some(name), None) => name.clone(),
            _ => self.id.clone(),
        }
    }
}

impl PodState {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Stopping => "stopping",
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
        let gate = said(container.gate);
        let gate_state = gate.is_some().then(|| match container.gate_state.enum_value_or_default() {
            GateState::CLOSED => "closed",
            GateState::STARTED => "started",
            GateState::OPEN => "open",
        });
        Self {
            id: said(container.id),
            name: container.name,
            role: role(container.role.enum_value_or_default()),
            state: state(container.state.enum_value_or_default()),
            pid: (container.pid != 0).then_some(container.pid),
            gate,
            gate_state,
            held_for: said(container.held_for),
            restarts: container.restarts,
            real_exit_code: container.real_exit_code,
            shown_exit_code: container.shown_exit_code,
            pending_signal: (container.pending_signal != 0).then(|| signal(container.pending_signal)),
            kill_in_ms: container.kill_in_ms,
            restart_in_ms: container.restart_in_ms,
            exited_at_ms: container.exited_at_ms,
        }
    }
}

fn stop_of(answer: &InspectResponse) -> Option<StopReport> {
    let reason = stop_reason(answer.stop_reason.enum_value_or_default())?;
    let budget = answer.budget.enum_value_or_default();
    let counted = matches!(budget, Budget::ENFORCED | Budget::LAST_CALL);
    Some(StopReport {
        reason,
        budget: budget_words(budget),
        left_ms: counted.then_some(answer.budget_left_ms),
    })
}

/// Why a pod is stopped; `None` if it is not.
pub(crate) fn stop_reason(reason: StopReason) -> Option<&'static str> {
    Some(match reason {
        StopReason::NOT_STOPPING => return None,
        StopReason::CALLER => "caller",
        StopReason::SANDBOX_ENDED => "sandbox",
        StopReason::REQUESTED => "requested",
        StopReason::ZERO_GRACE => "zero-grace",
        StopReason::MAINS_DONE => "completed",
        StopReason::INIT_FAILED => "init-failed",
        StopReason::SIDECAR_FAILED => "sidecar-failed",
        StopReason::FATAL => "fatal",
    })
}

/// Who counts the time of a stop.
pub(crate) fn budget_words(budget: Budget) -> &'static str {
    match budget {
        Budget::NONE | Budget::CALLERS => "caller",
        Budget::ENFORCED => "enforced",
        Budget::LAST_CALL => "last-call",
        Budget::SPENT => "spent",
    }
}

fn role(role: Role) -> &'static str {
    match role {
        Role::SANDBOX => "sandbox",
        Role::PASSTHROUGH => "passthrough",
        Role::INIT => "init",
        Role::SIDECAR => "sidecar",
        Role::MAIN => "main",
        Role::STANDBY => "standby",
    }
}

fn state(state: State) -> &'static str {
    match state {
        State::NOT_CREATED => "not-created",
        State::CREATING => "creating",
        State::CREATED => "created",
        State::HELD => "held",
        State::STARTING => "starting",
        State::RUNNING => "running",
        State::PAUSED => "paused",
        State::BACKING_OFF => "backing-off",
        State::RESTARTING => "restarting",
        State::COMPLETED => "completed",
        State::ENDING => "ending",
        State::STOPPED => "stopped",
        State::EXITED => "exited",
    }
}

/// A container as people call it. One that has no name is called by its id, which says nothing: under CRI the sandbox,
/// whose id is the pod's.
pub fn called(name: &str, pod_id: &str) -> String {
    let is_id = name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    match is_id {
        true if name == pod_id => "(sandbox)".to_owned(),
        true => name.chars().take(SHORT_ID).collect(),
        false => name.to_owned(),
    }
}

/// Of an id, so much tells pods apart; crictl shows as much.
pub const SHORT_ID: usize = 13;

/// A signal's name.
pub(crate) fn signal(number: u32) -> String {
    Signal::parse(&number.to_string()).map_or_else(|_| number.to_string(), |signal| signal.to_string())
}

/// A text that says something.
pub(crate) fn said(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}
