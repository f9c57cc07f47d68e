//! Events that say the same again and again: close together they are one series.
//!
//! Owns what a series is, and which of its events are worth a write. Its name comes from its first event that the shim still has, so an
//! agent that was restarted goes on with the same one. Knows no clock.

use std::collections::BTreeMap;

use control_api::Event;

use crate::report::Series;

/// An event later than this after the last one begins a new series.
const APART_MS: i64 = 600_000;
/// How many are counted at a time: a pod's programs write what a probe repeats.
const MOST: usize = 64;

/// The series of a pod.
#[derive(Debug, Default)]
pub(super) struct AllSeries(BTreeMap<String, Run>);

#[derive(Clone, Copy, Debug)]
struct Run {
    first: u64,
    first_ms: i64,
    last_ms: i64,
    count: u32,
}

/// An event of a series that is worth a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Occurrence {
    /// The number of the first one.
    pub(super) first: u64,
    pub(super) first_ms: i64,
    /// If it is not the first one.
    pub(super) series: Option<Series>,
}

impl AllSeries {
    /// Counts an event that says `about`. Worth a write are the first, the second, the fourth, and so on.
    pub(super) fn count(&mut self, about: String, event: &Event) -> Option<Occurrence> {
        let at = event.wall_ms;
        let new = Run { first: event.sequence, first_ms: at, last_ms: at, count: 0 };
        let run = self.0.entry(about).or_insert(new);
        if at - run.last_ms > APART_MS {
            *run = new;
        }
        (run.last_ms, run.count) = (at, run.count.saturating_add(1));
        let Run { first, first_ms, count, .. } = *run;
        let series = (count > 1).then_some(Series { count, last_ms: at });
        if self.0.len() > MOST {
            let oldest = self.0.iter().min_by_key(|(_, run)| run.last_ms).map(|(about, _)| about.clone());
            oldest.and_then(|about| self.0.remove(&about));
        }
        count.is_power_of_two().then_some(Occurrence { first, first_ms, series })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(all: &mut AllSeries, about: &str, sequence: u64, wall_ms: i64) -> Option<(u64, u32)> {
        let event = Event { sequence, wall_ms, ..Default::default() };
        let found = all.count(about.to_owned(), &event);
        found.map(|it| (it.first, it.series.map_or(1, |series| series.count)))
    }

    #[test]
    fn what_says_the_same_is_one_series() {
        let mut all = AllSeries::default();
        let found: Vec<_> = (1..10).filter_map(|at| counted(&mut all, "a", at, 1000)).collect();
        assert_eq!(found, [(1, 1), (1, 2), (1, 4), (1, 8)]);
        assert_eq!(counted(&mut all, "b", 20, 1000), Some((20, 1)));
        assert_eq!(counted(&mut all, "a", 21, 1001 + APART_MS), Some((21, 1)), "far apart");
    }

    #[test]
    fn texts_without_an_end_are_bounded() {
        let mut all = AllSeries::default();
        for at in 0..500_u32 {
            assert!(counted(&mut all, &format!("text {at}"), at.into(), at.into()).is_some());
        }
        assert_eq!(all.0.len(), MOST);
        assert_eq!(counted(&mut all, "text 499", 500, 500), Some((499, 2)), "the newest are kept");
    }
}
