//! Every interleaving of a few callers, operations, exits and timers of a small pod.
//!
//! Owns the choices that the world has at each moment, and the search through them. Time passes only to the pod's next
//! deadline; how long operations and programs take is one of the choices. From every state a caller that ends
//! everything must succeed (liveness).

mod exploration;
mod state;

use std::collections::HashSet;

pub use exploration::{Exploration, Limits};
use state::{End, State};

/// What a search has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Distinct states.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// States in which nothing can happen any more.
    pub ends: usize,
}

/// The search.
#[derive(Debug)]
pub struct Explorer {
    exploration: Exploration,
    seen: HashSet<u64>,
    /// From these moments a caller has ended everything already.
    ended: HashSet<u64>,
    report: Report,
}

impl Explorer {
    /// A search through that pod.
    pub fn new(exploration: Exploration) -> Self {
        Self {
            exploration,
            seen: HashSet::new(),
            ended: HashSet::new(),
            report: Report { states: 0, steps: 0, ends: 0 },
        }
    }

    /// Visits every state.
    ///
    /// # Errors
    /// The first broken promise, with the steps that led to it.
    pub fn run(mut self) -> Result<Report, String> {
        let first = State::new(&self.exploration)?;
        let mut open = vec![first];
        while let Some(state) = open.pop() {
            let fingerprints = state.fingerprints();
            if !self.seen.insert(fingerprints.whole) {
                continue;
            }
            self.report.states += 1;
            if self.report.states > self.exploration.limits.states {
                return Err(format!("more than {} states", self.exploration.limits.states));
            }
            let choices = state.choices(&self.exploration);
            if choices.is_empty() {
                self.report.ends += 1;
            }
            if self.ended.insert(fingerprints.pod) {
                self.end_from(&state)?;
            }
            for choice in choices {
                self.report.steps += 1;
                let mut next = state.clone();
                let result = next.take(&self.exploration, &choice);
                result.map_err(|error| next.explain(&error))?;
                open.push(next);
            }
        }
        Ok(self.report)
    }

    /// Liveness: a caller that ends everything succeeds. It waits until no operation runs, so that many states become one
    /// moment, which is tried once.
    fn end_from(&mut self, state: &State) -> Result<(), String> {
        let mut settled = state.clone();
        if settled.runs_operations() {
            settled.finish_operations().map_err(|error| settled.explain(&error))?;
            if !self.ended.insert(settled.fingerprints().pod) {
                return Ok(());
            }
        }
        for (end, name) in [(End::StopAndKill, "stops and kills all"), (End::KillPause, "kills pause")] {
            // Without a plan pause is a container like any other (S1).
            if end == End::KillPause && self.exploration.plan.is_none() {
                continue;
            }
            let mut ended = settled.clone();
            ended.note(format!("a caller {name}"));
            let result = ended.end_everything(&self.exploration, end);
            result.map_err(|error| ended.explain(&error))?;
        }
        Ok(())
    }
}
