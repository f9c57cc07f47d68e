//! One container: its phase, what is known of its end, and what callers see of it.
//!
//! Owns the phase enum and its projection to containerd's statuses. Decides nothing about order: that is
//! `startup`, `shutdown` and `restart`.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_spec::Signal;

use crate::action::{OpId, Reach};
use crate::backoff::Restarts;
use crate::checkpoint::Checkpoint;
use crate::event::{ContainerId, ContainerSpec, ExecId, Exit, RequestId};
use crate::exec::Exec;
use crate::history::SignalCause;
use crate::hold::Hold;
use crate::hooks::Hooks;
use crate::lone_stop::LoneStop;
use crate::standby::TakeOver;
use crate::startup::GateProbe;
use crate::time::PodTime;

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
    pub(crate) stop: StopProgress,
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

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The pause container.
    Sandbox,
    /// Not in the plan (S8).
    Passthrough,
    /// In the plan: an index into the member table.
    Member(usize),
}

/// Whether the program has ever been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    NeverRan,
    HasRun,
}

/// The cgroup freezer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freezer {
    Thawed,
    /// A pause or resume is under way: for a caller, or a thaw by podshim itself (K17).
    Changing(OpId, Option<RequestId>, FreezerChange),
    Paused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreezerChange {
    Pause,
    Resume,
}

/// Where a container is in its life.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// The first create is under way. `spent` is the exit of a completed init that is created again: it gets its stdio
    /// and no process (I4). `deletes` are requests to delete it as soon as it exists: containerd sends one when the
    /// caller of a create is gone.
    Creating { op: OpId, request: RequestId, spent: Option<Exit>, deletes: Vec<RequestId> },
    /// The runtime's init waits; the caller has not sent Start.
    Created,
    /// I4: a completed init created again; it has no process and will not run.
    Spent { exit: Exit },
    /// To be restored from a checkpoint at its Start; it has no process, and containerd knows it as CREATED with
    /// pid 0.
    Prepared,
    /// `runtime restore` is under way for these Start requests. Its pid is known when that has ended.
    Restoring { op: OpId, announce: Vec<RequestId> },
    /// The caller sent Start and got its answer; the program waits for its gates (U7). An in-place restart passes
    /// through this phase too, because the same rules decide when it starts.
    Held(Hold),
    /// `runtime start` is under way. `announce`: Start requests still to be answered; none after a hold or an in-place
    /// restart. An exit that comes meanwhile is parked, so that TaskStart comes first. `signals` are parked too: the
    /// process is still the runtime's init, which would die of them as if there were no program.
    Starting { op: OpId, announce: Vec<RequestId>, early_exit: Option<Exit>, signals: Vec<Parked> },
    /// The program runs.
    Running { since: PodTime },
    /// It ends without its program having run (again): podshim has killed the runtime's init and waits for its exit;
    /// `code` is what callers will see.
    Ending { code: u32 },
    /// The init is gone; its execs' exits and the end of what is left in its cgroup come first (CONTRACT §6).
    Draining { exit: Exit, was: Was, op: Option<OpId> },
    /// Waiting for the next restart (R4). Shown as RUNNING (F11).
    BackingOff { last: Exit, until: PodTime },
    /// R6 is under way.
    Recreating { op: OpId, last: Exit },
    /// I5: a completed init whose exit its caller must not see yet.
    Hidden { exit: Exit },
    /// Final; `exit` is what callers see.
    Stopped { exit: Exit },
    /// The final delete is under way, for all these requests; if it fails the container goes back to `before`.
    Removing { op: OpId, requests: Vec<RequestId>, exit: Exit, before: Deletable },
}

/// A signal that waits for the end of a start.
pub(crate) type Parked = (Signal, Reach, SignalCause);

/// The phases in which a container can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deletable {
    /// The delete takes its runtime's init with it; an exit that comes meanwhile is parked.
    Created {
        early_exit: Option<Exit>,
    },
    Spent,
    Prepared,
    Stopped,
}

/// What the init was doing when it exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Was {
    Created,
    Held,
    Ending { code: u32 },
    Running { ran: Duration },
}

/// How far the end of a container has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopProgress {
    /// A stop signal that waits for the sidecar's turn (K7), or for the container's hooks (H1, H2).
    pub(crate) held_signal: Option<(Signal, Reach)>,
    /// When a stop signal was delivered.
    pub(crate) term_at: Option<PodTime>,
    /// When SIGKILL is due (T7, T8).
    pub(crate) kill_at: Option<PodTime>,
    /// SIGKILL has been sent to this incarnation.
    pub(crate) killed: bool,
    /// What the next exit means.
    pub(crate) intent: Intent,
    /// K11: a caller's kill that was obeyed; its code is shown as it is (J4).
    pub(crate) obeyed: bool,
}

/// What the next exit of a container means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Intent {
    /// No caller has asked for it, and podshim has not caused it.
    #[default]
    Live,
    /// podshim ended it in order to restart it (U4, I7).
    Restart,
    /// It is final.
    End,
}

impl StopProgress {
    /// A new process has had no signal yet. What callers asked for is still to be done (T3).
    pub(crate) fn new_incarnation(&mut self) {
        self.term_at = None;
        self.kill_at = None;
        self.killed = false;
        if self.intent == Intent::Restart {
            self.intent = Intent::Live;
        }
    }

    /// A signal that podshim meant to send has not reached the process and will not: the process has exited by itself.
    pub(crate) fn not_signalled(&mut self) {
        self.term_at = None;
        if self.intent == Intent::Restart {
            self.intent = Intent::Live;
        }
    }

    /// The stop that it was part of turned out to be no stop of the pod.
    pub(crate) fn taken_back(&mut self) {
        self.term_at = None;
        self.kill_at = None;
        self.intent = Intent::Live;
    }

    /// Makes SIGKILL due at that time, or earlier if it was due earlier.
    pub(crate) fn kill_by(&mut self, at: PodTime) {
        self.kill_at = Some(self.kill_at.map_or(at, |due| due.min(at)));
    }
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
            stop: StopProgress::default(),
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
                | Phase::Ending { .. }
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
            Phase::Spent { .. } => (Status::Created, stand_in, None),
            Phase::Prepared | Phase::Restoring { .. } => (Status::Created, 0, None),
            // F13: the pid of a parked exit is dead already.
            Phase::Starting { early_exit: Some(_), .. } => (Status::Running, stand_in, None),
            Phase::Held(_) | Phase::Starting { .. } | Phase::Running { .. } | Phase::Ending { .. } => {
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

/// What callers see of a container or exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The status.
    pub status: Status,
    /// Never 0 or a dead pid for a live container of a pod with a pause container (F13).
    pub pid: u32,
    /// The exit that callers see, once it is stopped.
    pub exit: Option<Exit>,
    /// Whether `pid` is a process of its own, not a stand-in or a process of the past.
    pub has_process: bool,
}

/// containerd's task statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Created, not started.
    Created,
    /// Started.
    Running,
    /// Frozen.
    Paused,
    /// Exited.
    Stopped,
}
