//! The condition `podshim.io/Started` of what a shim shows: whether every main of the plan runs.
//!
//! Decides nothing of when it is written: that is `conditions`. Its texts have only what changes seldom, no probe's error: each change is a
//! request.

use control_api::container::{Role, State};
use control_api::{Container, InspectResponse, StopReason};

/// The condition of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Started {
    /// Why, as the API wants it.
    pub reason: StartedReason,
    /// Why, for people.
    pub message: String,
}

/// Why the condition is as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartedReason {
    /// Every main runs.
    MainsRun,
    /// The pod has no plan: nothing is held.
    NoPlan,
    /// A main does not exist yet, or its start is under way.
    NotStarted,
    /// A main is held.
    Held,
    /// A main has ended, or is to be started again.
    NotRunning,
    /// The whole pod restarts in place.
    Restarting,
    /// A stop is under way.
    Stopping,
}

impl StartedReason {
    /// The word in the condition.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::MainsRun => "MainsRun",
            Self::NoPlan => "NoPlan",
            Self::NotStarted => "NotStarted",
            Self::Held => "Held",
            Self::NotRunning => "NotRunning",
            Self::Restarting => "Restarting",
            Self::Stopping => "Stopping",
        }
    }

    /// Of several mains the one with the highest says why.
    const fn rank(self) -> u8 {
        match self {
            Self::MainsRun | Self::NoPlan => 0,
            Self::NotStarted => 1,
            Self::Held => 2,
            Self::NotRunning => 3,
            Self::Restarting | Self::Stopping => 4,
        }
    }

    /// The reason with that word that makes the condition true.
    #[must_use]
    pub fn true_by(word: &str) -> Option<Self> {
        [Self::MainsRun, Self::NoPlan].into_iter().find(|own| own.word() == word)
    }

    /// The condition's status.
    #[must_use]
    pub const fn is_true(self) -> bool {
        matches!(self, Self::MainsRun | Self::NoPlan)
    }
}

/// Whether a container belongs to a plan.
pub(super) fn is_planned(container: &Container) -> bool {
    matches!(container.role.enum_value_or_default(), Role::INIT | Role::SIDECAR | Role::MAIN | Role::STANDBY)
}

/// The condition of a pod.
#[must_use]
pub fn of(pod: &InspectResponse) -> Started {
    let started = |reason, message: String| Started { reason, message };
    match pod.stop_reason.enum_value_or_default() {
        StopReason::NOT_STOPPING => {}
        StopReason::RESTART => {
            return started(StartedReason::Restarting, "the pod restarts in place".to_owned());
        }
        reason => return started(StartedReason::Stopping, format!("the pod stops ({})", reason.word())),
    }
    let is_main = |container: &&Container| container.role.enum_value_or_default() == Role::MAIN;
    let mains: Vec<&Container> = pod.containers.iter().filter(is_main).collect();
    if mains.is_empty() && !pod.containers.iter().any(is_planned) {
        return without_plan(pod);
    }
    if mains.is_empty() {
        return started(StartedReason::NotStarted, "no main is created yet".to_owned());
    }
    let found = mains.into_iter().map(of_main).max_by_key(|found| found.reason.rank());
    match found {
        Some(found) if found.reason != StartedReason::MainsRun => found,
        _ => started(StartedReason::MainsRun, "every main of the plan runs".to_owned()),
    }
}

/// A pod without a plan is as its kubelet sees it. Before the first container it is not known whether it has one.
fn without_plan(pod: &InspectResponse) -> Started {
    let is_regular = |container: &&Container| container.role.enum_value_or_default() == Role::PASSTHROUGH;
    if pod.containers.iter().any(|container| is_regular(&container)) {
        let message = "the pod has no plan: podshim holds nothing".to_owned();
        return Started { reason: StartedReason::NoPlan, message };
    }
    Started { reason: StartedReason::NotStarted, message: "no container is created yet".to_owned() }
}

