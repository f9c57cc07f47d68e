//! A pod's recorded life as the chart that `podshim timeline` draws: for the demo, which has it from the programs
//! themselves, as containerd's own shim records no events.

use std::time::Duration;

use podshim::timeline::chart::{Chart, Lane, LaneBuilder, Mark, MarkKind, Phase};

use crate::{Event, Timeline};

/// One container as its caller saw it. Times are since the Unix epoch.
#[derive(Clone, Debug)]
pub struct Row {
    /// The container's name in the timeline.
    pub container: String,
    /// Its role in the plan.
    pub role: String,
    /// When the caller's start was accepted.
    pub accepted: Duration,
    /// When the caller saw it end.
    pub ended: Duration,
}

/// The chart, with a lane for each row.
#[must_use]
pub fn chart(rows: &[Row], timeline: &Timeline) -> Chart {
    Chart {
        begin_ms: rows.iter().map(|row| milliseconds(row.accepted)).min().unwrap_or_default(),
        end_ms: rows.iter().map(|row| milliseconds(row.ended)).max().unwrap_or_default(),
        lanes: rows.iter().map(|row| lane(row, timeline)).collect(),
        ..Chart::default()
    }
}

fn lane(row: &Row, timeline: &Timeline) -> Lane {
    let mut lane = LaneBuilder::new(&row.container, &row.role);
    lane.enter(milliseconds(row.accepted), Some(Phase::Held));
    let mut stop_code = None;
    for entry in timeline.entries().iter().filter(|entry| entry.container == row.container) {
        let at_ms = milliseconds(entry.at);
        match entry.event {
            Event::Starting => lane.enter(at_ms, Some(Phase::Running)),
            Event::Term => {
                stop_code = u32::try_from(128 + entry.code).ok();
                lane.enter(at_ms, Some(Phase::Stopping));
            }
            Event::Exiting => {
                let code = u32::try_from(entry.code).unwrap_or(u32::MAX);
                let kind = MarkKind::of_exit(Some(code), stop_code.take());
                lane.mark(Mark { at_ms, kind, text: format!("exited with {code}") });
                // Until the next start, if there is one.
                lane.enter(at_ms, Some(Phase::BackingOff));
            }
            Event::Started | Event::Signal => {}
        }
    }
    // After its last exit a container is not backing off: it has ended.
    let mut lane = lane.finish(milliseconds(row.ended));
    if lane.spans.last().is_some_and(|span| span.phase == Phase::BackingOff) {
        lane.spans.pop();
    }
    lane
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(log: &str, accepted: u64, ended: u64) -> Vec<(u64, u64, Phase)> {
        let row = Row {
            container: "app".to_owned(),
            role: "main".to_owned(),
            accepted: Duration::from_secs(accepted),
            ended: Duration::from_secs(ended),
        };
        let timeline = Timeline::parse(log).expect("a valid log");
        let chart = chart(&[row], &timeline);
        let spans = chart.lanes[0].spans.iter();
        spans.map(|span| (span.from_ms / 1000, span.to_ms / 1000, span.phase)).collect()
    }

    #[test]
    fn a_lane_has_hold_run_and_stop() {
        let log = "104.000000 app Starting 0\n110.000000 app Term 15\n112.000000 app Exiting 0\n";
        let wanted = [(102, 104, Phase::Held), (104, 110, Phase::Running), (110, 112, Phase::Stopping)];
        assert_eq!(spans(log, 102, 113), wanted);
    }

    #[test]
    fn a_restart_is_a_gap_that_backs_off() {
        let log = "1.000000 app Starting 0\n2.000000 app Exiting 1\n4.000000 app Starting 0\n";
        let wanted = [(1, 2, Phase::Running), (2, 4, Phase::BackingOff), (4, 9, Phase::Running)];
        assert_eq!(spans(log, 1, 9), wanted);
    }

    #[test]
    fn a_container_that_never_ran_was_held() {
        assert_eq!(spans("", 1, 3), [(1, 3, Phase::Held)]);
    }
}
