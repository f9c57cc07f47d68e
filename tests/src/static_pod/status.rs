//! The pod status that a kubelet reports: the fields that tests look at. Only parses; sends no request.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not all containers have been started yet.
    Pending,
    /// At least one runs, or will again.
    Running,
    /// All have ended with 0.
    Succeeded,
    /// All have ended, one of them with another code.
    Failed,
}

/// `state` of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerState {
    /// The kubelet is going to start it, for the first time or again.
    Waiting {
        /// `ContainerCreating`, `CrashLoopBackOff`.
        reason: String,
    },
    /// The kubelet reports it as running.
    Running,
    /// It has ended.
    Terminated {
        /// Its exit code.
        code: i64,
        /// `Completed`, `Error`, `OOMKilled`.
        reason: String,
        /// What its termination log says.
        message: String,
    },
}

impl ContainerState {
    fn parse(state: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if state.get("running").is_some() {
            return ContainerState::Running;
        }
        match state.get("terminated") {
            Some(end) => ContainerState::Terminated {
                code: end["exitCode"].as_i64().unwrap_or_default(),
                reason: text(&end["reason"]),
                message: text(&end["message"]),
            },
            None => ContainerState::Waiting { reason: text(&state["waiting"]["reason"]) },
        }
    }

    /// Whether the kubelet reports it as running.
    #[must_use]
    pub fn is_running(&self) -> bool {
        *self == ContainerState::Running
    }

    /// The exit code of one that has ended.
    #[must_use]
    pub fn code(&self) -> Option<i64> {
        match self {
            ContainerState::Terminated { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// A container of `status.containerStatuses` or `initContainerStatuses`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its name.
    pub name: String,
    /// Its current state.
    pub state: ContainerState,
    /// `restartCount`.
    pub restarts: u64,
    /// `ready`.
    pub ready: bool,
}

/// A pod's status as the kubelet reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodStatus {
    /// `status.phase`.
    pub phase: Phase,
    /// The condition `Ready`: whether a Service sends it something.
    pub ready: bool,
    /// Init containers, then the others.
    pub containers: Vec<ContainerStatus>,
}

impl PodStatus {
    pub(crate) fn parse(pod: &Value) -> Result<Self> {
        let status = &pod["status"];
        let phase = match status["phase"].as_str() {
            Some("Pending") => Phase::Pending,
            Some("Running") => Phase::Running,
            Some("Succeeded") => Phase::Succeeded,
            Some("Failed") => Phase::Failed,
            other => bail!("not a phase: {other:?}"),
        };
        let lists = ["initContainerStatuses", "containerStatuses"];
        let containers = lists.iter().filter_map(|list| status[list].as_array()).flatten();
        let containers = containers.map(|container| ContainerStatus {
            name: container["name"].as_str().unwrap_or_default().to_owned(),
            state: ContainerState::parse(&container["state"]),
            restarts: container["restartCount"].as_u64().unwrap_or_default(),
            ready: container["ready"] == true,
        });
        let mut conditions = status["conditions"].as_array().into_iter().flatten();
        let ready = conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        Ok(Self { phase, ready, containers: containers.collect() })
    }

    /// Whether the pod has ended, with success or not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }

    /// One container.
    ///
    /// # Errors
    /// If the kubelet has not reported this container.
    pub fn of(&self, name: &str) -> Result<&ContainerStatus> {
        let found = self.containers.iter().find(|container| container.name == name);
        found.with_context(|| format!("no container {name} in {self:?}"))
    }

    /// The exit code of a container that has ended.
    #[must_use]
    pub fn code(&self, name: &str) -> Option<i64> {
        self.of(name).ok()?.state.code()
    }
}
