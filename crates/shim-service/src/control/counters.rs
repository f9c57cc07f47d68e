//! What the shim counts of its pod, for `podshim metrics`.
//!
//! Owns what is counted, from the pod's actions, and when the counts are written into the pod's entry. Nothing of the pod may
//! depend on them. The keys are `node_state::counts`'.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::time::Duration;

use control_api::event::Cause;
use node_state::counts::{Completion, Count, CountedRole, Counts, Measure, PodCounts};
use node_state::entry::Entry;
use oci_runtime::runtime::{CallEnd, FinishedCall};
use pod_lifecycle::{
    Action, ContainerId, InspectedPart, Milestone, Notice, Operation, Pod, PodTime, SignalCause, StopCause,
};
use pod_spec::{Role, Signal};

use super::history::cause_of;
use super::inspection::reason;

/// The counters of one pod, and what is needed to count.
#[derive(Debug)]
pub(crate) struct PodCounters {
    pod: PodCounts,
    containers: BTreeMap<ContainerId, Counted>,
    stop: CountedStop,
    saved: Saved,
}

/// A container while it exists.
#[derive(Clone, Copy, Debug)]
struct Counted {
    role: CountedRole,
    program: Program,
    wait: Wait,
    restart: Restart,
    /// The first signal that is meant to end its program.
    stop: Option<StopSignal>,
}

/// A signal that is meant to end a program.
#[derive(Clone, Copy, Debug)]
struct StopSignal {
    signal: Signal,
    cause: SignalCause,
    at: PodTime,
}

/// A container's program. A SIGKILL is counted once for each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Ended,
    Runs,
    Killed,
}

