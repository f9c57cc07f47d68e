//! One container: its phase, what is known of its end, and what callers see of it.
//!
//! Owns its phase, which `events` alone changes: one verb an event, which also resets what the event ends. Its parts (ending, hooks, freezer
//! ...) are types of their own with verbs of their own. Knows no pod: what an event means for others is decided above.

pub(crate) mod ending;
mod events;
pub(crate) mod exec;
pub(crate) mod freezer;
pub(crate) mod gate_probe;
pub(crate) mod hold;
pub(crate) mod hooks;
pub(crate) mod overdue;
pub(crate) mod phase;
pub(crate) mod restarts;
pub(crate) mod takeover;

use std::collections::BTreeMap;

use crate::container::ending::Ending;
use crate::container::exec::{Exec, ExecPhase};
use crate::container::freezer::Freezer;
use crate::container::gate_probe::GateProbe;
use crate::container::hooks::Hooks;
use crate::container::overdue::Overdue;
use crate::container::phase::{BeforeRemoval, DeferredSignal, ExitedFrom, Part, Phase, Program, ProgramEnd};
use crate::container::restarts::Restarts;
use crate::container::takeover::Takeover;
use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, ExecId, OpId, RequestId};
use crate::interface::inspection::InspectedState;
use crate::interface::spec::ContainerSpec;
use crate::interface::view::{Status, View};

/// A container that the shim has been asked to create and not yet to delete.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    id: ContainerId,
    spec: ContainerSpec,
    part: Part,
    phase: Phase,
    /// The pid of its last process; 0 before the first one.
    pid: u32,
    program: Program,
    start_error: Option<Exit>,
    probe: Option<GateProbe>,
    checkpoint: Option<(OpId, RequestId)>,
    execs: BTreeMap<ExecId, Exec>,
    waiters: Vec<RequestId>,
    /// Deletes that wait for the end of a pause, which would freeze the next container of that id.
    deletes: Vec<RequestId>,
    pub(crate) freezer: Freezer,
    pub(crate) ending: Ending,
    pub(crate) hooks: Hooks,
    pub(crate) restarts: Restarts,
    pub(crate) takeover: Takeover,
    pub(crate) overdue: Overdue,
}

/// A create that has ended.
#[derive(Debug)]
pub(crate) struct EndedCreate {
    pub(crate) request: RequestId,
    /// The exit of a completed init that was created again (I4).
    pub(crate) completed: Option<Exit>,
    pub(crate) deletes: Vec<RequestId>,
}

/// A start that has ended.
#[derive(Debug)]
pub(crate) struct EndedStart {
    /// The Start requests that wait for the answer.
    pub(crate) announce: Vec<RequestId>,
    /// An exit that came meanwhile.
    pub(crate) early_exit: Option<Exit>,
    /// The signals that came meanwhile.
    pub(crate) signals: Vec<DeferredSignal>,
}

/// A removal that has ended.
#[derive(Debug)]
pub(crate) struct EndedRemoval {
    pub(crate) requests: Vec<RequestId>,
    pub(crate) exit: Exit,
    pub(crate) before: BeforeRemoval,
}

/// What the exit of a container's init means for its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InitExit {
    /// A start or a removal is under way; the exit counts when that has ended.
    Deferred,
    /// It counts now.
    From(ExitedFrom),
    /// There was no process.
    Impossible,
}

/// What is left to answer when a container is gone.
#[derive(Debug)]
pub(crate) struct RemovedContainer {
    pub(crate) container: Container,
    /// Requests that get no other answer than that it is gone.
    pub(crate) waiters: Vec<RequestId>,
    pub(crate) execs: Vec<Exec>,
}

/// What an operation that has ended was about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Operated {
    Create,
    Restore,
    Start,
    Recreate,
    Remove,
    KillRemaining,
    Freezer,
    Checkpoint,
    Hook,
    GateCheck,
    StartExec(ExecId),
    RemoveExec(ExecId),
}

/// What is known of it.
impl Container {
    pub(crate) fn id(&self) -> &ContainerId {
        &self.id
    }

    pub(crate) fn spec(&self) -> &ContainerSpec {
        &self.spec
    }

    pub(crate) fn part(&self) -> Part {
        self.part
    }

    /// Its place in the member table.
    pub(crate) fn member(&self) -> Option<usize> {
        match self.part {
            Part::Member(index) => Some(index),
            Part::Sandbox | Part::Passthrough => None,
        }
    }

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The pid of its last process; 0 before the first one.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// Whether its program has ever been exec'd: a container that never ran delays no other (T4).
    pub(crate) fn program(&self) -> Program {
        self.program
    }

    pub(crate) fn never_ran(&self) -> bool {
        self.program == Program::NeverRan
    }

    /// Whether podshim starts it for the first time (I8): later ones are restarts (R4).
    pub(crate) fn is_first_try(&self) -> bool {
        self.never_ran() && self.restarts.count() == 0
    }

