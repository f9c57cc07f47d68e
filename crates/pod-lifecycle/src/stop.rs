//! A stop of the pod (T12): its cause, and the one budget (T5), which only gets shorter (T9).
//!
//! Owns which cause replaces which. Knows no container.

use std::time::Duration;

use pod_spec::Signal;

use crate::interface::exit::code_of_signal;
use crate::interface::inspection::{BudgetLeft, InspectedStop};
use crate::interface::stop_cause::{SandboxEnd, StopCause};
use crate::interface::time::PodTime;

/// The time that every container still gets when the budget is spent, from the last stop signals to SIGKILL (T6; the
/// kubelet has the same as `minimumGracePeriodInSeconds`).
pub const MIN_KILL_DELAY: Duration = Duration::from_secs(2);

/// A stop of the pod (T12).
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    cause: StopCause,
    budget: Budget,
    /// K11: it has no time for hooks, and what it has is shared.
    hurried: bool,
    figures: Figures,
}

impl Stop {
    /// A stop begins, or gets another cause. `limit` is when it must be over, if podshim counts its time (T5).
    pub(crate) fn begin(
        before: Option<&Self>,
        cause: StopCause,
        limit: Option<PodTime>,
        now: PodTime,
        figures: Figures,
    ) -> Self {
        let budget = before.map_or(Budget::Callers, |stop| stop.budget).tightened(cause, limit, now);
        let usual = before.map_or(figures.usual, Self::usual);
        let hurried = cause == StopCause::ZeroGrace || before.is_some_and(Self::is_zero_grace);
        Self { cause, budget, hurried, figures: Figures { usual, ..figures } }
    }

    /// T20: the budget that the pod's figures are meant for.
    pub(crate) fn usual(&self) -> Duration {
        self.figures.usual
    }

    /// T19: the time that is shared out: its budget, or what its caller's figure gives it if that ends sooner. K11 shares otherwise.
    pub(crate) fn span(&self) -> Option<Span> {
        let budget = match self.budget {
            _ if self.hurried => return None,
            Budget::LastCall { .. } | Budget::Spent => return None,
            Budget::Until { at, since, .. } => Some(Span { since, length: at.since(since) }),
            Budget::Callers => None,
        };
        let callers = self.figures.callers.filter(|_| !self.is_ours());
        [budget, callers].into_iter().flatten().min_by_key(|span| span.since + span.length)
    }

    pub(crate) fn cause(&self) -> StopCause {
        self.cause
    }

    /// T5: who counts its time, and how much of it is used.
    pub(crate) fn budget(&self) -> Budget {
        self.budget
    }

    /// T12: whether a stop for that cause replaces this one.
    pub(crate) fn is_outranked_by(&self, cause: StopCause) -> bool {
        Rank::of(cause) > Rank::of(self.cause)
    }

    /// T9: it is asked for again, with less time. Returns whether that changes anything.
    pub(crate) fn tighten(&mut self, cause: StopCause, limit: Option<PodTime>, now: PodTime) -> bool {
        let before = self.budget;
        self.budget = before.tightened(cause, limit, now);
        self.budget != before
    }

    /// T6: every container gets its stop signal now, if it had none.
    pub(crate) fn last_call(&mut self, kill_at: PodTime) {
        self.budget = Budget::LastCall { kill_at };
    }

    /// T6: every container is killed now.
    pub(crate) fn spend(&mut self) {
        self.budget = Budget::Spent;
    }

    /// K13: pause gets its signal now.
    pub(crate) fn signal_sandbox(&mut self) {
        self.cause = StopCause::Sandbox(SandboxEnd::Signalled);
    }

    /// T6: whether the last call has come.
    pub(crate) fn budget_is_over(&self) -> bool {
        matches!(self.budget, Budget::LastCall { .. } | Budget::Spent)
    }

    /// K13: whether pause has had the signal that ends it: a signal that comes now is for pause itself.
    pub(crate) fn has_signalled_sandbox(&self) -> bool {
        self.cause == StopCause::Sandbox(SandboxEnd::Signalled)
    }