fn of_main(main: &Container) -> Started {
    let name = &main.name;
    let (reason, message) = match main.state.enum_value_or_default() {
        State::RUNNING | State::PAUSED => (StartedReason::MainsRun, String::new()),
        State::NOT_CREATED | State::CREATING | State::CREATED | State::STARTING => {
            (StartedReason::NotStarted, format!("main {name:?} is not started yet"))
        }
        State::HELD => {
            let awaited = awaited(&main.held_for);
            (StartedReason::Held, format!("main {name:?} is held, waiting for {awaited}"))
        }
        State::BACKING_OFF | State::RESTARTING => {
            (StartedReason::NotRunning, format!("main {name:?} is to be started again"))
        }
        State::COMPLETED | State::ENDING | State::STOPPED | State::EXITED => {
            (StartedReason::NotRunning, format!("main {name:?} has ended"))
        }
    };
    Started { reason, message }
}

/// A main that only `*=main` names is not in a shim's tables before it is created, nor after it was removed: as long as a container of the
/// pod's object is missing there, no one knows that every main runs.
#[must_use]
pub fn with_all(started: Started, missing: Option<&str>) -> Started {
    match missing.filter(|_| started.reason.is_true()) {
        Some(name) => Started {
            reason: StartedReason::NotStarted,
            message: format!("container {name:?} does not exist now"),
        },
        None => started,
    }
}

/// For whom a container waits, without what that one does: `sidecar "proxy"` of `sidecar "proxy": not ready yet`.
pub(super) fn awaited(held_for: &str) -> &str {
    held_for.split_once(": ").map_or(held_for, |(awaited, _)| awaited)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, role: Role, state: State) -> Container {
        Container { name: name.to_owned(), role: role.into(), state: state.into(), ..Default::default() }
    }

    fn pod(containers: Vec<Container>) -> InspectResponse {
        InspectResponse { containers, ..Default::default() }
    }

    #[test]
    fn it_is_true_when_every_main_runs() {
        let sidecar = container("proxy", Role::SIDECAR, State::RUNNING);
        let of_mains = |mains: &[State]| {
            let mains = mains.iter().map(|state| container("app", Role::MAIN, *state));
            of(&pod([sidecar.clone()].into_iter().chain(mains).collect())).reason
        };
        assert_eq!(of_mains(&[State::RUNNING, State::PAUSED]), StartedReason::MainsRun);
        assert_eq!(of_mains(&[]), StartedReason::NotStarted);
        assert_eq!(of_mains(&[State::RUNNING, State::HELD]), StartedReason::Held);
        assert_eq!(of_mains(&[State::CREATED, State::RUNNING]), StartedReason::NotStarted);
        assert_eq!(of_mains(&[State::BACKING_OFF, State::RUNNING]), StartedReason::NotRunning);
        assert_eq!(of_mains(&[State::EXITED]), StartedReason::NotRunning);
    }

    #[test]
    fn a_message_has_no_probes_error() {
        let mut main = container("app", Role::MAIN, State::HELD);
        main.held_for = "sidecar \"proxy\": connection refused".to_owned();
        assert_eq!(of(&pod(vec![main])).message, "main \"app\" is held, waiting for sidecar \"proxy\"");
    }

    #[test]
    fn a_stop_makes_it_false_while_the_mains_run_on() {
        let mut pod = pod(vec![container("app", Role::MAIN, State::RUNNING)]);
        pod.stop_reason = StopReason::CALLER.into();
        let stopping = of(&pod);
        assert_eq!(
            (stopping.reason, &*stopping.message),
            (StartedReason::Stopping, "the pod stops (caller)")
        );
        pod.stop_reason = StopReason::RESTART.into();
        assert_eq!(of(&pod).reason, StartedReason::Restarting);
    }

    #[test]
    fn a_pod_without_a_plan_waits_for_nothing() {
        let sandbox = container("pause", Role::SANDBOX, State::RUNNING);
        assert_eq!(of(&pod(vec![sandbox.clone()])).reason, StartedReason::NotStarted);
        let plain = container("app", Role::PASSTHROUGH, State::CREATED);
        assert_eq!(of(&pod(vec![sandbox, plain])).reason, StartedReason::NoPlan);
    }
}