    /// Its Start failed for its caller, which now kills and deletes it: that is no stop.
    pub(crate) fn start_error(&self) -> Option<Exit> {
        self.start_error
    }

    /// The gate's probe while the program runs and the gate is closed.
    pub(crate) fn probe(&self) -> Option<&GateProbe> {
        self.probe.as_ref()
    }

    pub(crate) fn probe_mut(&mut self) -> Option<&mut GateProbe> {
        self.probe.as_mut()
    }

    pub(crate) fn is_being_checkpointed(&self) -> bool {
        self.checkpoint.is_some()
    }

    pub(crate) fn execs(&self) -> impl Iterator<Item = (&ExecId, &Exec)> {
        self.execs.iter()
    }

    pub(crate) fn exec(&self, id: &ExecId) -> Option<&Exec> {
        self.execs.get(id)
    }

    pub(crate) fn exec_mut(&mut self, id: &ExecId) -> Option<&mut Exec> {
        self.execs.get_mut(id)
    }

    /// Whether an exec's exit must still come before its own (CONTRACT §6).
    pub(crate) fn has_running_execs(&self) -> bool {
        self.execs.values().any(Exec::is_running)
    }

    /// Whether there is a process of its own to signal.
    pub(crate) fn has_process(&self) -> bool {
        matches!(
            self.phase,
            Phase::Created
                | Phase::Held(_)
                | Phase::Starting { early_exit: None, .. }
                | Phase::Running { .. }
                | Phase::EndingUnrun { .. }
        )
    }

