//! Which container may start: holds, gates and their probes, and what happens when the way is blocked for good.
//!
//! Owns S-, I- and U-rules. A hold never blocks a request (U7); it is a phase that the release rule ends.

use std::time::Duration;

use pod_spec::{Gate, GateAction, ProbeTiming, Role, Signal};

use crate::action::{Action, Check, OpId, Operation, Reach, Refusal, Tell};
use crate::container::{Container, Intent, Phase, Program};
use crate::event::{ContainerId, Exit, Failure, Outcome, RequestId, Target};
use crate::history::{Milestone, SignalCause};
use crate::hold::{Hold, show_duration};
use crate::member::{Awaited, GateState, Recreation, Release, WasOpen};
use crate::pod::Pod;
use crate::restart::{KILLED, START_FAILED};
use crate::shutdown::StopCause;
use crate::time::PodTime;

/// The exit code of a container that podshim ends before its program ran (J9).
pub(crate) const NEVER_RAN: u32 = 125;
/// The longest single wait for the exec of a program; podshim repeats it as long as the process lives.
const EXECUTED_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two such waits: a wait fails at once if the process is gone and podshim has not seen its exit yet.
const EXECUTED_RETRY: Duration = Duration::from_millis(100);

/// Why no container of the plan starts any more (I2).
#[derive(Clone, Debug)]
pub(crate) struct PodFailure {
    member: usize,
    reason: String,
}

/// A closed gate's probe.
#[derive(Clone, Debug)]
pub(crate) struct GateProbe {
    stage: Stage,
    next_at: PodTime,
    in_flight: Option<OpId>,
    successes: u32,
    failures: u32,
    last_failure: Option<String>,
}

/// U1 comes before U2: a probe proves nothing before the program has been exec'd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Executed,
    Probe,
}

impl GateProbe {
    fn starting(now: PodTime) -> Self {
        Self {
            stage: Stage::Executed,
            next_at: now,
            in_flight: None,
            successes: 0,
            failures: 0,
            last_failure: None,
        }
    }

    /// Whether it is still unknown that the program has been exec'd.
    pub(crate) fn awaits_exec(&self) -> bool {
        self.stage == Stage::Executed
    }

    pub(crate) fn waits_for(&self, op: OpId) -> bool {
        self.in_flight == Some(op)
    }

    /// What it reported when it last failed.
    pub(crate) fn last_failure(&self) -> Option<&str> {
        self.last_failure.as_deref()
    }

    pub(crate) fn deadline(&self) -> Option<PodTime> {
        self.in_flight.is_none().then_some(self.next_at)
    }
}

impl Pod {
    /// Start of a planned container.
    pub(crate) fn start_member(&mut self, request: RequestId, id: ContainerId) {
        if self.stop.as_ref().is_some_and(|stop| stop.is_for_good()) {
            let text = format!("cannot start container {id}: the pod is stopping");
            return self.reply(request, Err(Refusal::precondition(text)));
        }
        self.take_over_if_replaced(&id);
        let may_start = self.containers.get(&id).is_some_and(|container| self.may_start(container));
        if may_start {
            self.mark_released(&id);
            return self.launch(&id, vec![request]);
        }
        let now = self.now;
        let Some(container) = self.containers.get_mut(&id) else { return };
        container.phase = Phase::Held(Hold::new(now));
        let reason = self.hold_reason(&id).unwrap_or_default();
        self.record(&id, Milestone::Held { reason });
        let Some(container) = self.containers.get(&id) else { return };
        let pid = container.pid;
        self.announce_start(&id, pid, vec![request]);
    }

    /// The start order in one place (S2, S3, S6, T11).
    fn may_start(&self, container: &Container) -> bool {
        let Some(index) = container.member() else { return true };
        if self.stands_by(container) {
            return false;
        }
        if self.stop.is_some() || self.failure.is_some() && !self.is_tried_again(container) {
            // R2: only a container that ran before and that another one still needs.
            return container.program == Program::HasRun && self.keeps_running(container);
        }
        let state = &self.members[index];
        state.release == Release::Released || self.first_blocker(index).is_none()
    }

    /// I2: a kubelet with native sidecars recreates a sidecar of a failed pod only if it did not see the failure,
    /// because the dead init's container was removed before its next sync. It creates that init next.
    fn is_tried_again(&self, container: &Container) -> bool {
        self.stop.is_none() && self.is_native(container)
    }

    /// Whether a kubelet that knows native sidecars created it as one.
    pub(crate) fn is_native(&self, container: &Container) -> bool {
        container.member().is_some_and(|index| self.members[index].recreation == Recreation::Always)
    }

