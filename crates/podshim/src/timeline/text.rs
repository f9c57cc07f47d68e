//! A timeline as lines of a terminal: a bar for each container, and below them all events.

use super::Timeline;
use super::chart::{Chart, Lane, MarkKind, Phase};
use crate::events::{date, duration, time_of_day};
use crate::output::{ColorMode, Colour, Table};

/// The timeline in so many columns: the chart, its legend and all events.
pub fn show(timeline: &Timeline, columns: usize, paint: ColorMode) -> String {
    let chart = &timeline.chart;
    let begin = i64::try_from(chart.begin_ms).unwrap_or_default() + timeline.wall_offset_ms;
    let mut text = format!(
        "{} {}\n\n",
        paint.text(Colour::Bold, &format!("Pod {}", timeline.title)),
        paint.text(
            Colour::Dim,
            &format!("{} from {} {} UTC on", duration(chart.length_ms()), date(begin), time_of_day(begin))
        )
    );
    text += &lanes(chart, columns, paint);
    match legend(chart, paint).as_str() {
        "" => text.push('\n'),
        legend => text += &format!("\n{legend}\n"),
    }
    if timeline.lost > 0 {
        text += &format!("({} events before these are not kept any more)\n", timeline.lost);
    }
    text + &events(timeline, paint)
}

/// The axis and a line for each lane.
pub fn lanes(chart: &Chart, columns: usize, paint: ColorMode) -> String {
    let width = |text: fn(&Lane) -> &String| {
        chart.lanes.iter().map(|lane| text(lane).chars().count()).max().unwrap_or_default()
    };
    let (names, roles) = (width(|lane| &lane.name), width(|lane| &lane.role));
    let bar = columns.saturating_sub(names + roles + 4).max(20);
    let mut text = format!("{:names$}  {:roles$}  {}\n", "", "", axis(chart, bar));
    for lane in &chart.lanes {
        let line = format!("{:names$}  {:roles$}  {}", lane.name, lane.role, cells(chart, lane, bar, paint));
        text += &format!("{}\n", line.trim_end());
    }
    text
}

/// The signs that occur, and what they mean.
pub fn legend(chart: &Chart, paint: ColorMode) -> String {
    let line =
        |entries: Vec<String>| if entries.is_empty() { String::new() } else { entries.join("  ") + "\n" };
    let phases = chart.phases().map(|phase| format!("{} {}", sign_of_phase(phase, paint), phase.words()));
    let marks = chart.mark_kinds().map(|kind| format!("{} {}", sign_of_mark(kind, paint), kind.words()));
    line(phases.collect()) + &line(marks.collect())
}

fn axis(chart: &Chart, bar: usize) -> String {
    let mut line = String::new();
    for tick in chart.ticks(u64::try_from(bar / 12).unwrap_or(1)) {
        let column = column_of(chart, chart.at(tick), bar);
        let written = line.chars().count();
        if written <= column {
            line += &" ".repeat(column - written);
            line += &duration(tick);
        }
    }
    line
}

fn cells(chart: &Chart, lane: &Lane, bar: usize, paint: ColorMode) -> String {
    let mut cells: Vec<String> = vec![" ".to_owned(); bar];
    for span in &lane.spans {
        // However short a span is, it gets one cell.
        let (from, to) = (column_of(chart, span.from_ms, bar), column_of(chart, span.to_ms, bar));
        for cell in cells.iter_mut().take(to.max(from + 1)).skip(from) {
            *cell = sign_of_phase(span.phase, paint);
        }
    }
    for mark in &lane.marks {
        if let Some(cell) = cells.get_mut(column_of(chart, mark.at_ms, bar)) {
            *cell = sign_of_mark(mark.kind, paint);
        }
    }
    cells.concat().trim_end().to_owned()
}

fn column_of(chart: &Chart, at_ms: u64, bar: usize) -> usize {
    let columns = u64::try_from(bar).unwrap_or_default().saturating_sub(1);
    let column = at_ms.saturating_sub(chart.begin_ms) * columns / chart.length_ms();
    usize::try_from(column).unwrap_or_default()
}

fn sign_of_phase(phase: Phase, paint: ColorMode) -> String {
    let (sign, colour) = match phase {
        Phase::Created => ("·", Colour::Dim),
        Phase::Held => ("┄", Colour::Yellow),
        Phase::Starting => ("░", Colour::Green),
        Phase::GateClosed => ("▒", Colour::Yellow),
        Phase::Running => ("█", Colour::Green),
        Phase::Stopping => ("▓", Colour::Yellow),
        Phase::BackingOff => ("~", Colour::Red),
        Phase::Paused => ("=", Colour::Dim),
    };
    paint.text(colour, sign)
}

fn sign_of_mark(kind: MarkKind, paint: ColorMode) -> String {
    let sign = match kind {
        MarkKind::Gate => "│",
        MarkKind::Signal => "!",
        MarkKind::Done => "✓",
        MarkKind::BySignal => "▪",
        MarkKind::Unseen => "?",
        MarkKind::Failure => "✗",
        MarkKind::Hook => "◆",
        MarkKind::Budget => "╎",
    };
    paint.text(kind.colour(), sign)
}

fn events(timeline: &Timeline, paint: ColorMode) -> String {
    let mut table = Table::new(&["AFTER", "CONTAINER", "WHAT HAPPENED"]);
    for row in &timeline.rows {
        let after = duration(timeline.since_begin(row.at_ms));
        table.row(vec![(after, Some(Colour::Dim)), (row.who.clone(), None), (row.sentence.clone(), None)]);
    }
    // No width: the sentences must not be cut.
    table.show(paint, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::chart::{Mark, Span};
    use crate::timeline::tests::life;

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        let text = show(&life(), 56, ColorMode::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Pod prod/web 6.9s from 1970-01-01 00:16:40.100 UTC on");
        assert_eq!(lines[2], "                0s                          5s");
        assert_eq!(lines[3], "proxy  sidecar   ░▒▒✗~~░▒▒│██████████████████████!▓▓▓▓▓▪");
        assert_eq!(lines[4], "app    main     ┄┄┄┄┄┄┄┄┄┄░████████████████!▓▓▓▓▓✓");
        let events: Vec<&str> = lines[10..].to_vec();
        assert_eq!(events[1], "100ms  app        held, waiting for sidecar \"proxy\"");
        assert_eq!(events[12], "4.9s   (pod)      the stop begins (requested), within 10s");
    }

    /// docs/cli.md shows all signs, README.md those of the demo.
    #[test]
    fn the_documentation_has_the_same_legend() {
        let all = Chart { lanes: vec![every_sign()], ..Chart::default() };
        let legend = legend(&all, ColorMode::Plain);
        let page = include_str!("../../../../docs/cli.md");
        assert_eq!(legend.lines().count(), 2);
        assert!(legend.lines().all(|line| page.contains(&format!("    {line}\n"))), "{legend}");
        let readme = include_str!("../../../../README.md");
        for line in readme.lines().filter(|line| line.contains("█ running") || line.contains("✓ ended")) {
            assert!(line.trim().split("  ").all(|entry| legend.contains(entry)), "{line}");
        }
    }

    fn every_sign() -> Lane {
        let spans = Phase::ALL.map(|phase| Span { from_ms: 0, to_ms: 1, phase });
        let marks = MarkKind::ALL.map(|kind| Mark { at_ms: 0, kind, text: String::new() });
        Lane { spans: spans.into(), marks: marks.into(), ..Lane::default() }
    }
}