/// A container's wait for gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    None,
    Since(PodTime),
    Took(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restart {
    None,
    Due,
}

/// The stop that is under way. Each is counted once, and so is its overrun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CountedStop {
    None,
    UnderWay,
    Overran,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Saved {
    Yes,
    No,
}

impl PodCounters {
    /// `shim` distinguishes this shim from all others of the node.
    pub(crate) fn new(shim: String) -> Self {
        Self {
            pod: PodCounts { shim, counts: Counts::default() },
            containers: BTreeMap::new(),
            stop: CountedStop::None,
            saved: Saved::Yes,
        }
    }

    /// Counts what an action of the pod means.
    pub(crate) fn record(&mut self, action: &Action, pod: &Pod, now: PodTime) {
        if let Action::Record { container: None, milestone } = action {
            return self.record_of_pod(milestone, pod);
        }
        let Some(id) = container_of(action) else { return };
        if let Action::Publish(Notice::Deleted { .. }) = action {
            self.containers.remove(id);
            return;
        }
        let Some((part, _)) = pod.part_and_restarts(id) else { return };
        let Some(role) = role(part) else { return };
        let before = self.containers.get(id).copied().unwrap_or_else(|| Counted::new(role));
        let after = match action {
            // V1: a standby waits for a switch, not for gates.
            Action::Record { milestone: Milestone::Held { .. }, .. } if part == InspectedPart::Standby => {
                before
            }
            Action::Record { milestone, .. } => self.milestone(before, milestone, now),
            Action::Run { operation: Operation::Recreate, .. } if before.restart == Restart::Due => {
                self.add(Count::Restarts(before.role));
                Counted { restart: Restart::None, ..before }
            }
            Action::Run { operation: Operation::Start | Operation::Restore, .. } => {
                self.wait_ends(before, now)
            }
            Action::Signal { signal, cause, .. } => self.signal((id, before), *signal, *cause, pod, now),
            _ => before,
        };
        self.containers.insert(id.clone(), Counted { role, ..after });
    }

    fn record_of_pod(&mut self, milestone: &Milestone, pod: &Pod) {
        match milestone {
            // Again when its reason or its time changes (T9).
            Milestone::StopBegan(stop) if self.stop == CountedStop::None => {
                self.stop = CountedStop::UnderWay;
                self.add(Count::Stops(reason(stop.cause).word()));
                self.completed(stop.cause, pod);
            }
            Milestone::BudgetSpent if self.stop != CountedStop::Overran => {
                self.stop = CountedStop::Overran;
                self.add(Count::BudgetOverruns);
            }
            Milestone::StopEnded => self.stop = CountedStop::None,
            _ => {}
        }
    }

    /// Counts the pod's own end. Under Always it has none.
    fn completed(&mut self, cause: StopCause, pod: &Pod) {
        let result = match cause {
            StopCause::Completed if pod.mains_succeeded() => Completion::Succeeded,
            StopCause::Completed | StopCause::InitFailed | StopCause::SidecarFailed => Completion::Failed,
            _ => return,
        };
        self.add(Count::Completions(result));
    }

    fn milestone(&mut self, before: Counted, milestone: &Milestone, now: PodTime) -> Counted {
        match milestone {
            Milestone::Held { .. } => Counted { wait: Wait::Since(now), ..before },
            Milestone::GateTimedOut => {
                self.add(Count::GateTimeouts(before.role));
                self.wait_ends(before, now)
            }
            Milestone::GateFailed { .. } => {
                self.add(Count::GateFailures(before.role));
                before
            }
            Milestone::OutOfMemory => {
                self.add(Count::OomKills(before.role));
                before
            }
            Milestone::StartFailed { .. } => {
                self.add(Count::StartFailures(before.role));
                before
            }
            Milestone::Running { .. } => {
                self.add(Count::Starts(before.role));
                Counted { program: Program::Runs, stop: None, ..before }
            }
            Milestone::Exited { .. } => {
                if let Some(stop) = before.stop.filter(|stop| stop.cause != SignalCause::Restart) {
                    self.observe(Measure::Stop(before.role), now.since(stop.at));
                }
                Counted { program: Program::Ended, stop: None, ..before }
            }
            Milestone::RestartDue { .. } => Counted { restart: Restart::Due, ..before },
            _ => before,
        }
    }

    fn wait_ends(&mut self, before: Counted, now: PodTime) -> Counted {
        let Wait::Since(since) = before.wait else { return before };
        let took = now.since(since);
        self.observe(Measure::GateWait(before.role), took);
        Counted { wait: Wait::Took(took), ..before }
    }

    fn signal(
        &mut self,
        (id, before): (&ContainerId, Counted),
        signal: Signal,
        cause: SignalCause,
        pod: &Pod,
        now: PodTime,
    ) -> Counted {
        // A held container has a process too, but no program that could be stopped.
        if before.program == Program::Ended || cause == SignalCause::NotRun {
            return before;
        }
        // A caller may send any other signal for any other reason. What a stop asks for counts, also after a signal of U4.
        let is_stop = cause != SignalCause::Caller || pod.is_meant_to_end(id, signal);
        let is_first = before.stop.is_none_or(|stop| stop.cause == SignalCause::Restart);
        let stop =
            if is_stop && is_first { Some(StopSignal { signal, cause, at: now }) } else { before.stop };
        if signal != Signal::KILL || cause == SignalCause::Restart || before.program == Program::Killed {
            return Counted { stop, ..before };
        }
        self.add(Count::ForcedKills(before.role, cause_of(cause).word()));
        Counted { stop, program: Program::Killed, ..before }
    }

    /// Counts calls of the OCI runtime.
    pub(crate) fn record_calls(&mut self, calls: Vec<FinishedCall>) {
        for FinishedCall { operation, took, end } in calls {
            let operation = operation.to_string();
            self.observe(Measure::RuntimeCall(&operation), took);
            if end == CallEnd::Failed {
                self.add(Count::RuntimeFailures(&operation));
            }
        }
    }

    /// Counts events that containerd did not get; `all` is their number so far.
    pub(crate) fn events_dropped(&mut self, all: u64) {
        let more = all.saturating_sub(self.pod.counts.of(Count::EventsDropped));
        if more > 0 {
            self.pod.counts.add_many(Count::EventsDropped, more);
            self.saved = Saved::No;
        }
    }

    /// How long a container waits for gates, or waited last.
    pub(crate) fn gate_wait(&self, id: &ContainerId, now: PodTime) -> Option<Duration> {
        match self.containers.get(id)?.wait {
            Wait::None => None,
            Wait::Since(since) => Some(now.since(since)),
            Wait::Took(took) => Some(took),
        }
    }

    /// The first signal that is meant to end a program which has not ended, why it was sent, and how long ago.
    pub(crate) fn stop_signal(&self, id: &ContainerId, now: PodTime) -> Option<(Signal, Cause, Duration)> {
        let stop = self.containers.get(id)?.stop?;
        Some((stop.signal, cause_of(stop.cause), now.since(stop.at)))
    }

    fn add(&mut self, count: Count<'_>) {
        self.pod.counts.add(count);
        self.saved = Saved::No;
    }

    fn observe(&mut self, measure: Measure<'_>, time: Duration) {
        self.pod.counts.observe(measure, time);
        self.saved = Saved::No;
    }

    /// Whether there are counts that the pod's entry does not have.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.saved == Saved::No
    }

    /// Writes the counts into the pod's entry, so that a killed shim's are known. They are on no disk: this does not wait.
    ///
    /// # Errors
    /// The system's answer. It is not tried again before the next change.
    pub(crate) fn save(&mut self, directory: &Path) -> io::Result<()> {
        self.saved = Saved::Yes;
        // Without the entry the pod is being removed, or the shim has none, as in tests.
        let Some(entry) = Entry::read_from(directory) else { return Ok(()) };
        Entry { counts: Some(self.pod.clone()), ..entry }.write_to(directory)
    }
}

impl Counted {
    fn new(role: CountedRole) -> Self {
        Self { role, program: Program::Ended, wait: Wait::None, restart: Restart::None, stop: None }
    }
}

/// The container that an action counts for, if any.
fn container_of(action: &Action) -> Option<&ContainerId> {
    match action {
        Action::Record { container, .. } => container.as_ref(),
        Action::Publish(Notice::Deleted { container, .. }) => Some(container),
        Action::Signal { target, .. } if target.exec.is_none() => Some(&target.container),
        Action::Run {
            container,
            operation: Operation::Recreate | Operation::Start | Operation::Restore,
            ..
        } => Some(container),
        _ => None,
    }
}

fn role(part: InspectedPart) -> Option<CountedRole> {
    match part {
        InspectedPart::Sandbox => None,
        InspectedPart::Passthrough => Some(CountedRole::Passthrough),
        InspectedPart::Planned(Role::Init) => Some(CountedRole::Init),
        InspectedPart::Planned(Role::Sidecar) | InspectedPart::Standby => Some(CountedRole::Sidecar),
        InspectedPart::Planned(Role::Main) => Some(CountedRole::Main),
    }
}