    /// T11: whether nothing may be created any more.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(self.cause, StopCause::Sandbox(_) | StopCause::Requested)
    }

    pub(crate) fn is_zero_grace(&self) -> bool {
        self.hurried
    }

    /// K11, T9: it must be over by then, as if it had begun by a caller's SIGKILL.
    pub(crate) fn hurry(&mut self, limit: Option<PodTime>, now: PodTime) {
        self.hurried = true;
        self.budget = self.budget.tightened(StopCause::ZeroGrace, limit, now);
    }

    /// When its time is over, as long as podshim counts it and some is left.
    pub(crate) fn until(&self) -> Option<PodTime> {
        match self.budget {
            Budget::Until { at, .. } => Some(at),
            Budget::Callers | Budget::LastCall { .. } | Budget::Spent => None,
        }
    }

    /// T6: when its last call is due, or its SIGKILL.
    pub(crate) fn next_step(&self) -> Option<PodTime> {
        match self.budget {
            Budget::Until { at, .. } | Budget::LastCall { kill_at: at } => Some(at),
            Budget::Callers | Budget::Spent => None,
        }
    }

    /// T14: whether the pod may go on after it.
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_for_good() && self.cause != StopCause::Completed
    }

    /// T2: whether podshim, not a caller, signals the mains.
    pub(crate) fn is_ours(&self) -> bool {
        self.cause != StopCause::Caller
    }

    /// The exit code of a container that this stop keeps from running (T11).
    pub(crate) fn code_of_held(&self) -> u32 {
        let by_kill = self.cause == StopCause::Sandbox(SandboxEnd::Killed(Signal::KILL));
        code_of_signal(if by_kill { Signal::KILL } else { Signal::TERM }.number())
    }
}

impl Stop {
    pub(crate) fn inspect(&self, now: PodTime) -> InspectedStop {
        InspectedStop {
            cause: self.cause,
            budget: match self.budget {
                Budget::Callers => BudgetLeft::Callers,
                Budget::Until { at, .. } => BudgetLeft::Until(at.since(now)),
                Budget::LastCall { kill_at } => BudgetLeft::LastCall(kill_at.since(now)),
                Budget::Spent => BudgetLeft::Spent,
            },
        }
    }
}

/// What the containers say of a stop's time when it begins: later some may be deleted, and their kubelet's figure with them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    /// T20.
    pub(crate) usual: Duration,
    /// T19: what its caller gives it, if it is a kubelet.
    pub(crate) callers: Option<Span>,
}

/// The time that a stop has, to be shared out (T19).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) since: PodTime,
    pub(crate) length: Duration,
}

/// T5: who counts the time, and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// The caller counts; its SIGKILL ends the budget (T7).
    Callers,
    /// podshim counts since `since`: the last call is due at `at`, and SIGKILL at `kill_at`, which may be the same moment.
    Until { at: PodTime, kill_at: PodTime, since: PodTime },
    /// T6: every container has had a stop signal; SIGKILL is due at `kill_at`.
    LastCall { kill_at: PodTime },
    /// Every container has been killed.
    Spent,
}

impl Budget {
    /// T9: a new limit shortens and never extends.
    fn tightened(self, cause: StopCause, limit: Option<PodTime>, now: PodTime) -> Self {
        let Some(limit) = limit else { return self };
        let floor = match cause {
            StopCause::Sandbox(_) | StopCause::ZeroGrace => Duration::ZERO,
            _ => MIN_KILL_DELAY,
        };
        let own = limit + floor;
        match self {
            Self::Callers => Self::Until { at: limit, kill_at: own, since: now },
            Self::Until { at, kill_at, since } if at <= limit => {
                Self::Until { at, kill_at: kill_at.min(own), since }
            }
            // T19: what is given now is shared out now.
            Self::Until { kill_at, .. } => Self::Until { at: limit, kill_at: kill_at.min(own), since: now },
            Self::LastCall { kill_at } => Self::LastCall { kill_at: kill_at.min(own) },
            Self::Spent => Self::Spent,
        }
    }
}

