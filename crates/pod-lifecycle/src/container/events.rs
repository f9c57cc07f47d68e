//! What happens to one container: every change of its phase, one verb an event.
//!
//! Owns what each event resets besides the phase. Decides nothing: which event comes is decided above.

use std::collections::BTreeMap;

use pod_spec::Signal;

use crate::container::ending::Ending;
use crate::container::exec::Exec;
use crate::container::freezer::Freezer;
use crate::container::gate_probe::GateProbe;
use crate::container::hold::Hold;
use crate::container::hooks::Hooks;
use crate::container::overdue::Overdue;
use crate::container::phase::{BeforeRemoval, ExitedFrom, Part, Phase, Program, ProgramEnd};
use crate::container::restarts::Restarts;
use crate::container::takeover::Takeover;
use crate::container::{Container, EndedCreate, EndedRemoval, EndedStart, InitExit, RemovedContainer};
use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, ExecId, OpId, RequestId};
use crate::interface::milestone::SignalCause;
use crate::interface::operation::Reach;
use crate::interface::spec::ContainerSpec;
use crate::interface::time::PodTime;

/// What happens to it: create, restore and start.
impl Container {
    /// Its create begins. `completed` is the exit of a completed init that is created again (I4).
    pub(crate) fn create(
        id: ContainerId,
        spec: ContainerSpec,
        part: Part,
        (op, request): (OpId, RequestId),
        completed: Option<Exit>,
    ) -> Self {
        Self {
            id,
            spec,
            part,
            phase: Phase::Creating { op, request, completed, deletes: Vec::new() },
            pid: 0,
            program: Program::NeverRan,
            start_error: None,
            probe: None,
            checkpoint: None,
            execs: BTreeMap::new(),
            waiters: Vec::new(),
            deletes: Vec::new(),
            freezer: Freezer::default(),
            ending: Ending::default(),
            hooks: Hooks::default(),
            restarts: Restarts::default(),
            takeover: Takeover::default(),
            overdue: Overdue::default(),
        }
    }

    /// Its create has ended; one of `created`, `completed_again` and `prepared` follows, or it is forgotten.
    pub(crate) fn end_create(&mut self) -> Option<EndedCreate> {
        let Phase::Creating { request, completed, deletes, .. } = &mut self.phase else { return None };
        Some(EndedCreate { request: *request, completed: *completed, deletes: std::mem::take(deletes) })
    }

    /// The runtime's init waits for Start.
    pub(crate) fn created(&mut self, pid: u32) {
        self.phase = Phase::Created;
        self.pid = pid;
    }

    /// I4: it will not run; `stand_in` is the pid that callers see.
    pub(crate) fn completed_again(&mut self, exit: Exit, stand_in: u32) {
        self.phase = Phase::CompletedAgain { exit };
        self.pid = stand_in;
    }

    /// It will be restored at its Start.
    pub(crate) fn prepared(&mut self) {
        self.phase = Phase::Prepared;
        self.pid = 0;
    }

    /// U7: its program waits.
    pub(crate) fn hold(&mut self, now: PodTime) {
        self.phase = Phase::Held(Hold::new(now));
    }

    /// Its hold, if it is held.
    pub(crate) fn hold_mut(&mut self) -> Option<&mut Hold> {
        match &mut self.phase {
            Phase::Held(hold) => Some(hold),
            _ => None,
        }
    }

    /// `runtime start` begins; `announce` are the Start requests that wait for it.
    pub(crate) fn start(&mut self, op: OpId, announce: Vec<RequestId>) {
        self.phase = Phase::Starting { op, announce, early_exit: None, signals: Vec::new() };
    }

    /// `runtime restore` begins.
    pub(crate) fn restore(&mut self, op: OpId, request: RequestId) {
        self.phase = Phase::Restoring { op, announce: vec![request] };
    }

    /// A Start while an announced start or a restore is under way gets the same answer. Returns whether one is.
    pub(crate) fn start_again(&mut self, request: RequestId) -> bool {
        match &mut self.phase {
            Phase::Restoring { announce, .. } => announce.push(request),
            Phase::Starting { announce, .. } if !announce.is_empty() => announce.push(request),
            _ => return false,
        }
        true
    }

    /// The start has ended; `program_runs` or another verb follows.
    pub(crate) fn end_start(&mut self) -> Option<EndedStart> {
        let Phase::Starting { announce, early_exit, signals, .. } = &mut self.phase else { return None };
        Some(EndedStart {
            announce: std::mem::take(announce),
            early_exit: *early_exit,
            signals: std::mem::take(signals),
        })
    }

    /// The restore has ended. Returns the Start requests that wait for it.
    pub(crate) fn end_restore(&mut self) -> Option<Vec<RequestId>> {
        match &mut self.phase {
            Phase::Restoring { announce, .. } => Some(std::mem::take(announce)),
            _ => None,
        }
    }

    /// Its program has been started.
    pub(crate) fn program_started(&mut self) {
        self.program = Program::HasRun;
        self.start_error = None;
    }

