//! A text of a state that is the same for all states that behave the same.
//!
//! Owns what does not matter: absolute time, the numbers of operations and processes, counters, when a hold writes its
//! next line. Works on the debug form, so that the core needs no code for it.

use std::fmt::Write as _;
use std::time::Duration;

use pod_lifecycle::PodTime;

/// No timer of a small pod looks further back than this.
const PAST: i128 = -15_000;

/// Texts of one state.
pub(crate) struct Canonical<'a> {
    now: PodTime,
    operations: Vec<&'a str>,
    pids: Vec<&'a str>,
}

impl<'a> Canonical<'a> {
    pub(crate) fn at(now: PodTime) -> Self {
        Self { now, operations: Vec::new(), pids: Vec::new() }
    }

    /// Rewrites a debug form: times relative to now, operations and pids numbered in the order in which they appear, in this
    /// text and those before.
    pub(crate) fn text(&mut self, debug: &'a str) -> String {
        let mut text = String::with_capacity(debug.len());
        let holds_end = debug.contains(HOLDS_END);
        let mut from = 0;
        while let Some((at, mark)) = next_mark(debug, from) {
            let (before, after) = (&debug[from..at], &debug[at + mark.len()..]);
            text.push_str(before);
            if mark == LINE {
                // U13: log lines change nothing of what a pod does.
                from = after.find(AFTER_LINE).map_or(debug.len(), |end| at + mark.len() + end);
                continue;
            }
            let end = after
                .find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | 'µ')))
                .unwrap_or(after.len());
            let value = &after[..end];
            text.push_str(mark);
            match mark {
                "PodTime(" => {
                    let at = parse(value).map_or(0, |time| time.as_millis() as i128);
                    let relative = at - self.now.since_epoch().as_millis() as i128;
                    let matters = !(before.ends_with(RUNNING) || (before.ends_with(HELD) && !holds_end));
                    // invariant: writing to a string does not fail.
                    let past = if UNTIL.iter().any(|field| before.ends_with(field)) { OVER } else { PAST };
                    let _ = if matters { write!(text, "{}", relative.max(past)) } else { Ok(()) };
                }
                "OpId(" => number(&mut text, &mut self.operations, value),
                "pid: " if value != "0" => number(&mut text, &mut self.pids, value),
                "pid: " => text.push('0'),
                _ => {}
            }
            from = at + mark.len() + end;
        }
        text.push_str(&debug[from..]);
        text
    }
}

/// What the core compares with the present alone: how long these moments are over does not matter.
const UNTIL: [&str; 6] = [
    "another_until: Some(",
    "create_quiet_until: ",
    "evident_until: ",
    "others_until: ",
    "replace_by: ",
    "resumes_at: ",
];
const OVER: i128 = -1;
/// How long a program has run matters only after ten minutes (R4).
const RUNNING: &str = "Running { since: ";
/// How long a hold has lasted matters only if it has an end (U6).
const HELD: &str = "Hold { since: ";
const HOLDS_END: &str = "gate_timeout: Some";
/// A hold's next line, and how many it has written.
const LINE: &str = "line_due: ";
/// The end of a hold's debug form.
const AFTER_LINE: &str = " }";

/// What has a value that does not matter as it is.
const MARKS: [&str; 6] = ["PodTime(", "OpId(", "pid: ", "next_op: ", "changes: ", LINE];

/// The first mark at `from` or after it. A walk writes a million states of some kB each, so one pass over the text finds all
/// marks: by a byte that few others have beside their last letter.
fn next_mark(text: &str, from: usize) -> Option<(usize, &'static str)> {
    let bytes = text.as_bytes();
    let mut pairs = bytes.get(from..)?.windows(2).enumerate();
    pairs.find_map(|(index, pair)| {
        let end = match pair {
            b"e(" | b"d(" => from + index + 2,
            b"d:" | b"p:" | b"s:" | b"e:" => from + index + 3,
            _ => return None,
        };
        let before = bytes.get(from..end)?;
        let mark = MARKS.into_iter().find(|mark| before.ends_with(mark.as_bytes()))?;
        Some((end - mark.len(), mark))
    })
}

fn number<'a>(text: &mut String, known: &mut Vec<&'a str>, value: &'a str) {
    let index = known.iter().position(|other| *other == value).unwrap_or_else(|| {
        known.push(value);
        known.len() - 1
    });
    let _ = write!(text, "#{index}");
}

/// Reads the debug form of a duration.
fn parse(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_alphabetic())?);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "s" => number,
        "ms" => number / 1e3,
        "µs" => number / 1e6,
        "ns" => number / 1e9,
        _ => return None,
    };
    Some(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States that differ only in absolute time and numbering are one state.
    #[test]
    fn same_behaviour_same_text() {
        let at = |seconds| PodTime::after_epoch(Duration::from_secs(seconds));
        let early = "A { until: PodTime(1.5s), op: OpId(3), other: OpId(4), pid: 77, next_op: 4 }";
        let late = "A { until: PodTime(11.5s), op: OpId(9), other: OpId(12), pid: 99, next_op: 12 }";
        let canonical = |text, now| Canonical::at(now).text(text);
        assert_eq!(canonical(early, at(1)), canonical(late, at(11)));
        assert_ne!(canonical(early, at(1)), canonical(late, at(10)));
    }

    /// States that differ only in how long something is over are one state, those that differ in how long it lasts are not.
    #[test]
    fn what_is_over_is_over() {
        let at = |seconds| PodTime::after_epoch(Duration::from_secs(seconds));
        fn canonical(debug: &str, now: PodTime) -> String {
            Canonical::at(now).text(debug)
        }
        for field in UNTIL {
            let debug = format!("{field}PodTime(5s)");
            let canonical = |now| canonical(&debug, at(now));
            assert_eq!(canonical(6), canonical(7), "{field}");
            assert_ne!(canonical(3), canonical(4), "{field}");
            // The core asks `<` of some and `<=` of others.
            assert_ne!(canonical(5), canonical(6), "{field}");
        }
        assert_ne!(canonical("term_at: PodTime(1s)", at(6)), canonical("term_at: PodTime(1s)", at(7)));
    }

    /// States that differ only in the lines that a hold has written are one state too.
    #[test]
    fn lines_are_no_behaviour() {
        let now = PodTime::ZERO;
        let first = "Hold { since: PodTime(0ns), line_due: Some(PodTime(60s)), repeats: 0 }, pid: 4";
        let last = "Hold { since: PodTime(0ns), line_due: None, repeats: 3 }, pid: 5";
        let canonical = |text: &str| Canonical::at(now).text(text);
        assert_eq!(canonical(first), canonical(last));
        assert_ne!(canonical(first), canonical(&last.replace("pid", "kind")));
    }
}
