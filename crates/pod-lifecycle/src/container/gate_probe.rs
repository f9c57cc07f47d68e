//! The probe of one closed gate: its stage, its counts, and when it is due.
//!
//! Owns U1 before U2 (a probe proves nothing before the program has been exec'd), and how many results open a gate or
//! give it up (U4). Knows neither the container nor what a closed gate holds back.

use std::time::Duration;

use pod_spec::{Gate, GateAction, ProbeTiming};

use crate::interface::id::OpId;
use crate::interface::operation::Check;
use crate::interface::outcome::{Failure, Outcome};
use crate::interface::time::PodTime;

/// The longest single wait for the exec of a program; podshim repeats it as long as the process lives.
const EXECUTED_TIMEOUT: Duration = Duration::from_secs(10);

/// Between two such waits: a wait fails at once if the process is gone and podshim has not seen its exit yet.
const EXECUTED_RETRY: Duration = Duration::from_millis(100);

/// A closed gate's probe.
#[derive(Clone, Debug)]
pub(crate) struct GateProbe {
    stage: ProbeStage,
    next_at: PodTime,
    in_flight: Option<OpId>,
    successes: u32,
    failures: u32,
    last_failure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProbeStage {
    /// U1: until the program has been exec'd.
    Executed,
    /// U2: the gate's own probe, with its counts.
    Probe,
}

/// What the result of a check means for the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing is known yet.
    Closed,
    /// The program has been exec'd (U1); its probe comes next.
    Executed,
    /// The gate opens.
    Ready,
    /// The probe has failed as often as it may (U4).
    Failed,
}

impl GateProbe {
    pub(crate) fn new(now: PodTime) -> Self {
        Self {
            stage: ProbeStage::Executed,
            next_at: now,
            in_flight: None,
            successes: 0,
            failures: 0,
            last_failure: None,
        }
    }

    pub(crate) fn waits_for(&self, op: OpId) -> bool {
        self.in_flight == Some(op)
    }

    /// What it reported when it last failed.
    pub(crate) fn last_failure(&self) -> Option<&str> {
        self.last_failure.as_deref()
    }

    /// When its next check is due; `None` while one runs.
    pub(crate) fn deadline(&self) -> Option<PodTime> {
        self.in_flight.is_none().then_some(self.next_at)
    }

    /// The next check of a gate.
    pub(crate) fn next_check(&self, gate: &Gate) -> Check {
        match (self.stage, gate) {
            (ProbeStage::Probe, Gate::Probe { action, timing }) => {
                Check::Probe { action: action.clone(), timeout: self.timeout(action, timing) }
            }
            _ => Check::Executed { timeout: EXECUTED_TIMEOUT },
        }
    }

    fn timeout(&self, action: &GateAction, timing: &ProbeTiming) -> Duration {
        match (action.is_waited_for(), self.failures) {
            (false, _) => timing.timeout,
            // Each wait follows the last one at once, so that nothing is missed.
            // Together they take `delay + fail * period`.
            (true, 0) => timing.delay + timing.period,
            (true, _) => timing.period,
        }
    }

    /// The next check has begun.
    pub(crate) fn check_began(&mut self, op: OpId, gate: &Gate, now: PodTime) {
        let period = match (self.stage, gate) {
            (ProbeStage::Probe, Gate::Probe { action, timing }) if !action.is_waited_for() => timing.period,
            _ => Duration::ZERO,
        };
        self.in_flight = Some(op);
        self.next_at = now + period;
    }