    /// Its program runs.
    pub(crate) fn program_runs(&mut self, now: PodTime) {
        self.phase = Phase::Running { since: now };
    }

    /// Its program was restored, and runs.
    pub(crate) fn restored(&mut self, pid: u32, now: PodTime) {
        self.program_runs(now);
        self.program = Program::HasRun;
        self.pid = pid;
    }

    /// Its restore has failed; the caller may try again.
    pub(crate) fn restore_failed(&mut self) {
        self.phase = Phase::Prepared;
    }

    /// Its announced start has failed. As with the runc shim the task stays created: CRI kills and deletes it.
    pub(crate) fn start_failed(&mut self) {
        self.phase = Phase::Created;
    }

    /// Its Create or Start has failed for its caller.
    pub(crate) fn start_refused(&mut self, at: Exit) {
        self.start_error = Some(at);
    }

    /// Its unannounced start has failed, and podshim kills the runtime's init: its exit is taken like the program's.
    pub(crate) fn kill_unstarted(&mut self, now: PodTime) {
        self.program_runs(now);
        self.ending.kill_unstarted();
    }

    /// Keeps a signal until the end of a start. Returns whether one is under way.
    pub(crate) fn park_signal(&mut self, signal: Signal, reach: Reach, cause: SignalCause) -> bool {
        let Phase::Starting { signals, .. } = &mut self.phase else { return false };
        signals.push((signal, reach, cause));
        true
    }

    /// It was no stop: a signal of podshim that has not been sent is dropped. Returns whether a start is under
    /// way, so that there can be such a signal.
    pub(crate) fn drop_deferred_signals_of_podshim(&mut self) -> bool {
        let Phase::Starting { signals, .. } = &mut self.phase else { return false };
        signals.retain(|(_, _, cause)| *cause == SignalCause::Caller);
        self.ending.take_back();
        true
    }

    /// From now on its gate is probed.
    pub(crate) fn watch_gate(&mut self, now: PodTime) {
        self.probe = Some(GateProbe::new(now));
    }

    /// Its gate is not probed any more. Returns the probe.
    pub(crate) fn stop_probing(&mut self) -> Option<GateProbe> {
        self.probe.take()
    }
}

/// What happens to it: exits and restarts.
impl Container {
    /// Its init is gone.
    pub(crate) fn init_exited(&mut self, exit: Exit, now: PodTime) -> InitExit {
        let begun = self.ending.is_signalled() || self.hooks.have_begun_in_program();
        let end = if begun { ProgramEnd::Interrupted } else { ProgramEnd::Own };
        InitExit::From(match &mut self.phase {
            Phase::Created => ExitedFrom::Created,
            Phase::Held(_) => ExitedFrom::Held,
            Phase::EndingUnrun { code } => ExitedFrom::EndingUnrun { code: *code },
            Phase::Running { since } => ExitedFrom::Running { ran: now.since(*since), end },
            Phase::Starting { early_exit, .. }
            // A created container that is being deleted: its process goes with it.
            | Phase::Removing { before: BeforeRemoval::Created { early_exit }, .. } => {
                *early_exit = Some(exit);
                return InitExit::Deferred;
            }
            _ => return InitExit::Impossible,
        })
    }

    /// What is left of it must end first; `op` ends the processes of its cgroup.
    pub(crate) fn drain(&mut self, exit: Exit, was: ExitedFrom, op: Option<OpId>) {
        self.phase = Phase::Draining { exit, was, op };
    }

    /// Nothing is left in its cgroup, or it could not be ended.
    pub(crate) fn leftovers_ended(&mut self) {
        if let Phase::Draining { op, .. } = &mut self.phase {
            *op = None;
        }
    }

    /// Its program will not run; podshim kills the runtime's init, and callers see `code`.
    pub(crate) fn end_unrun(&mut self, code: u32) {
        self.phase = Phase::EndingUnrun { code };
        self.ending.end_for_good();
    }

    /// S14: another container takes its name, and the plan no longer covers this one.
    pub(crate) fn give_up_name(&mut self) {
        self.part = Part::Passthrough;
    }

    /// It is between two processes, and will end with `code` instead of running.
    pub(crate) fn end_instead_of_running(&mut self, code: u32) {
        match &mut self.phase {
            Phase::Draining { was: was @ ExitedFrom::Held, .. } => *was = ExitedFrom::EndingUnrun { code },
            Phase::Recreating { last, .. } => {
                last.code = code;
                self.ending.end_for_good();
            }
            _ => {}
        }
    }

    /// S15: it is its kubelet's own, and not in the plan.
    pub(crate) fn leave_plan(&mut self) {
        self.part = Part::Passthrough;
    }

    /// I5: it has completed, and its caller must not see that yet.
    pub(crate) fn hide(&mut self, exit: Exit) {
        self.phase = Phase::Hidden { exit };
    }

    /// It waits for its next restart (R4).
    pub(crate) fn back_off(&mut self, last: Exit, until: PodTime) {
        self.phase = Phase::BackingOff { last, until };
    }

