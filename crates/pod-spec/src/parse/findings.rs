//! What the pass over the annotations has found so far. Owns how much of it is kept.

use std::collections::BTreeSet;

use crate::error::{InvalidPlan, PlanError, Problem};
use crate::limits::{MAX_KEYS, MAX_LISTED_ERRORS};
use crate::plan::Plan;
use crate::warning::Warning;

/// The content of a pod's annotations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parsed {
    /// The plan; `None` if no annotation begins with [`PREFIX`](crate::PREFIX), or those that do need none (N11, S8): podshim serves
    /// such a pod as containerd's own runc shim does (S1).
    pub plan: Option<Plan>,
    /// What is legal but probably not meant.
    pub warnings: Vec<Warning>,
    /// Without a plan: the containers that are called the kubelet's own, for a plan that is said elsewhere (S12).
    pub kubelets_own: BTreeSet<String>,
}

/// Errors and warnings.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: Vec<PlanError>,
    warnings: Vec<Warning>,
}

impl Findings {
    /// Notes an error; `key` is without the prefix.
    pub(super) fn error(&mut self, key: &str, problem: impl Into<Problem>) {
        // A value of separators alone makes an error for each; more than this many are of no use.
        if self.errors.len() < MAX_KEYS {
            self.errors.push(PlanError::new(key, problem));
        }
    }

    /// Whether one more error would be spelled out. If not, the search for its nearest word is wasted, and a pod author
    /// could pile up such work.
    pub(super) fn is_next_listed(&self) -> bool {
        self.errors.len() < MAX_LISTED_ERRORS
    }

    /// Keeps a valid value, or notes the error.
    pub(super) fn keep<T>(&mut self, key: &str, value: Result<T, impl Into<Problem>>, place: &mut T) {
        match value {
            Ok(value) => *place = value,
            Err(problem) => self.error(key, problem),
        }
    }

    /// Notes a warning.
    pub(super) fn warn(&mut self, warning: Warning) {
        self.warnings.push(warning);
    }

    /// The plan, if nothing is wrong.
    pub(super) fn finish(self, plan: Option<Plan>) -> Result<Parsed, InvalidPlan> {
        match InvalidPlan::from_errors(self.errors) {
            Some(invalid) => Err(invalid),
            None => Ok(Parsed { plan, warnings: self.warnings, kubelets_own: BTreeSet::new() }),
        }
    }
}