    /// Releases held containers that may start (S3: all mains in one go), and ends those that never will (I2, J9).
    pub(crate) fn release(&mut self) {
        let held = self.planned_where(|_, c| matches!(c.phase, Phase::Held(_)));
        if let Some(failure) = &self.failure {
            let line = format!("not started: {} {}", self.members[failure.member], failure.reason);
            let never_ran = self.planned_where(|_, c| {
                matches!(c.phase, Phase::Held(_)) && c.program == Program::NeverRan && !self.is_tried_again(c)
            });
            for id in never_ran {
                self.end_without_running(&id, NEVER_RAN, Some(line.clone()));
            }
            self.end_those_without_a_process(&line);
        }
        let never = |id: &ContainerId| self.containers.get(id).filter(|c| c.program == Program::NeverRan);
        let lost: Vec<_> =
            held.iter().filter_map(|id| Some((id.clone(), self.never_done(never(id)?.member()?)?))).collect();
        for (id, failed) in lost {
            let code = self.members[failed].ended.as_ref().map_or(0, |ended| ended.real().code);
            let how = if code == 0 { "was not ready before it ended" } else { "failed" };
            let line = format!("not started: {} {how} with {code}", self.members[failed]);
            self.end_without_running(&id, NEVER_RAN, Some(line));
        }
        let free: Vec<_> = held
            .into_iter()
            .filter(|id| {
                self.containers.get(id).is_some_and(|container| {
                    matches!(container.phase, Phase::Held(_)) && self.may_start(container)
                })
            })
            .collect();
        for id in free {
            self.mark_released(&id);
            self.launch(&id, Vec::new());
        }
    }

    /// I2: ends held containers whose runtime's init was killed and that wait to be recreated (R7).
    fn end_those_without_a_process(&mut self, line: &str) {
        let waiting: Vec<_> = self
            .planned()
            .filter(|(_, container)| container.program == Program::NeverRan)
            .filter_map(|(_, container)| match container.phase {
                Phase::BackingOff { last, .. } => Some((container.id.clone(), last.at)),
                _ => None,
            })
            .collect();
        for (id, at) in waiting {
            let (line, to) = (line.to_owned(), Tell::LogAndTerminationMessage);
            self.act(Action::Tell { container: id.clone(), line, to });
            self.finish(&id, Exit { code: NEVER_RAN, at });
        }
    }

    fn mark_released(&mut self, id: &ContainerId) {
        if let Some(index) = self.containers.get(id).and_then(Container::member) {
            self.members[index].release = Release::Released;
        }
    }

    /// Ends a container whose program will not run: podshim kills its runtime's init and reports `code` (K3, J9, T11).
    /// With SIGKILL, because each runtime decides what its init does on other signals.
    pub(crate) fn end_without_running(&mut self, id: &ContainerId, code: u32, line: Option<String>) {
        if let Some(line) = line {
            self.act(Action::Tell { container: id.clone(), line, to: Tell::LogAndTerminationMessage });
        }
        let Some(container) = self.containers.get_mut(id) else { return };
        container.phase = Phase::Ending { code };
        container.stop.intent = Intent::End;
        let target = Target::init(id.clone());
        let (signal, reach, cause) = (Signal::KILL, Reach::Process, SignalCause::NotRun);
        self.act(Action::Signal { target, signal, reach, cause });
    }

    /// The program of a container has been started: from now on podshim checks its gate, if that is closed (U1, U2,
    /// U11).
    pub(crate) fn program_started(&mut self, id: &ContainerId) {
        let now = self.now;
        let stopping = self.stop.is_some();
        let Some(container) = self.containers.get_mut(id) else { return };
        let Some(index) = container.member() else { return };
        let state = &mut self.members[index];
        if state.is_awaited == Awaited::ByNobody || state.gate == GateState::Open || stopping {
            return;
        }
        match state.member.gate {
            Gate::Skip => self.open_gate(index),
            // T11: its own stop came while it was being started. If the gate opened now, it would start mains whose
            // sidecar is gone in a moment.
            Gate::Running | Gate::Probe { .. } if container.stop.intent == Intent::End => {}
            Gate::Running | Gate::Probe { .. } => {
                container.probe = Some(GateProbe::starting(now));
                self.changed();
            }
        }
    }

    /// U1: a program that exited with 0 before podshim saw it has been exec'd all the same, because a runtime's init
    /// never exits with 0. Otherwise a sidecar that lives for a millisecond would hold its mains for ever.
    pub(crate) fn ended_well_unseen(&mut self, id: &ContainerId) {
        let Some(index) = self.containers.get(id).and_then(Container::member) else { return };
        if self.members[index].member.gate == Gate::Running {
            self.open_gate(index);
        } else {
            self.note_executed(index);
        }
    }

    /// U1: the program has been exec'd.
    fn note_executed(&mut self, index: usize) {
        let gate = &mut self.members[index].gate;
        *gate = (*gate).max(GateState::Started);
        self.changed();
    }

