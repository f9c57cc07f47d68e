//! Draws a pod's life for a terminal: one row per container, one column per slice of time. Only turns values into
//! text; knows nothing of roles or rules.

use std::fmt::Write as _;
use std::time::Duration;

use crate::{Event, Timeline};

/// Columns of the time axis: with the names it fits a terminal of 100.
const COLUMNS: u32 = 76;

/// What a container was doing at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not yet started by the caller, or ended.
    Absent,
    /// The caller started it, its program does not run.
    Held,
    /// Its program runs.
    Running,
    /// It got its stop signal and has not exited.
    Stopping,
}

impl Phase {
    fn symbol(self) -> char {
        match self {
            Phase::Absent => ' ',
            Phase::Held => '·',
            Phase::Running => '█',
            Phase::Stopping => '▒',
        }
    }
}

/// One container as its caller saw it. Times are since the Unix epoch.
#[derive(Clone, Debug)]
pub struct Row {
    /// The container's name in the timeline.
    pub container: String,
    /// Text after the name.
    pub label: String,
    /// When the caller's start was accepted.
    pub accepted: Duration,
    /// When the caller saw it end.
    pub ended: Duration,
    /// The exit code the caller saw.
    pub exit_code: i32,
}

/// The chart: legend, a row per container with its exit code, and the axis in seconds.
#[must_use]
pub fn draw(rows: &[Row], timeline: &Timeline) -> String {
    let begin = rows.iter().map(|row| row.accepted).min().unwrap_or_default();
    let end = rows.iter().map(|row| row.ended).max().unwrap_or_default();
    // At least a millisecond, because an empty chart must not divide by zero.
    let slice = (end.saturating_sub(begin) / COLUMNS).max(Duration::from_millis(1));
    let mut chart = String::from("  · started by the caller, held   █ running   ▒ got its stop signal\n\n");
    for row in rows {
        let bar: String = (0..COLUMNS)
            .map(|column| phase(row, timeline, begin + slice * column + slice / 2).symbol())
            .collect();
        // invariant: writing to a String does not fail.
        let _ = writeln!(chart, "  {:<8}{:<8}│{bar}│ exit {}", row.container, row.label, row.exit_code);
    }
    chart.push_str(&axis(slice));
    chart
}

fn phase(row: &Row, timeline: &Timeline, at: Duration) -> Phase {
    if at < row.accepted {
        return Phase::Absent;
    }
    let mut phase = Phase::Held;
    for entry in timeline.entries().iter().filter(|entry| entry.container == row.container && entry.at <= at)
    {
        phase = match entry.event {
            Event::Starting => Phase::Running,
            Event::Term => Phase::Stopping,
            // A restart may follow: until then the container is drawn as held.
            Event::Exiting => Phase::Held,
            Event::Started | Event::Signal => phase,
        };
    }
    let last = timeline.entries().iter().rfind(|entry| entry.container == row.container);
    let over = last.is_some_and(|entry| entry.event == Event::Exiting && entry.at <= at);
    if over || at > row.ended { Phase::Absent } else { phase }
}

/// The axis: a mark and a number at every second.
fn axis(slice: Duration) -> String {
    let mut ticks = vec!['─'; COLUMNS as usize];
    let mut numbers = vec![' '; COLUMNS as usize + 4];
    for second in 0.. {
        let column = (Duration::from_secs(second).as_nanos() / slice.as_nanos()) as usize;
        if column >= ticks.len() {
            break;
        }
        ticks[column] = '┴';
        for (offset, digit) in second.to_string().chars().enumerate() {
            numbers[column + offset] = digit;
        }
    }
    let margin = " ".repeat(18);
    let (ticks, numbers): (String, String) = (ticks.iter().collect(), numbers.iter().collect());
    format!("{margin}└{ticks}┘\n{margin} {} s\n", numbers.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(container: &str, accepted: u64, ended: u64) -> Row {
        Row {
            container: container.to_owned(),
            label: "main".to_owned(),
            accepted: Duration::from_secs(accepted),
            ended: Duration::from_secs(ended),
            exit_code: 0,
        }
    }

    #[test]
    fn a_row_shows_hold_run_and_stop() {
        let log = "104.000 app Starting 0\n110.000 app Term 15\n112.000 app Exiting 0\n";
        let timeline = Timeline::parse(log).expect("a valid log");
        let app = row("app", 102, 112);
        let at = |seconds| phase(&app, &timeline, Duration::from_secs(seconds));
        assert_eq!(
            [at(101), at(103), at(105), at(111), at(113)],
            [Phase::Absent, Phase::Held, Phase::Running, Phase::Stopping, Phase::Absent]
        );
    }

    #[test]
    fn a_restart_shows_as_a_gap_that_is_held() {
        let log = "1.000 app Starting 0\n2.000 app Exiting 1\n4.000 app Starting 0\n";
        let timeline = Timeline::parse(log).expect("a valid log");
        assert_eq!(phase(&row("app", 1, 9), &timeline, Duration::from_secs(3)), Phase::Held);
    }

    #[test]
    fn an_empty_chart_is_drawn() {
        assert!(draw(&[], &Timeline::default()).contains("└"));
    }

    #[test]
    fn every_line_has_the_same_axis() {
        let timeline = Timeline::parse("1.000 app Starting 0\n").expect("a valid log");
        let chart = draw(&[row("app", 1, 5), row("other", 2, 4)], &timeline);
        let starts: Vec<_> =
            chart.lines().filter_map(|line| line.chars().position(|c| c == '│' || c == '└')).collect();
        assert_eq!(starts, [18, 18, 18], "{chart}");
    }
}