    /// A check has ended.
    pub(crate) fn check_ended(&mut self, outcome: &Outcome, gate: &Gate, now: PodTime) -> Verdict {
        self.in_flight = None;
        match (outcome, self.stage, gate) {
            (Outcome::Failed(_), ProbeStage::Executed, _) => {
                // The process is still the runtime's init: check again as long as it lives.
                self.next_at = now + EXECUTED_RETRY;
                Verdict::Closed
            }
            (_, ProbeStage::Executed, Gate::Probe { action, timing }) => {
                self.stage = ProbeStage::Probe;
                // A log line or a notification may come during the delay: podshim waits at once, and the first wait is
                // longer.
                let delay = if action.is_waited_for() { Duration::ZERO } else { timing.delay };
                self.next_at = now + delay;
                Verdict::Executed
            }
            (_, ProbeStage::Executed, _) => Verdict::Ready,
            (Outcome::Failed(Failure { message, .. }), ProbeStage::Probe, Gate::Probe { timing, .. }) => {
                self.successes = 0;
                self.failures = self.failures.saturating_add(1);
                self.last_failure = Some(message.clone());
                if self.failures >= timing.failures { Verdict::Failed } else { Verdict::Closed }
            }
            (_, ProbeStage::Probe, Gate::Probe { timing, .. }) => {
                self.failures = 0;
                self.successes = self.successes.saturating_add(1);
                if self.successes >= timing.successes { Verdict::Ready } else { Verdict::Closed }
            }
            (_, ProbeStage::Probe, _) => Verdict::Closed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interface::outcome::RefusalKind;

    fn gate(successes: u32, failures: u32) -> Gate {
        let timing = ProbeTiming { successes, failures, ..ProbeTiming::default() };
        Gate::Probe { action: GateAction::Tcp { host: None, port: 80 }, timing }
    }

    fn failed() -> Outcome {
        Outcome::Failed(Failure { message: "refused".to_owned(), kind: RefusalKind::Internal })
    }

    /// U1, U2: the program's exec comes first; then as many successes in a row as the plan asks for.
    #[test]
    fn u1_u2_exec_then_successes_in_a_row() {
        let (gate, now) = (gate(2, 9), PodTime::ZERO);
        let mut probe = GateProbe::new(now);
        assert_eq!(probe.check_ended(&failed(), &gate, now), Verdict::Closed);
        assert_eq!(probe.last_failure(), None);
        assert_eq!(probe.check_ended(&Outcome::Ok, &gate, now), Verdict::Executed);
        for (outcome, verdict) in [
            (Outcome::Ok, Verdict::Closed),
            (failed(), Verdict::Closed),
            (Outcome::Ok, Verdict::Closed),
            (Outcome::Ok, Verdict::Ready),
        ] {
            assert_eq!(probe.check_ended(&outcome, &gate, now), verdict);
        }
    }

    /// U4: as many failures in a row as the plan allows.
    #[test]
    fn u4_failures_in_a_row() {
        let (gate, now) = (gate(2, 2), PodTime::ZERO);
        let mut probe = GateProbe::new(now);
        probe.check_ended(&Outcome::Ok, &gate, now);
        assert_eq!(probe.check_ended(&failed(), &gate, now), Verdict::Closed);
        assert_eq!(probe.check_ended(&Outcome::Ok, &gate, now), Verdict::Closed);
        assert_eq!(probe.check_ended(&failed(), &gate, now), Verdict::Closed);
        assert_eq!(probe.check_ended(&failed(), &gate, now), Verdict::Failed);
        assert_eq!(probe.last_failure(), Some("refused"));
    }

    /// U2: a wait for a word of the program that ends early is followed by the next one at once, a probe by the next one in its period.
    #[test]
    fn u2_waits_follow_each_other_without_a_gap() {
        let (now, timing) = (PodTime::ZERO, ProbeTiming::default());
        let notify = GateAction::Notify;
        let tcp = GateAction::Tcp { host: None, port: 80 };
        for (action, next) in [(notify, now), (tcp, now + timing.period)] {
            let gate = Gate::Probe { action, timing: timing.clone() };
            let mut probe = GateProbe::new(now);
            probe.check_ended(&Outcome::Ok, &gate, now);
            probe.check_began(OpId(1), &gate, now);
            probe.check_ended(&failed(), &gate, now);
            assert_eq!(probe.deadline(), Some(next), "{gate}");
        }
    }
}
