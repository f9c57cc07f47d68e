//! Whether podshim runs a container again, and who does where podshim does not (I3, U5, R1, R2, R7, R8, R12, R13, R15).
//!
//! Owns that decision. Changes nothing: when a restart comes is `steps::back_off` and `rules::restart`.

use pod_spec::{CodeSet, RestartMode, RestartPolicy, Role};

use crate::container::Container;
use crate::container::ending::NextExit;
use crate::interface::exit::START_FAILED;
use crate::questions::exit_codes::not_zero;
use crate::questions::order::{stands_by, turn_has_come};
use crate::state::State;

/// How the last run of a container's program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastRun {
    /// It has exited with that code.
    Exited(u32),
    /// podshim could not start it. R13: that is no exit of the program, whatever codes are listed.
    NotStarted,
}

impl LastRun {
    /// What an exit of a container with that code means.
    pub(crate) fn of(pod: &State, container: &Container, code: u32) -> Self {
        match container.ending.next_exit() {
            NextExit::NotStarted => Self::NotStarted,
            // I4: its work is not done, and counts as it is shown.
            _ if pod.role(container) == Some(Role::Init) && container.was_interrupted() => {
                Self::Exited(not_zero(code))
            }
            _ => Self::Exited(code),
        }
    }

    fn code(self) -> u32 {
        match self {
            Self::Exited(code) => code,
            Self::NotStarted => START_FAILED,
        }
    }

    fn is_one_of(self, codes: CodeSet) -> bool {
        match self {
            Self::Exited(code) => codes.contains(code),
            Self::NotStarted => true,
        }
    }
}

/// Whether podshim starts a container again after an exit with that code (R1, R4, R7, R13, I3).
pub(crate) fn restarts_after(pod: &State, container: &Container, code: u32) -> bool {
    restarts(pod, container, LastRun::of(pod, container, code))
}

/// Whether podshim tries again to start a container that could not be started (R4).
pub(crate) fn is_started_again(pod: &State, container: &Container) -> bool {
    restarts(pod, container, LastRun::NotStarted)
}

fn restarts(pod: &State, container: &Container, last_run: LastRun) -> bool {
    let Some(index) = container.member().filter(|_| is_restart_wanted(pod, container)) else { return false };
    let (role, restart) = (pod.member(index).role(), pod.member(index).member().restart);
    // A container that podshim ended in order to restart it has failed, whatever its code (U4); a group is retried
    // as one (I7).
    let ordered = container.ending.ends_for_restart();
    // T12: no program has failed, and no caller has asked for its end.
    if (ordered && role == Role::Init) || container.ending.next_exit() == NextExit::TakenBack {
        return true;
    }
    // R9: without a `restart` key the first such exit stops the pod.
    if !ordered && restart.is_none() && pod.member(index).is_fatal(last_run.code()) {
        return false;
    }
    if shows_crash_loop(pod, container, index) {
        return false;
    }
    let wanted = match restart_mode(pod, index) {
        // R15: its exits are shown, and its caller restarts it.
        RestartMode::Never | RestartMode::Visible => false,
        RestartMode::OnFailure => ordered || last_run.is_one_of(codes_of(pod, index)),
        RestartMode::Always => true,
    };
    wanted && !container.restarts.are_spent(restart.and_then(|restart| restart.limit))
}

/// R12: whether the next exit of a sidecar or an init is shown, so that its kubelet recreates it with a fresh root file system, a
/// restart count and CrashLoopBackOff. Not from T0 on, and not if its caller would not recreate it.
fn shows_crash_loop(pod: &State, container: &Container, index: usize) -> bool {
    let member = pod.member(index).member();
    let limit = pod.settings().and_then(|settings| settings.defaults.visible_after);
    let is_recreated = match member.role {
        Role::Sidecar => pod.policy() == RestartPolicy::Always,
        // An init's exit is a failure: J10 is no matter.
        Role::Init => pod.policy() != RestartPolicy::Never,
        Role::Main => false,
    };
    is_recreated
        && member.restart.is_none()
        && member.pair.is_none()
        && !pod.is_stopping()
        && container.spec().kubelet.is_some()
        && container.restarts.are_spent(limit)
}

/// How podshim restarts a member: as its own key says, else as its role and the policy say (R1, R7, R8, I2, I3). A closed
/// gate changes nothing (U5).
fn restart_mode(pod: &State, index: usize) -> RestartMode {
    let member = pod.member(index).member();
    let usual = match (member.role, pod.policy()) {
        (Role::Sidecar, _) => RestartMode::Always,
        (Role::Init, RestartPolicy::Never) => RestartMode::Never,
        (Role::Init, _) => RestartMode::OnFailure,
        (Role::Main, _) => RestartMode::Visible,
    };
    member.restart.map_or(usual, |restart| restart.mode)
}

/// R13: after which exit codes `on-failure` restarts a member.
fn codes_of(pod: &State, index: usize) -> CodeSet {
    pod.member(index).member().restart.map_or(CodeSet::FAILURES, |restart| restart.codes)
}

/// Whether neither podshim nor the caller runs an init again that has failed (I2).
pub(crate) fn is_not_repeated(pod: &State, index: usize, last_run: LastRun) -> bool {
    pod.policy() == RestartPolicy::Never
        || match restart_mode(pod, index) {
            RestartMode::Never => true,
            RestartMode::OnFailure => !last_run.is_one_of(codes_of(pod, index)),
            RestartMode::Always | RestartMode::Visible => false,
        }
}

/// Whether a pending restart is still wanted: no caller has asked for the container's end, and its pod goes on (R2, R5,
/// K16).
pub(crate) fn is_restart_wanted(pod: &State, container: &Container) -> bool {
    if container.ending.is_final() || (pod.has_plan() && pod.sandbox.is_gone()) {
        return false;
    }
    match pod.role(container) {
        // V6: in a stop no container needs the standby. R1: a sidecar until its own turn to stop has come.
        Some(Role::Sidecar) if stands_by(pod, container) => !pod.is_stopping(),
        Some(Role::Sidecar) => !(wants_end(pod, container) && turn_has_come(pod, container)),
        Some(Role::Init | Role::Main) => !pod.is_stopping() && pod.failure().is_none(),
        None => false,
    }
}

/// Whether a caller has asked for this container's end, or the pod is stopping.
fn wants_end(pod: &State, container: &Container) -> bool {
    pod.is_stopping() || container.ending.held_signal().is_some()
}

/// Whether a container that has no running program at the moment must not get one again.
pub(crate) fn is_unwanted(pod: &State, container: &Container) -> bool {
    container.ending.is_final() || (!container.never_ran() && !is_restart_wanted(pod, container))
}
