//! Restarts in place: each container's with the same exit code, close together, are one series.
//!
//! Owns which events are one restart. Decides nothing of what is written.

use std::collections::{BTreeMap, BTreeSet};

use control_api::Event;
use control_api::event::Kind;

use super::series::{AllSeries, Occurrence};

/// The restarts of a pod.
#[derive(Debug, Default)]
pub(super) struct Restarts {
    /// The last exit codes of the containers, by their ids.
    codes: BTreeMap<String, u32>,
    /// The containers that are to be started again.
    due: BTreeSet<String>,
    series: AllSeries,
}

/// A restart that is to be reported.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Restart {
    pub(super) name: String,
    pub(super) code: Option<u32>,
    pub(super) occurrence: Occurrence,
}

impl Restarts {
    /// A restart, if the event is one that is worth a report: the first one of a series, the second, the fourth, and so on.
    pub(super) fn see(&mut self, event: &Event) -> Option<Restart> {
        match event.kind.enum_value_or_default() {
            Kind::EXITED => {
                self.due.remove(&event.id);
                match event.code {
                    Some(code) => drop(self.codes.insert(event.id.clone(), code)),
                    None => drop(self.codes.remove(&event.id)),
                }
                None
            }
            Kind::RESTART_DUE => {
                self.due.insert(event.id.clone());
                None
            }
            Kind::STOPPED | Kind::DELETED => {
                self.due.remove(&event.id);
                self.codes.remove(&event.id);
                None
            }
            Kind::RUNNING if self.due.remove(&event.id) => self.again(event),
            _ => None,
        }
    }

    /// The code of a container's last exit.
    pub(super) fn code_of(&self, id: &str) -> Option<u32> {
        self.codes.get(id).copied()
    }

    fn again(&mut self, event: &Event) -> Option<Restart> {
        let code = self.code_of(&event.id);
        let occurrence = self.series.count(format!("{} {code:?}", event.name), event)?;
        Some(Restart { name: event.name.clone(), code, occurrence })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: Kind, sequence: u64, at_ms: i64, code: Option<u32>) -> Event {
        let (id, name) = ("id-of-proxy".to_owned(), "proxy".to_owned());
        Event { kind: kind.into(), sequence, wall_ms: at_ms, code, id, name, ..Default::default() }
    }

    /// A program that exits with this code each so many milliseconds, so many times.
    fn crashes(restarts: &mut Restarts, code: u32, every_ms: i64, times: u64) -> Vec<(u64, u32)> {
        let mut found = Vec::new();
        for round in 0..times {
            let (sequence, at) = (round * 4, i64::try_from(round).unwrap() * every_ms);
            let events = [
                event(Kind::EXITED, sequence, at, Some(code)),
                event(Kind::RESTART_DUE, sequence + 1, at, None),
                event(Kind::STARTING, sequence + 2, at, None),
                event(Kind::RUNNING, sequence + 3, at, None),
            ];
            let restart = events.iter().filter_map(|event| restarts.see(event)).last();
            let of = |it: Occurrence| (it.first, it.series.map_or(1, |series| series.count));
            found.extend(restart.map(|it| of(it.occurrence)));
        }
        found
    }

    #[test]
    fn restarts_with_the_same_code_are_one_series() {
        let mut restarts = Restarts::default();
        assert_eq!(crashes(&mut restarts, 7, 1000, 9), [(3, 1), (3, 2), (3, 4), (3, 8)]);
        assert_eq!(crashes(&mut restarts, 9, 1000, 1), [(3, 1)], "with another code it is another one");
    }

    #[test]
    fn a_first_start_and_a_callers_restart_are_none() {
        let mut restarts = Restarts::default();
        assert_eq!(restarts.see(&event(Kind::RUNNING, 1, 0, None)), None);
        for kind in [Kind::EXITED, Kind::STOPPED, Kind::DELETED, Kind::CREATED, Kind::STARTING, Kind::RUNNING]
        {
            assert_eq!(restarts.see(&event(kind, 2, 0, Some(1))), None);
        }
    }
}
