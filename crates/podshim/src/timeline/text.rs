//! A timeline as lines of a terminal: a bar for each container, and below them all events.

use super::{Lane, MarkKind, Phase, Timeline};
use crate::events::{date, duration, time_of_day};
use crate::output::{Colour, Paint, Table};

/// The meaning of the marks.
const LEGEND: &str =
    "│ gate open  ! signal  ✓ ended with 0  ▪ ended by its stop signal  ✗ failed or killed  ◆ hook";

/// The timeline in so many columns.
pub fn show(timeline: &Timeline, columns: usize, paint: Paint) -> String {
    let names = timeline.lanes.iter().map(|lane| lane.name.chars().count()).max().unwrap_or_default();
    let bar = columns.saturating_sub(names + 2).max(20);
    let begin = i64::try_from(timeline.begin_ms).unwrap_or_default() + timeline.wall_offset_ms;
    let mut text = format!(
        "{} {}\n\n",
        paint.text(Colour::Bold, &format!("Pod {}", timeline.title)),
        paint.text(
            Colour::Dim,
            &format!("{} from {} {} UTC on", duration(timeline.length_ms()), date(begin), time_of_day(begin))
        )
    );
    text += &format!("{:names$}  {}\n", "", axis(timeline, bar));
    for lane in &timeline.lanes {
        text += &format!("{:names$}  {}\n", lane.name, cells(timeline, lane, bar, paint));
    }
    let legend: Vec<String> =
        Phase::ALL.iter().map(|phase| format!("{} {}", paint_of(*phase, paint), phase.words())).collect();
    text += &format!("\n{}\n{}\n\n", legend.join("  "), LEGEND);
    if timeline.lost > 0 {
        text += &format!("({} events before these are not kept any more)\n", timeline.lost);
    }
    text + &events(timeline, paint)
}

fn axis(timeline: &Timeline, bar: usize) -> String {
    let mut line = String::new();
    for tick in timeline.ticks(u64::try_from(bar / 12).unwrap_or(1)) {
        let column = column_of(timeline, timeline.begin_ms + tick, bar);
        let written = line.chars().count();
        if written <= column {
            line += &" ".repeat(column - written);
            line += &duration(tick);
        }
    }
    line
}

fn cells(timeline: &Timeline, lane: &Lane, bar: usize, paint: Paint) -> String {
    let mut cells: Vec<String> = vec![" ".to_owned(); bar];
    for span in &lane.spans {
        // However short a span is, it gets one cell.
        let (from, to) = (column_of(timeline, span.from_ms, bar), column_of(timeline, span.to_ms, bar));
        for cell in cells.iter_mut().take(to.max(from + 1)).skip(from) {
            *cell = paint_of(span.phase, paint);
        }
    }
    for mark in &lane.marks {
        let (sign, colour) = match mark.kind {
            MarkKind::Gate => ("│", Colour::Bold),
            MarkKind::Signal => ("!", Colour::Yellow),
            MarkKind::Done => ("✓", Colour::Green),
            MarkKind::BySignal => ("▪", Colour::Green),
            MarkKind::Failure => ("✗", Colour::Red),
            MarkKind::Hook => ("◆", Colour::Bold),
            MarkKind::Budget => continue,
        };
        if let Some(cell) = cells.get_mut(column_of(timeline, mark.at_ms, bar)) {
            *cell = paint.text(colour, sign);
        }
    }
    cells.concat().trim_end().to_owned()
}

fn column_of(timeline: &Timeline, at_ms: u64, bar: usize) -> usize {
    let columns = u64::try_from(bar).unwrap_or_default().saturating_sub(1);
    let column = at_ms.saturating_sub(timeline.begin_ms) * columns / timeline.length_ms();
    usize::try_from(column).unwrap_or_default()
}

fn paint_of(phase: Phase, paint: Paint) -> String {
    let (sign, colour) = match phase {
        Phase::Created => ("·", Colour::Dim),
        Phase::Held => ("┄", Colour::Yellow),
        Phase::Starting => ("░", Colour::Green),
        Phase::Running => ("▒", Colour::Yellow),
        Phase::Ready => ("█", Colour::Green),
        Phase::Stopping => ("▓", Colour::Yellow),
        Phase::BackingOff => ("~", Colour::Red),
        Phase::Paused => ("=", Colour::Dim),
    };
    paint.text(colour, sign)
}

fn events(timeline: &Timeline, paint: Paint) -> String {
    let mut table = Table::new(&["AFTER", "CONTAINER", "WHAT HAPPENED"]);
    for row in &timeline.rows {
        let after = duration(row.at_ms.saturating_sub(timeline.begin_ms));
        table.row(vec![(after, Some(Colour::Dim)), (row.who.clone(), None), (row.sentence.clone(), None)]);
    }
    // No width: the sentences must not be cut.
    table.show(paint, None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::tests::life;

    #[test]
    fn bars_are_as_long_as_what_they_show() {
        let text = show(&life(), 47, Paint::Plain);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "Pod prod/web 6.9s from 1970-01-01 00:16:40.100 UTC on");
        assert_eq!(lines[2], "       0s                          5s");
        assert_eq!(lines[3], "proxy   ░▒▒✗~~░▒▒│██████████████████████!▓▓▓▓▓▪");
        assert_eq!(lines[4], "app    ┄┄┄┄┄┄┄┄┄┄░████████████████!▓▓▓▓▓✓");
        let events: Vec<&str> = lines[10..].to_vec();
        assert_eq!(events[1], "100ms  app        held, waiting for sidecar \"proxy\"");
        assert_eq!(events[12], "4.9s   (pod)      the stop begins (requested), within 10s");
    }
}