/// T12: which stop replaces which: the later one of this list. What begins beside one of the same rank is that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// R14: a caller that stops the pod wins.
    Restart,
    Pod,
    Requested,
    SandboxStopped,
    /// A TERM, which pause would ignore, must not keep a KILL from it.
    SandboxKilled,
    PauseSignalled,
    SandboxDied,
}

impl Rank {
    fn of(cause: StopCause) -> Self {
        match cause {
            StopCause::Restart => Self::Restart,
            StopCause::Caller
            | StopCause::ZeroGrace
            | StopCause::Completed
            | StopCause::InitFailed
            | StopCause::SidecarFailed
            | StopCause::Fatal => Self::Pod,
            StopCause::Requested => Self::Requested,
            StopCause::Sandbox(SandboxEnd::Killed(Signal::KILL)) => Self::SandboxKilled,
            StopCause::Sandbox(SandboxEnd::Killed(_)) => Self::SandboxStopped,
            StopCause::Sandbox(SandboxEnd::Signalled) => Self::PauseSignalled,
            StopCause::Sandbox(SandboxEnd::Died) => Self::SandboxDied,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> PodTime {
        PodTime::after_epoch(Duration::from_secs(seconds))
    }

    /// T9: a second limit shortens the first and never extends it; T6's delay follows it.
    #[test]
    fn t9_a_limit_only_gets_shorter() {
        let mut stop = Stop::begin(None, StopCause::Requested, Some(at(20)), at(0), Figures::default());
        assert!(!stop.tighten(StopCause::Requested, Some(at(30)), at(1)));
        assert!(stop.tighten(StopCause::Requested, Some(at(10)), at(2)));
        assert_eq!(stop.budget(), Budget::Until { at: at(10), kill_at: at(12), since: at(2) });
        stop.last_call(at(12));
        assert!(!stop.tighten(StopCause::Requested, Some(at(11)), at(9)) && stop.budget_is_over());
    }

    /// T19, K11: the time of a stop is shared out, but for K11's, also where K11 hurries one that had more.
    #[test]
    fn t19_k11_has_shares_of_its_own() {
        let mut stop = Stop::begin(None, StopCause::Requested, Some(at(20)), at(5), Figures::default());
        assert_eq!(stop.span().map(|span| span.length), Some(Duration::from_secs(15)));
        stop.hurry(Some(at(9)), at(8));
        assert!(stop.span().is_none());
        let killed = Stop::begin(None, StopCause::ZeroGrace, Some(at(2)), at(0), Figures::default());
        assert!(killed.span().is_none());
    }

    /// T12, K13: the sandbox's stop replaces every other one, and its death its stop.
    #[test]
    fn t12_what_replaces_what() {
        let stop = |cause| Stop::begin(None, cause, None, at(0), Figures::default());
        let (killed, died) = (SandboxEnd::Killed, StopCause::Sandbox(SandboxEnd::Died));
        let term = StopCause::Sandbox(killed(Signal::TERM));
        assert!(stop(StopCause::Caller).is_outranked_by(StopCause::Requested));
        assert!(!stop(StopCause::Requested).is_outranked_by(StopCause::Caller));
        assert!(stop(StopCause::Restart).is_outranked_by(StopCause::Caller));
        assert!(stop(StopCause::Restart).is_outranked_by(StopCause::Requested));
        assert!(!stop(StopCause::Fatal).is_outranked_by(StopCause::Caller));
        assert!(stop(StopCause::Requested).is_outranked_by(term));
        assert!(stop(term).is_outranked_by(StopCause::Sandbox(killed(Signal::KILL))));
        assert!(!stop(term).is_outranked_by(StopCause::Requested) && stop(term).is_outranked_by(died));
    }
}
