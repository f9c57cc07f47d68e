//! The input of an exploration: a small pod, its callers, and how much may go wrong. Owns only this description.

use std::collections::{BTreeMap, BTreeSet};

use pod_lifecycle::{Caller, ContainerSpec, Origin, PidNamespace, Request, StartBarrier, TaskKind};
use pod_spec::Plan;

use crate::command::{Command, Scenario};

/// A small pod and everything that may happen to it.
#[derive(Clone, Debug)]
pub struct Exploration {
    /// The pod's plan.
    pub plan: Option<Plan>,
    /// Callers, each a sequence of requests: the next one is sent when the one before was answered. A caller does not
    /// wait for the answer to a Wait.
    pub callers: Vec<Vec<Request>>,
    /// The exit codes with which programs may end by themselves, each code once.
    pub endings: BTreeMap<String, Vec<u32>>,
    /// Programs that ignore stop signals.
    pub stubborn: BTreeSet<String>,
    /// How much may go wrong.
    pub limits: Limits,
}

/// How much may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many operations and probes may fail.
    pub failures: u32,
    /// The most states; more are a mistake in the exploration.
    pub states: usize,
}

/// The spec of a container that CRI created and whose name is its id.
pub(super) fn spec_of(name: &str, kind: TaskKind, plan: Option<Plan>) -> ContainerSpec {
    ContainerSpec {
        name: name.to_owned(),
        kind,
        caller: Caller::Cri,
        kubelet_type: None,
        start_barrier: StartBarrier::None,
        pid_namespace: PidNamespace::Private,
        kubelet_grace: None,
        kubelet: None,
        oom_score_adj: None,
        origin: Origin::Program,
        plan,
    }
}

impl Exploration {
    /// A pod with those annotations (without prefix) in which nothing goes wrong yet.
    ///
    /// # Errors
    /// What is wrong with the annotations.
    pub fn of(annotations: &[(&str, &str)]) -> Result<Self, String> {
        let full: Vec<_> =
            annotations.iter().map(|(key, value)| (format!("{}{key}", pod_spec::PREFIX), *value)).collect();
        let parsed = pod_spec::parse(full.iter().map(|(key, value)| (key.as_str(), *value)));
        Ok(Self {
            plan: parsed.map_err(|error| error.to_string())?.plan,
            callers: Vec::new(),
            endings: BTreeMap::new(),
            stubborn: BTreeSet::new(),
            limits: Limits { failures: 0, states: 1_000_000 },
        })
    }

    /// A caller that makes these requests, written as in scenarios: `create app`, `start app`, `kill app TERM`.
    ///
    /// # Errors
    /// The first line that is no request.
    pub fn caller(mut self, lines: &[&str]) -> Result<Self, String> {
        let scenario = Scenario::parse(lines.iter().copied()).map_err(|error| error.to_string())?;
        let mut requests = Vec::new();
        for command in scenario.0 {
            requests.push(match command {
                Command::Create(new) => {
                    let spec = spec_of(&new.name, TaskKind::Container, self.plan.clone());
                    Request::Create { container: new.id, spec: Box::new(spec) }
                }
                Command::Start(target) => Request::Start(target),
                Command::Exec(container, exec) => Request::Exec { container, exec },
                Command::Kill(target, signal, reach) => Request::Kill { target, signal, reach },
                Command::Wait(target) => Request::Wait(target),
                Command::Switch(name) => Request::Switch(name),
                Command::Restart => Request::Restart,
                Command::Delete(target) => Request::Delete(target),
                other => return Err(format!("no request: {other}")),
            });
        }
        self.callers.push(requests);
        Ok(self)
    }

    /// Lets the program of a container end by itself with these codes, each code once.
    #[must_use]
    pub fn ending(mut self, container: &str, codes: &[u32]) -> Self {
        self.endings.insert(container.to_owned(), codes.to_vec());
        self
    }

    /// Makes a program ignore stop signals.
    #[must_use]
    pub fn stubborn(mut self, container: &str) -> Self {
        self.stubborn.insert(container.to_owned());
        self
    }

    /// Lets that many operations and probes fail.
    #[must_use]
    pub fn failures(mut self, failures: u32) -> Self {
        self.limits.failures = failures;
        self
    }
}