    pub(crate) fn open_gate(&mut self, index: usize) {
        let state = &mut self.members[index];
        if state.gate == GateState::Open {
            return;
        }
        state.gate = GateState::Open;
        state.was_open = WasOpen::Before;
        let line = format!("gate of {state} is open");
        if let Some(id) = state.current.clone()
            && let Some(container) = self.containers.get_mut(&id)
        {
            container.probe = None;
            self.record(&id, Milestone::GateOpened);
            self.act(Action::Note(line));
            return self.successor_is_ready(&id);
        }
        self.act(Action::Note(line));
    }

    /// A gate's check has a result.
    pub(crate) fn checked(&mut self, id: ContainerId, outcome: Outcome) {
        let now = self.now;
        let Some(container) = self.containers.get_mut(&id) else { return };
        let (Some(index), Some(probe)) = (container.member(), container.probe.as_mut()) else { return };
        probe.in_flight = None;
        let state = &mut self.members[index];
        let (gate, role) = (&state.member.gate, state.member.role);
        let opened = match (&outcome, probe.stage, gate) {
            (Outcome::Failed(_), Stage::Executed, _) => {
                // The process is still the runtime's init: check again as long as it lives.
                probe.next_at = now + EXECUTED_RETRY;
                false
            }
            (_, Stage::Executed, Gate::Probe { action, timing }) => {
                probe.stage = Stage::Probe;
                // A log line or a notification may come during the delay: podshim waits at once, and the first wait is
                // longer.
                let delay = if action.is_waited_for() { Duration::ZERO } else { timing.delay };
                probe.next_at = now + delay;
                state.gate = state.gate.max(GateState::Started);
                false
            }
            (_, Stage::Executed, _) => true,
            (Outcome::Failed(Failure { message, .. }), Stage::Probe, Gate::Probe { timing, .. }) => {
                probe.successes = 0;
                probe.failures = probe.failures.saturating_add(1);
                probe.last_failure = Some(message.clone());
                // The caller restarts a main (R8): podshim goes on probing it.
                if probe.failures >= timing.failures && role == Role::Sidecar {
                    return self.gate_failed(&id);
                }
                false
            }
            (_, Stage::Probe, Gate::Probe { timing, .. }) => {
                probe.failures = 0;
                probe.successes = probe.successes.saturating_add(1);
                probe.successes >= timing.successes
            }
            (_, Stage::Probe, _) => false,
        };
        self.changed();
        if opened {
            self.open_gate(index);
        }
    }

    /// U4: podshim stops the sidecar within its own grace and restarts it; its gate stays closed.
    fn gate_failed(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        let reason = container.probe.take().and_then(|probe| probe.last_failure).unwrap_or_default();
        self.record(id, Milestone::GateFailed { reason: reason.clone() });
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.takeover.is_some() {
            return self.takeover_failed(id, &format!("it did not get ready: {reason}"));
        }
        container.stop.intent = Intent::Restart;
        let Some(container) = self.containers.get(id) else { return };
        let then = if self.restarts_after(container, KILLED) { "restarting" } else { "stopping" };
        let line = format!("did not get ready: {reason}; {then}");
        self.act(Action::Tell { container: id.clone(), line, to: Tell::Log });
        let grace = self.grace_of(id);
        self.stop_after_hooks(id, None, Some(grace));
    }

    /// Probes that are due, hold lines (U7), gate timeouts (U6).
    pub(crate) fn startup_timers(&mut self, id: &ContainerId) {
        let now = self.now;
        let gate_timeout = self.plan.as_ref().and_then(|plan| plan.gate_timeout);
        let Some(container) = self.containers.get(id) else { return };
        if let Phase::Held(hold) = container.phase {
            if let Some(limit) = gate_timeout
                && self.stop.is_none()
                && !self.stands_by(container)
                && now >= hold.since() + limit
            {
                let blocker = self.blocker(container).unwrap_or_default();
                return self.gate_timed_out(id, limit, &blocker);
            }
            return self.hold_timer(id);
        }
        let due = container.probe.as_ref().and_then(GateProbe::deadline).is_some_and(|at| now >= at);
        if let (true, Some(index)) = (due, container.member()) {
            self.send_check(id, index);
        }
    }

    fn send_check(&mut self, id: &ContainerId, index: usize) {
        let Some(probe) = self.containers.get(id).and_then(|c| c.probe.as_ref()) else { return };
        let (check, period) = match (probe.stage, &self.members[index].member.gate) {
            (Stage::Probe, Gate::Probe { action, timing }) => probe_check(action, timing, probe.failures),
            _ => (Check::Executed { timeout: EXECUTED_TIMEOUT }, Duration::ZERO),
        };
        let op = self.run(id, Operation::Check(check));
        let next_at = self.now + period;
        if let Some(probe) = self.containers.get_mut(id).and_then(|c| c.probe.as_mut()) {
            probe.in_flight = Some(op);
            probe.next_at = next_at;
        }
    }

