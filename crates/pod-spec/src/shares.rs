//! How the budget of a stop is shared (T19, T20): what is kept for the steps after the mains, when what is followed by them gets its
//! last signals, and how a container's own grace shrinks with the budget.
//!
//! Owns the arithmetic, so that the code that asks it and the code that shows it cannot differ. Knows no pod, and no clock.

use std::time::Duration;

/// What each step after the mains has by default, what a container with a grace of its own keeps, and the longest time from a stop signal
/// that comes late to SIGKILL.
pub const STEP_TIME: Duration = Duration::from_secs(2);

/// A budget, and what of it is kept for the steps after the mains (T19). A step: the sidecars that stop together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    budget: Duration,
    reserve: Duration,
    steps: u32,
}

/// When a container that others stop after gets its last signals, from the beginning of the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastSignals {
    /// A stop signal, if it had none.
    pub stop: Duration,
    /// SIGKILL.
    pub kill: Duration,
}

impl Shares {
    /// The shares of a budget. `reserve` is the plan's own figure, which is meant for the pod's `usual` budget; `steps` is how many steps
    /// follow the mains.
    pub fn of(budget: Duration, reserve: Option<Duration>, usual: Duration, steps: u32) -> Self {
        let reserve = match reserve {
            None => STEP_TIME.saturating_mul(steps).min(budget / 3),
            // At most an even split, so that a step has no more than the mains.
            Some(own) => in_proportion(own, budget, usual).min(budget / (steps + 1) * steps),
        };
        Self { budget, reserve, steps }
    }

    /// What each step has, if all before it use their time up; `None` if nothing is kept.
    pub fn step(&self) -> Option<Duration> {
        self.reserve.checked_div(self.steps).filter(|step| !step.is_zero())
    }

    /// The last signals of what `after` steps follow; `None` if nothing is kept for them: then only the budget's end counts (T6).
    pub fn last_signals(&self, after: u32) -> Option<LastSignals> {
        let step = self.step().filter(|_| after > 0)?;
        let kill = self.budget.saturating_sub(step * after);
        // The mains have their time from T0 on, a step from the end of the one before it.
        let own = if after == self.steps { kill } else { step };
        Some(LastSignals { stop: kill.saturating_sub((own / 2).min(STEP_TIME)), kill })
    }
}

/// T20: a container's own grace in a stop with that budget; `usual` is the budget that the pod's figures are meant for.
pub fn shrunk(grace: Duration, budget: Duration, usual: Duration) -> Duration {
    in_proportion(grace, budget, usual).max(grace.min(STEP_TIME))
}

/// A figure that is meant for the usual budget, where there is less.
fn in_proportion(figure: Duration, budget: Duration, usual: Duration) -> Duration {
    if budget >= usual {
        return figure;
    }
    let nanos = figure.as_nanos().saturating_mul(budget.as_nanos()) / usual.as_nanos().max(1);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// T19: the table of docs/rules.md: when the mains get SIGKILL, and what each step has.
    #[test]
    fn t19_the_table() {
        let rows = [
            (30.0, 1, 28.0, 2.0),
            (30.0, 3, 24.0, 2.0),
            (30.0, 9, 20.0, 10.0 / 9.0),
            (6.0, 1, 4.0, 2.0),
            (6.0, 3, 4.0, 2.0 / 3.0),
            (6.0, 9, 4.0, 2.0 / 9.0),
            (2.0, 1, 4.0 / 3.0, 2.0 / 3.0),
            (2.0, 3, 4.0 / 3.0, 2.0 / 9.0),
            (2.0, 9, 4.0 / 3.0, 2.0 / 27.0),
        ];
        for (budget, steps, kill, step) in rows {
            let shares = Shares::of(seconds(budget), None, seconds(30.0), steps);
            let signals = shares.last_signals(steps).expect("steps follow");
            let is_near = |one: Duration, other: f64| one.abs_diff(seconds(other)) < Duration::from_micros(1);
            assert!(is_near(signals.kill, kill), "{budget} s, {steps} steps: {signals:?}");
            assert!(is_near(shares.step().expect("a step"), step), "{budget} s, {steps} steps");
            assert_eq!(shares.last_signals(0), None);
        }
        assert_eq!(Shares::of(Duration::ZERO, None, seconds(30.0), 3).last_signals(3), None);
    }

    /// T19: of an own figure at most an even split counts, and it shrinks with the budget.
    #[test]
    fn t19_an_own_figure() {
        let kill = |budget, own, steps| {
            let shares = Shares::of(seconds(budget), Some(seconds(own)), seconds(30.0), steps);
            shares.last_signals(steps).map(|signals| signals.kill)
        };
        assert_eq!(kill(30.0, 12.0, 2), Some(seconds(18.0)));
        assert_eq!(kill(10.0, 12.0, 2), Some(seconds(6.0)));
        assert_eq!(kill(60.0, 12.0, 2), Some(seconds(48.0)));
        assert_eq!(kill(30.0, 30.0, 2), Some(seconds(10.0)));
        assert_eq!(kill(30.0, 0.0, 2), None);
    }

    /// T19: a stop signal that is late comes 2 s before SIGKILL, or in the middle of what is less than 4 s.
    #[test]
    fn t19_the_late_stop_signal() {
        let stop = |budget, steps, after| {
            let shares = Shares::of(seconds(budget), None, seconds(30.0), steps);
            shares.last_signals(after).map(|signals| signals.stop)
        };
        assert_eq!(stop(30.0, 1, 1), Some(seconds(26.0)));
        assert_eq!(stop(6.0, 1, 1), Some(seconds(2.0)));
        assert_eq!(stop(30.0, 3, 2), Some(seconds(25.0)));
    }

    /// T20: in proportion, but 2 s stay, or the whole of what is less.
    #[test]
    fn t20_an_own_grace_shrinks_with_the_budget() {
        let [ten, thirty] = [10.0, 30.0].map(seconds);
        assert_eq!(shrunk(seconds(20.0), thirty, thirty), seconds(20.0));
        assert_eq!(shrunk(seconds(15.0), ten, thirty), seconds(5.0));
        assert_eq!(shrunk(seconds(3.0), ten, thirty), seconds(2.0));
        assert_eq!(shrunk(seconds(1.0), ten, thirty), seconds(1.0));
        assert_eq!(shrunk(seconds(20.0), seconds(60.0), thirty), seconds(20.0));
    }
}