    /// R6: its recreation begins.
    pub(crate) fn recreate(&mut self, op: OpId, last: Exit) {
        self.phase = Phase::Recreating { op, last };
    }

    /// R6: there is a new process, which is held until the start order lets it go.
    pub(crate) fn recreated(&mut self, pid: u32, now: PodTime) {
        self.pid = pid;
        self.freezer.reset();
        self.ending.new_incarnation();
        self.hooks.new_incarnation();
        self.hold(now);
    }

    /// R14: it begins again with its pod. Its restarts still count (R4), and its hooks run once a round (H1).
    pub(crate) fn begin_again(&mut self) {
        self.program = Program::NeverRan;
        self.probe = None;
        self.ending = Ending::default();
    }

    /// V2: it becomes a standby without a past: what it ran before delays no other container.
    pub(crate) fn become_standby(&mut self) {
        self.program = Program::NeverRan;
        self.restarts = Restarts::default();
        self.probe = None;
    }

    /// SIGKILL ends it. Between two processes `code` becomes its last one, if there is one.
    pub(crate) fn kill(&mut self, code: Option<u32>) {
        self.ending.kill();
        self.hooks.stop_waiting();
        self.probe = None;
        if let (Phase::Recreating { last, .. }, Some(code)) = (&mut self.phase, code) {
            last.code = code;
        }
    }

    /// Its exit is final. Returns the Waits that are answered now.
    pub(crate) fn finish(&mut self, shown: Exit) -> Vec<RequestId> {
        self.phase = Phase::Stopped { exit: shown };
        self.probe = None;
        self.ending.finish();
        std::mem::take(&mut self.waiters)
    }
}

/// What happens to it: requests that wait, and its removal.
impl Container {
    /// Answered when it has ended.
    pub(crate) fn wait(&mut self, request: RequestId) {
        self.waiters.push(request);
    }

    /// The caller of a Wait, for the container or an exec, is gone.
    pub(crate) fn forget_waiter(&mut self, request: RequestId) {
        self.waiters.retain(|waiter| *waiter != request);
        for exec in self.execs.values_mut() {
            exec.forget_waiter(request);
        }
    }

    pub(crate) fn add_exec(&mut self, id: ExecId) {
        self.execs.insert(id, Exec::new());
    }

    pub(crate) fn remove_exec(&mut self, id: &ExecId) -> Option<Exec> {
        self.execs.remove(id)
    }

    pub(crate) fn begin_checkpoint(&mut self, op: OpId, request: RequestId) {
        self.checkpoint = Some((op, request));
    }

    /// Returns the request of the checkpoint that has ended.
    pub(crate) fn end_checkpoint(&mut self) -> Option<RequestId> {
        self.checkpoint.take().map(|(_, request)| request)
    }

    /// A Delete that is served when the create, the pause or the removal under way has ended. Returns whether there is
    /// one.
    pub(crate) fn delete_later(&mut self, request: RequestId) -> bool {
        match &mut self.phase {
            Phase::Stopped { .. } if self.freezer.is_changing() => self.deletes.push(request),
            Phase::Creating { deletes, .. } => deletes.push(request),
            // A retry after a lost connection gets the same answer (trap 12).
            Phase::Removing { requests, .. } => requests.push(request),
            _ => return false,
        }
        true
    }

    /// The Deletes that waited for the end of a pause.
    pub(crate) fn take_deletes(&mut self) -> Vec<RequestId> {
        std::mem::take(&mut self.deletes)
    }

    /// Its removal begins.
    pub(crate) fn remove(&mut self, op: OpId, request: RequestId, exit: Exit, before: BeforeRemoval) {
        self.phase = Phase::Removing { op, requests: vec![request], exit, before };
    }

    /// Its removal has ended; `removal_failed` follows, or it is forgotten.
    pub(crate) fn end_removal(&mut self) -> Option<EndedRemoval> {
        let Phase::Removing { requests, exit, before, .. } = &mut self.phase else { return None };
        Some(EndedRemoval { requests: std::mem::take(requests), exit: *exit, before: *before })
    }

    /// It stays deletable: the caller may try again (trap 12).
    pub(crate) fn removal_failed(&mut self, exit: Exit, before: BeforeRemoval) {
        self.phase = match before {
            BeforeRemoval::Stopped => Phase::Stopped { exit },
            BeforeRemoval::CompletedAgain => Phase::CompletedAgain { exit },
            BeforeRemoval::Prepared => Phase::Prepared,
            BeforeRemoval::Created { .. } => Phase::Created,
        };
    }

    /// It is gone.
    pub(crate) fn into_removed(mut self) -> RemovedContainer {
        let mut waiters = std::mem::take(&mut self.waiters);
        waiters.extend(self.takeover.end());
        waiters.extend(self.end_checkpoint());
        let execs = std::mem::take(&mut self.execs).into_values().collect();
        RemovedContainer { container: self, waiters, execs }
    }
}