    /// When a hold or a gate's probe next needs the clock.
    pub(crate) fn startup_deadlines(&self, container: &Container) -> [Option<PodTime>; 2] {
        let hold = match container.phase {
            Phase::Held(hold) => {
                // U6 limits the wait for gates: the wait for the end of a stop has no limit (T11).
                let limit = self.plan.as_ref().filter(|_| self.stop.is_none() && !self.stands_by(container));
                let limit = limit.and_then(|plan| plan.gate_timeout).map(|limit| hold.since() + limit);
                hold.line_due().into_iter().chain(limit).min()
            }
            _ => None,
        };
        [hold, container.probe.as_ref().and_then(GateProbe::deadline)]
    }

    /// U6: the container fails, and its own log has the reason.
    fn gate_timed_out(&mut self, id: &ContainerId, limit: Duration, blocker: &str) {
        let line = format!("held {} for {blocker}", show_duration(limit));
        let init = self.containers.get(id).and_then(Container::member);
        self.end_without_running(id, NEVER_RAN, Some(line));
        if let Some(index) = init {
            self.cannot_start(index, "was held longer than podshim.io/gate-timeout");
        }
    }

    /// I2, I8: the pod has failed; sidecars are stopped in reverse order, no other container starts.
    pub(crate) fn fail_pod(&mut self, index: usize, reason: String) {
        self.set_failure(index, reason);
        let is_init = self.members[index].member.role == Role::Init;
        self.begin_stop(if is_init { StopCause::InitFailed } else { StopCause::SidecarFailed });
    }

    /// From now on no container starts, and held ones end with that reason.
    pub(crate) fn set_failure(&mut self, index: usize, reason: String) {
        self.act(Action::Note(format!("pod failed: {} {reason}", self.members[index])));
        self.failure = Some(PodFailure { member: index, reason });
    }

    /// A caller that recreates the failed container wants another try.
    pub(crate) fn forgive_failure_of(&mut self, index: usize) {
        if self.failure.as_ref().is_some_and(|failure| failure.member == index) {
            self.failure = None;
        }
    }

    /// `runtime start` failed for a released container, or for one that is restarted in place. No caller waits for an
    /// answer any more, so the container's log has the reason. podshim tries again where it restarts the container;
    /// others report 128, as docker does.
    pub(crate) fn release_failed(&mut self, id: &ContainerId, early_exit: Option<Exit>, failure: &Failure) {
        let line = format!("could not be started: {}", failure.message);
        self.act(Action::Tell { container: id.clone(), line, to: Tell::LogAndTerminationMessage });
        self.takeover_failed(id, &format!("it could not be started: {}", failure.message));
        let now = self.now;
        let Some(container) = self.containers.get(id) else { return };
        let tries_again = self.restarts_after(container, START_FAILED);
        let first_try = container.program == Program::NeverRan && container.restarts.count() == 0;
        let Some(container) = self.containers.get_mut(id) else { return };
        // A container that was stopped meanwhile reports that end (J3).
        if tries_again || container.stop.intent == Intent::End {
            container.phase = Phase::Running { since: now };
            container.stop.killed = true;
            let target = Target::init(id.clone());
            let (signal, reach, cause) = (Signal::KILL, Reach::Process, SignalCause::NotRun);
            self.act(Action::Signal { target, signal, reach, cause });
        } else {
            let member = container.member();
            self.end_without_running(id, START_FAILED, None);
            match member {
                // R9: its end stops the pod, see `drained`.
                Some(index) if self.members[index].is_fatal(START_FAILED) => {}
                // R4: its restarts are used up, the pod goes on without it.
                Some(index) if self.members[index].member.role == Role::Sidecar && !first_try => {
                    self.go_on_without(index)
                }
                // I8.
                Some(index) => self.cannot_start(index, &failure.message),
                None => {}
            }
        }
        if let Some(exit) = early_exit {
            self.exited(id.clone(), exit);
        }
    }
}

/// The next check, and how long after its start another one may follow.
fn probe_check(action: &GateAction, timing: &ProbeTiming, failures: u32) -> (Check, Duration) {
    let (timeout, period) = match (action.is_waited_for(), failures) {
        (false, _) => (timing.timeout, timing.period),
        // Each wait follows the last one at once, so that nothing is missed.
        // Together they take `delay + fail * period`.
        (true, 0) => (timing.delay + timing.period, Duration::ZERO),
        (true, _) => (timing.period, Duration::ZERO),
    };
    (Check::Probe { action: action.clone(), timeout }, period)
}
