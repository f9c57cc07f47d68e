//! A text of a state that is the same for all states that behave the same.
//!
//! Owns what does not matter: absolute time, the numbers of operations and processes, counters, when a hold writes its
//! next line. Works on the debug form, so that the core needs no code for it.

use std::fmt::{self, Write};
use std::time::Duration;

use pod_lifecycle::PodTime;

const TIME: &str = "PodTime(";
/// More bytes than most states have.
const LONG_TEXT: usize = 16 * 1024;
/// No timer of a small pod looks further back than this.
const PAST: i128 = -15_000;

/// A text of one state, canonical while it is written: a walk writes a million states of some kB each, so no pass over what is written
/// follows.
pub(crate) struct Canonical {
    now: PodTime,
    text: String,
    /// What the text ends with, if a value is to follow.
    mark: Option<&'static str>,
    value: String,
    operations: Vec<String>,
    pids: Vec<String>,
    holds_end: bool,
}

impl Canonical {
    pub(crate) fn at(now: PodTime) -> Self {
        Self {
            now,
            text: String::with_capacity(LONG_TEXT),
            mark: None,
            value: String::new(),
            operations: Vec::new(),
            pids: Vec::new(),
            holds_end: false,
        }
    }

    /// What has been written: times relative to now, operations and pids numbered in the order in which they appear.
    pub(crate) fn text(&mut self) -> &str {
        self.end_value();
        &self.text
    }

    /// Writes the value of the last mark.
    fn end_value(&mut self) {
        let value = std::mem::take(&mut self.value);
        match self.mark.take() {
            Some(TIME) => self.write_time(&value),
            Some("OpId(") => number(&mut self.text, &mut self.operations, &value),
            Some("pid: ") if value != "0" => number(&mut self.text, &mut self.pids, &value),
            Some("pid: ") => self.text.push('0'),
            _ => {}
        }
        // Its memory serves the next one.
        self.value = value;
        self.value.clear();
    }

    fn write_time(&mut self, value: &str) {
        let before = self.text.strip_suffix(TIME).unwrap_or(&self.text);
        let is_unread = before.ends_with(RUNNING) || before.ends_with(ASKED);
        let is_creation = before.ends_with(CREATED) && !before.contains(NEVER);
        if is_unread || is_creation || (before.ends_with(HELD) && !self.holds_end) {
            return;
        }
        let past = if UNTIL.iter().any(|field| before.ends_with(field)) { OVER } else { PAST };
        let at = parse(value).map_or(0, |time| time.as_millis() as i128);
        let relative = at - self.now.since_epoch().as_millis() as i128;
        // invariant: writing to a string does not fail.
        let _ = write!(self.text, "{}", relative.max(past));
    }
}

/// Takes a debug form as derived code writes it: a name, what separates it from its value, and a value are pieces of their own.
impl Write for Canonical {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        match self.mark {
            // U13: log lines change nothing of what a pod does.
            Some(LINE) if piece != AFTER_LINE => return Ok(()),
            Some(_) if piece.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | 'µ')) => {
                self.value.push_str(piece);
                return Ok(());
            }
            Some(_) => self.end_value(),
            None => {}
        }
        self.text.push_str(piece);
        // Most pieces end otherwise.
        if let [.., b'('] | [.., b':', b' '] = piece.as_bytes() {
            self.mark = match self.text.as_bytes() {
                [.., b'e' | b'd', b'('] | [.., b'd' | b'p' | b's' | b'e', b':', b' '] => {
                    MARKS.into_iter().find(|mark| self.text.ends_with(mark))
                }
                _ => None,
            };
            self.holds_end |= self.text.ends_with(HOLDS_END);
        }
        Ok(())
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
/// When a caller asked for an end matters only if its kubelet has a figure (T19), and the pods of a walk have no kubelet.
const ASKED: &str = "asked_at: Some(";
/// When a caller last created a container matters only under Never (I8).
const CREATED: &str = "created_at: ";
const NEVER: &str = "restart_policy: Never";
/// How long a hold has lasted matters only if it has an end (U6).
const HELD: &str = "Hold { since: ";
const HOLDS_END: &str = "gate_timeout: Some(";
/// A hold's next line, and how many it has written.
const LINE: &str = "line_due: ";
/// The end of a hold's debug form.
const AFTER_LINE: &str = " }";

