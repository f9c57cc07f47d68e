//! How many runs under a kubelet failed, for each policy and kind of fault. Owns the counts and how they are printed.

use std::collections::BTreeMap;
use std::fmt;

use pod_spec::RestartPolicy;
use testkit::{Failure, KubeletRun, Trouble};

const POLICIES: [RestartPolicy; 3] = [RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never];

/// The counts so far.
#[derive(Default)]
pub struct Table(BTreeMap<(Trouble, usize), (u64, u64)>);

impl Table {
    /// Counts a run.
    pub fn count(&mut self, run: KubeletRun, failure: Option<&Failure>) {
        let policy = POLICIES.iter().position(|policy| *policy == run.policy).unwrap_or_default();
        let (runs, failures) = self.0.entry((run.trouble, policy)).or_default();
        *runs += 1;
        *failures += u64::from(failure.is_some());
    }

    /// Adds the counts of another one.
    pub fn add(&mut self, other: &Self) {
        for (cell, (runs, failures)) in &other.0 {
            let (all, failed) = self.0.entry(*cell).or_default();
            (*all, *failed) = (*all + runs, *failed + failures);
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "failed of runs   {:>18} {:>18} {:>18}", "Always", "OnFailure", "Never")?;
        for trouble in Trouble::all() {
            let cells: Vec<_> = (0..POLICIES.len()).map(|policy| self.0.get(&(trouble, policy))).collect();
            if cells.iter().all(Option::is_none) {
                continue;
            }
            write!(f, "{trouble:<16}")?;
            for cell in cells {
                let text = cell.map_or_else(String::new, |(runs, failures)| format!("{failures} of {runs}"));
                write!(f, " {text:>18}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
