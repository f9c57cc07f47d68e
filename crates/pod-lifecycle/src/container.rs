//! One container: its phase, what is known of its end, and what callers see of it.

pub(crate) mod checkpoint;
pub(crate) mod ending;
pub(crate) mod exec;
pub(crate) mod freezer;
pub(crate) mod gate_probe;
pub(crate) mod hold;
pub(crate) mod hooks;
pub(crate) mod lone_stop;
pub(crate) mod phase;
pub(crate) mod restarts;
pub(crate) mod takeover;

use std::collections::BTreeMap;

use crate::container::checkpoint::Checkpoint;
use crate::container::ending::{Ending, NextExit};
use crate::container::exec::{Exec, ExecPhase};
use crate::container::freezer::{Freezer, FreezerChange};
use crate::container::gate_probe::GateProbe;
use crate::container::hooks::Hooks;
use crate::container::lone_stop::LoneStop;
use crate::container::phase::{BeforeRemoval, Part, Phase, Program};
use crate::container::restarts::Restarts;
use crate::container::takeover::{TakeOver, TakeoverStage};
use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, ExecId, OpId, RequestId};
use crate::interface::inspection::InspectedState;
use crate::interface::spec::ContainerSpec;
use crate::interface::time::PodTime;
use crate::interface::view::{Status, View};

/// A container that the shim has been asked to create and not yet to delete.
#[derive(Clone, Debug)]
pub(crate) struct Container {
    pub(crate) id: ContainerId,
    pub(crate) spec: ContainerSpec,
    pub(crate) part: Part,
    pub(crate) phase: Phase,
    /// The pid of its last process; 0 before the first one.
    pub(crate) pid: u32,
    pub(crate) freezer: Freezer,
    /// Deletes that wait for the end of a pause, which would freeze the next container of that id.
    pub(crate) deletes: Vec<RequestId>,
    pub(crate) checkpoint: Option<Checkpoint>,
    pub(crate) execs: BTreeMap<ExecId, Exec>,
    pub(crate) waiters: Vec<RequestId>,
    pub(crate) ending: Ending,
    pub(crate) hooks: Hooks,
    pub(crate) restarts: Restarts,
    /// T16: what podshim knows of a stop signal that came before its turn.
    pub(crate) lone_stop: Option<LoneStop>,
    /// Its Start failed for its caller, which now kills and deletes it: that is no stop.
    pub(crate) start_error: Option<Exit>,
    /// V3: it is taking over from its partner.
    pub(crate) takeover: Option<TakeOver>,
    /// The gate's probe while the program runs and the gate is closed.
    pub(crate) probe: Option<GateProbe>,
    /// Whether its program has ever been exec'd: a container that never ran delays no other (T4).
    pub(crate) program: Program,
}

impl Container {
    pub(crate) fn new(id: ContainerId, spec: ContainerSpec, part: Part, phase: Phase) -> Self {
        Self {
            id,
            spec,
            part,
            phase,
            pid: 0,
            freezer: Freezer::Thawed,
            deletes: Vec::new(),
            checkpoint: None,
            execs: BTreeMap::new(),
            waiters: Vec::new(),
            ending: Ending::default(),
            hooks: Hooks::default(),
            restarts: Restarts::default(),
            lone_stop: None,
            start_error: None,
            takeover: None,
            probe: None,
            program: Program::NeverRan,
        }
    }