    /// Whether it is created, and no caller has started it.
    pub(crate) fn is_unstarted(&self) -> bool {
        matches!(self.phase, Phase::Created | Phase::CompletedAgain { .. })
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self.phase, Phase::Held(_))
    }

    /// R7: whether it is held, its process is gone, and podshim is to make it another one.
    pub(crate) fn is_held_without_a_process(&self) -> bool {
        let waits = match self.phase {
            Phase::BackingOff { .. } | Phase::Draining { was: ExitedFrom::Held, .. } => true,
            Phase::Recreating { .. } => !self.ending.is_final(),
            _ => false,
        };
        waits && self.never_ran()
    }

    /// I5: whether it is a completed init that callers see running.
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(self.phase, Phase::Hidden { .. })
    }

    pub(crate) fn runs(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
    }

    /// T4: whether its program has been started and its end is not final: what others must wait for. Containers
    /// that never ran do not count, nor do completed ones.
    pub(crate) fn is_unfinished(&self) -> bool {
        match self.phase {
            Phase::Starting { .. } | Phase::Running { .. } => true,
            Phase::Held(_) | Phase::Draining { .. } | Phase::BackingOff { .. } | Phase::Recreating { .. } => {
                self.program == Program::HasRun
            }
            _ => false,
        }
    }

    /// Whether nothing of it is left to end: its exit is shown, or it is being deleted.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.phase, Phase::Stopped { .. } | Phase::Removing { .. })
    }

    /// Whether something of it has still to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_unfinished()
            || matches!(self.phase, Phase::EndingUnrun { .. } | Phase::Draining { .. })
            || matches!(
                self.phase,
                Phase::Removing { before: BeforeRemoval::Created { early_exit: None }, .. }
            )
            || (matches!(self.phase, Phase::Created | Phase::Recreating { .. }) && self.ending.is_final())
            || (self.part == Part::Passthrough && self.has_process())
    }

    /// Whether a stop has interrupted its work: its program did not end by itself, or it was about to be restarted (R7, I7), also
    /// when its next process existed already.
    pub(crate) fn was_interrupted(&self) -> bool {
        match self.phase {
            Phase::Draining { was: ExitedFrom::Running { end, .. }, .. } => end == ProgramEnd::Interrupted,
            Phase::Draining { was: ExitedFrom::EndingUnrun { .. }, .. } => self.program == Program::HasRun,
            Phase::BackingOff { .. } | Phase::Recreating { .. } => true,
            _ => false,
        }
    }

    /// Whether callers see it running: started, and its exit is not shown.
    pub(crate) fn is_shown_running(&self) -> bool {
        self.lives_for_callers() || matches!(self.phase, Phase::Hidden { .. })
    }

    /// Whether a caller that stops the pod would stop this container too: started, and not ended in the caller's eyes,
    /// held or not. A completed init that is hidden (I5) does not count.
    pub(crate) fn lives_for_callers(&self) -> bool {
        match self.phase {
            // An exec may outlive what was never started.
            Phase::Draining { was: ExitedFrom::Created, .. } => false,
            Phase::Held(_)
            | Phase::Starting { .. }
            | Phase::Running { .. }
            | Phase::EndingUnrun { .. }
            | Phase::Draining { .. }
            | Phase::BackingOff { .. }
            | Phase::Recreating { .. } => true,
            Phase::Creating { .. }
            | Phase::Created
            | Phase::CompletedAgain { .. }
            | Phase::Prepared
            | Phase::Restoring { .. }
            | Phase::Hidden { .. }
            | Phase::Stopped { .. }
            | Phase::Removing { .. } => false,
        }
    }

    /// What callers see: a container that has been started and is not final is RUNNING (F11). `stand_in_pid` stands for
    /// the pid of a container that has no process of its own at the moment (F13). One whose create is under way is
    /// CREATED, for a containerd that was restarted meanwhile: it deletes such a task, and the Delete waits for the end
    /// of the create. On NotFound containerd 1.6 takes the container for one without a task (trap 15).
    pub(crate) fn view(&self, stand_in_pid: Option<u32>) -> View {
        let running = if self.freezer.shows_paused() { Status::Paused } else { Status::Running };
        let stand_in = stand_in_pid.unwrap_or(self.pid);
        let (status, pid, exit) = match &self.phase {
            Phase::Created => (Status::Created, self.pid, None),
            Phase::CompletedAgain { .. } => (Status::Created, stand_in, None),
            Phase::Creating { .. } | Phase::Prepared | Phase::Restoring { .. } => (Status::Created, 0, None),
            // F13: the pid of a deferred exit is dead already.
            Phase::Starting { early_exit: Some(_), .. } => (Status::Running, stand_in, None),
            Phase::Held(_) | Phase::Starting { .. } | Phase::Running { .. } | Phase::EndingUnrun { .. } => {
                (running, self.pid, None)
            }
            Phase::Draining { .. }
            | Phase::BackingOff { .. }
            | Phase::Recreating { .. }
            | Phase::Hidden { .. } => (Status::Running, stand_in, None),
            Phase::Stopped { exit } | Phase::Removing { exit, .. } => {
                (Status::Stopped, self.pid, Some(*exit))
            }
        };
        View { status, pid, exit, has_process: self.has_process() }
    }

    /// Where it is in its life, for operators.
    pub(crate) fn inspected_state(&self) -> InspectedState {
        match &self.phase {
            Phase::Creating { .. } => InspectedState::Creating,
            Phase::Created | Phase::Prepared => InspectedState::Created,
            Phase::Held(_) => InspectedState::Held,
            Phase::Starting { .. } | Phase::Restoring { .. } => InspectedState::Starting,
            Phase::Running { .. } if self.freezer.is_paused() => InspectedState::Paused,
            Phase::Running { .. } => InspectedState::Running,
            Phase::BackingOff { .. } => InspectedState::BackingOff,
            Phase::Recreating { .. } => InspectedState::Restarting,
            Phase::Hidden { .. } | Phase::CompletedAgain { .. } => InspectedState::Completed,
            Phase::EndingUnrun { .. } | Phase::Draining { .. } => InspectedState::Ending,
            Phase::Stopped { .. } | Phase::Removing { .. } => InspectedState::Stopped,
        }
    }

    /// Whether `runtime start` is under way.
    pub(crate) fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting { .. })
    }

    /// Whether its process is gone, and something else of it has to end first.
    pub(crate) fn is_draining(&self) -> bool {
        matches!(self.phase, Phase::Draining { .. })
    }

    /// Whether its process has exited while it was being started.
    pub(crate) fn exited_during_start(&self) -> bool {
        matches!(self.phase, Phase::Starting { early_exit: Some(_), .. })
    }

    /// What waits here for the end of an operation.
    pub(crate) fn operated(&self, op: OpId) -> Option<Operated> {
        let exec = self.execs.iter().find_map(|(id, exec)| match exec.phase() {
            ExecPhase::Starting { op: waiting, .. } if *waiting == op => {
                Some(Operated::StartExec(id.clone()))
            }
            ExecPhase::Removing { op: waiting, .. } if *waiting == op => {
                Some(Operated::RemoveExec(id.clone()))
            }
            _ => None,
        });
        if exec.is_some() {
            return exec;
        }
        if self.freezer.waits_for(op) {
            return Some(Operated::Freezer);
        }
        if self.checkpoint.is_some_and(|(waiting, _)| waiting == op) {
            return Some(Operated::Checkpoint);
        }
        if self.hooks.waits_for(op) {
            return Some(Operated::Hook);
        }
        if self.probe.as_ref().is_some_and(|probe| probe.waits_for(op)) {
            return Some(Operated::GateCheck);
        }
        match &self.phase {
            Phase::Creating { op: waiting, .. } if *waiting == op => Some(Operated::Create),
            Phase::Restoring { op: waiting, .. } if *waiting == op => Some(Operated::Restore),
            Phase::Starting { op: waiting, .. } if *waiting == op => Some(Operated::Start),
            Phase::Recreating { op: waiting, .. } if *waiting == op => Some(Operated::Recreate),
            Phase::Removing { op: waiting, .. } if *waiting == op => Some(Operated::Remove),
            Phase::Draining { op: Some(waiting), .. } if *waiting == op => Some(Operated::KillRemaining),
            _ => None,
        }
    }
}