/// What has a value that does not matter as it is.
const MARKS: [&str; 6] = [TIME, "OpId(", "pid: ", "next_op: ", "changes: ", LINE];

fn number(text: &mut String, known: &mut Vec<String>, value: &str) {
    let index = known.iter().position(|other| other == value).unwrap_or_else(|| {
        known.push(value.to_owned());
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

    #[derive(Debug)]
    struct OpId(#[expect(dead_code, reason = "written")] u64);

    fn canonical(now: PodTime, debug: impl fmt::Debug) -> String {
        let mut canonical = Canonical::at(now);
        write!(canonical, "{debug:?}").unwrap();
        canonical.text().to_owned()
    }

    fn at(seconds: u64) -> PodTime {
        PodTime::after_epoch(Duration::from_secs(seconds))
    }

    /// States that differ only in absolute time and numbering are one state.
    #[test]
    fn same_behaviour_same_text() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "written")]
        struct State {
            until: PodTime,
            op: OpId,
            other: OpId,
            pid: u32,
            next_op: u64,
        }
        let state = |seconds: u64, op, other, pid| State {
            until: PodTime::after_epoch(Duration::from_millis(seconds * 1000 + 500)),
            op: OpId(op),
            other: OpId(other),
            pid,
            next_op: other + 1,
        };
        let text = canonical(at(1), state(1, 3, 4, 77));
        assert_eq!(text, "State { until: PodTime(500), op: OpId(#0), other: OpId(#1), pid: #0, next_op:  }");
        assert_eq!(text, canonical(at(11), state(11, 9, 12, 99)));
        assert_ne!(text, canonical(at(10), state(11, 9, 12, 99)));
        assert_ne!(text, canonical(at(1), state(1, 3, 3, 77)));
        assert_ne!(text, canonical(at(1), state(1, 3, 4, 0)));
    }

    /// States that differ only in how long something is over are one state, those that differ in how long it lasts are not.
    #[test]
    fn what_is_over_is_over() {
        fn canonical(field: &str, time: PodTime, now: PodTime) -> String {
            let mut canonical = Canonical::at(now);
            write!(canonical, "{field}{time:?}").unwrap();
            canonical.text().to_owned()
        }
        for field in UNTIL {
            let canonical = |now| canonical(field, at(5), at(now));
            assert_eq!(canonical(6), canonical(7), "{field}");
            assert_ne!(canonical(3), canonical(4), "{field}");
            // The core asks `<` of some and `<=` of others.
            assert_ne!(canonical(5), canonical(6), "{field}");
        }
        assert_ne!(canonical("term_at: ", at(1), at(6)), canonical("term_at: ", at(1), at(7)));
        assert_eq!(canonical(RUNNING, at(1), at(6)), canonical(RUNNING, at(1), at(7)));
        assert_eq!(canonical(ASKED, at(1), at(6)), canonical(ASKED, at(1), at(7)));
        assert_eq!(canonical(CREATED, at(1), at(6)), canonical(CREATED, at(1), at(7)));
        let never = format!("{NEVER}, {CREATED}");
        assert_ne!(canonical(&never, at(1), at(6)), canonical(&never, at(1), at(7)));
        assert_eq!(canonical(HELD, at(1), at(6)), canonical(HELD, at(1), at(7)));
        let with_an_end = |now| {
            let mut canonical = Canonical::at(now);
            write!(canonical, "{HOLDS_END}1s), {HELD}{:?}", at(1)).unwrap();
            canonical.text().to_owned()
        };
        assert_ne!(with_an_end(at(6)), with_an_end(at(7)));
    }

    /// States that differ only in the lines that a hold has written are one state too.
    #[test]
    fn lines_are_no_behaviour() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "written")]
        struct Hold {
            since: PodTime,
            line_due: Option<PodTime>,
            repeats: u32,
        }
        #[derive(Debug)]
        #[expect(dead_code, reason = "written")]
        struct Container {
            hold: Hold,
            pid: u32,
            code: u32,
        }
        let container = |line_due, repeats, code| Container {
            hold: Hold { since: PodTime::ZERO, line_due, repeats },
            pid: 4,
            code,
        };
        let first = canonical(PodTime::ZERO, container(Some(at(60)), 0, 1));
        assert_eq!(first, canonical(PodTime::ZERO, container(None, 3, 1)));
        assert_ne!(first, canonical(PodTime::ZERO, container(None, 3, 2)));
    }
}
