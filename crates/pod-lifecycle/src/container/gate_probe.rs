//! The probe of one closed gate: its stage, its counts, and when it is due.

use std::time::Duration;

use pod_spec::{GateAction, ProbeTiming};

use crate::interface::id::OpId;
use crate::interface::operation::Check;
use crate::interface::time::PodTime;

/// The longest single wait for the exec of a program; podshim repeats it as long as the process lives.
pub(crate) const EXECUTED_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two such waits: a wait fails at once if the process is gone and podshim has not seen its exit yet.
pub(crate) const EXECUTED_RETRY: Duration = Duration::from_millis(100);

/// A closed gate's probe.
#[derive(Clone, Debug)]
pub(crate) struct GateProbe {
    pub(crate) stage: ProbeStage,
    pub(crate) next_at: PodTime,
    pub(crate) in_flight: Option<OpId>,
    pub(crate) successes: u32,
    pub(crate) failures: u32,
    pub(crate) last_failure: Option<String>,
}

/// U1 comes before U2: a probe proves nothing before the program has been exec'd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProbeStage {
    Executed,
    Probe,
}

impl GateProbe {
    pub(crate) fn starting(now: PodTime) -> Self {
        Self {
            stage: ProbeStage::Executed,
            next_at: now,
            in_flight: None,
            successes: 0,
            failures: 0,
            last_failure: None,
        }
    }

    /// Whether it is still unknown that the program has been exec'd.
    pub(crate) fn awaits_exec(&self) -> bool {
        self.stage == ProbeStage::Executed
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

/// The next check, and how long after its start another one may follow.
pub(crate) fn probe_check(action: &GateAction, timing: &ProbeTiming, failures: u32) -> (Check, Duration) {
    let (timeout, period) = match (action.is_waited_for(), failures) {
        (false, _) => (timing.timeout, timing.period),
        // Each wait follows the last one at once, so that nothing is missed.
        // Together they take `delay + fail * period`.
        (true, 0) => (timing.delay + timing.period, Duration::ZERO),
        (true, _) => (timing.period, Duration::ZERO),
    };
    (Check::Probe { action: action.clone(), timeout }, period)
}