    pub(crate) fn member(&self) -> Option<usize> {
        match self.part {
            Part::Member(index) => Some(index),
            Part::Sandbox | Part::Passthrough => None,
        }
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

    /// Whether its program has been started and its end is not final: what others must wait for. Containers
    /// that never ran do not count (T4), nor do completed ones.
    pub(crate) fn is_alive(&self) -> bool {
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

    /// What callers see: a container that has been started and is not final is RUNNING (F11). `anchor` stands in for
    /// the pid of a container that has no process of its own at the moment (F13).
    pub(crate) fn view(&self, anchor: Option<u32>) -> Option<View> {
        let running = match self.freezer {
            Freezer::Paused | Freezer::Changing(_, _, FreezerChange::Resume) => Status::Paused,
            Freezer::Thawed | Freezer::Changing(_, _, FreezerChange::Pause) => Status::Running,
        };
        let stand_in = anchor.unwrap_or(self.pid);
        let (status, pid, exit) = match &self.phase {
            Phase::Creating { .. } => return None,
            Phase::Created => (Status::Created, self.pid, None),
            Phase::CompletedAgain { .. } => (Status::Created, stand_in, None),
            Phase::Prepared | Phase::Restoring { .. } => (Status::Created, 0, None),
            // F13: the pid of a parked exit is dead already.
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
        Some(View { status, pid, exit, has_process: self.has_process() })
    }
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

impl Container {
    /// What waits here for the end of an operation.
    pub(crate) fn operated(&self, op: OpId) -> Option<Operated> {
        let exec = self.execs.iter().find_map(|(id, exec)| match exec.phase {
            ExecPhase::Starting { op: waiting, .. } if waiting == op => Some(Operated::StartExec(id.clone())),
            ExecPhase::Removing { op: waiting, .. } if waiting == op => {
                Some(Operated::RemoveExec(id.clone()))
            }
            _ => None,
        });
        if exec.is_some() {
            return exec;
        }
        if matches!(self.freezer, Freezer::Changing(waiting, ..) if waiting == op) {
            return Some(Operated::Freezer);
        }
        if self.checkpoint.is_some_and(|checkpoint| checkpoint.op == op) {
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

    pub(crate) fn phase(&self) -> &Phase {
        &self.phase
    }
}

impl Container {
    /// Whether a caller that stops the pod would stop this container too: started, and not ended in the caller's eyes,
    /// held or not. A completed init that is hidden (I5) does not count.
    pub(crate) fn lives_for_callers(&self) -> bool {
        match self.phase {
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
}

impl Container {
    /// Whether a stop interrupts its work: it was signalled, or was about to be restarted (R7).
    pub(crate) fn is_interrupted(&self) -> bool {
        self.ending.term_at.is_some()
            || matches!(self.phase, Phase::BackingOff { .. } | Phase::Recreating { .. })
    }
}

impl Container {
    /// Whether something of it has still to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_alive()
            || matches!(
                self.phase,
                Phase::EndingUnrun { .. } | Phase::Draining { .. } | Phase::Starting { .. }
            )
            || matches!(
                self.phase,
                Phase::Removing { before: BeforeRemoval::Created { early_exit: None }, .. }
            )
            || (matches!(self.phase, Phase::Created | Phase::Recreating { .. })
                && self.ending.next_exit == NextExit::Final)
            || (self.part == Part::Passthrough && self.has_process())
    }
}

impl Container {
    /// When its takeover next needs the clock.
    pub(crate) fn takeover_deadline(&self) -> Option<PodTime> {
        match self.takeover?.stage {
            TakeoverStage::Migrate { until } => Some(until),
            TakeoverStage::Gate | TakeoverStage::Retire => None,
        }
    }

    /// The request that waits for its takeover.
    pub(crate) fn takeover_request(&mut self) -> Option<RequestId> {
        self.takeover.take().and_then(|takeover| takeover.request)
    }
}

impl Container {
    pub(crate) fn inspected_state(&self) -> InspectedState {
        match &self.phase {
            Phase::Creating { .. } => InspectedState::Creating,
            Phase::Created | Phase::Prepared => InspectedState::Created,
            Phase::Held(_) => InspectedState::Held,
            Phase::Starting { .. } | Phase::Restoring { .. } => InspectedState::Starting,
            Phase::Running { .. } if self.freezer == Freezer::Paused => InspectedState::Paused,
            Phase::Running { .. } => InspectedState::Running,
            Phase::BackingOff { .. } => InspectedState::BackingOff,
            Phase::Recreating { .. } => InspectedState::Restarting,
            Phase::Hidden { .. } | Phase::CompletedAgain { .. } => InspectedState::Completed,
            Phase::EndingUnrun { .. } | Phase::Draining { .. } => InspectedState::Ending,
            Phase::Stopped { .. } | Phase::Removing { .. } => InspectedState::Stopped,
        }
    }
}
