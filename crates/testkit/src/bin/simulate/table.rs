//! How many runs under a kubelet failed, for each policy and kind of fault. Owns the counts and how they are printed.

use std::collections::BTreeMap;
use std::fmt;

use pod_spec::RestartPolicy;
use testkit::{Failure, FaultKind};

use crate::runs::POLICIES;

/// The counts so far.
#[derive(Default)]
pub struct Table(BTreeMap<(String, usize), Count>);

#[derive(Clone, Copy, Default)]
struct Count {
    runs: u64,
    failures: u64,
}

impl Table {
    /// Counts a run.
    pub fn count(&mut self, (policy, row): (RestartPolicy, String), failure: Option<&Failure>) {
        let column = POLICIES.iter().position(|other| *other == policy).unwrap_or_default();
        let count = self.0.entry((row, column)).or_default();
        count.runs += 1;
        count.failures += u64::from(failure.is_some());
    }

    /// Adds the counts of another table.
    pub fn add(&mut self, other: &Self) {
        for (cell, more) in &other.0 {
            let count = self.0.entry(cell.clone()).or_default();
            count.runs += more.runs;
            count.failures += more.failures;
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<_> = FaultKind::all().map(|kind| kind.to_string()).collect();
        let mut rows: Vec<_> = self.0.keys().map(|(row, _)| row).collect();
        rows.sort_by_key(|row| known.iter().position(|known| known == *row));
        rows.dedup();
        if !rows.is_empty() {
            write!(f, "failed, of all")?;
            POLICIES.iter().try_for_each(|policy| write!(f, " {:>18}", format!("{policy:?}")))?;
            writeln!(f)?;
        }
        for row in rows {
            write!(f, "{row:<14}")?;
            for column in 0..POLICIES.len() {
                let count = self.0.get(&(row.clone(), column));
                let text = count.map_or_else(String::new, |it| format!("{} of {}", it.failures, it.runs));
                write!(f, " {text:>18}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}
