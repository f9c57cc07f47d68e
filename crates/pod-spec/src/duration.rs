//! Durations as Kubernetes and Go write them: `1h30m`, `1.5s`, `500ms`. Owns reading and writing; every
//! duration of the vocabulary comes through here and is bounded here.

use std::fmt;
use std::time::Duration;

use crate::excerpt::excerpt;
use crate::limits::MAX_DURATION;
use crate::nearest::{Hint, choose};

/// Units and their length in nanoseconds, largest first. Both micro signs of Unicode are in use.
const UNITS: [(&str, u128); 8] = [
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("\u{b5}s", 1_000),
    ("\u{3bc}s", 1_000),
];

/// Why a text is no duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// A number alone: podshim would have to guess between seconds and milliseconds.
    #[error("{value:?} has no unit (write \"{value}s\" for seconds)")]
    NoUnit {
        /// The text.
        value: String,
    },
    /// A unit that Go does not have.
    #[error("unknown unit {unit:?} in {value:?}{hint}")]
    UnknownUnit {
        /// The text.
        value: String,
        /// The unit in it.
        unit: String,
        /// The valid units.
        hint: Hint,
    },
    /// A negative duration.
    #[error("{value:?} is negative")]
    Negative {
        /// The text.
        value: String,
    },
    /// More than [`MAX_DURATION`], or too large to compute.
    #[error("{value:?} is longer than a year (8760h)")]
    TooLong {
        /// The text.
        value: String,
    },
    /// A text that is no duration at all.
    #[error("{value:?} is not a duration (such as 1h30m, 10s or 500ms)")]
    Malformed {
        /// The text.
        value: String,
    },
}

/// Reads a duration. Like Go, fractions of a nanosecond are dropped; unlike Go, a plain `0` needs a unit too.
///
/// # Errors
/// What is wrong with the text.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    let value = || excerpt(text);
    if let Some(rest) = text.strip_prefix('-') {
        // `-x` is no duration at all; the word "negative" would mislead its author.
        return Err(match parse(rest) {
            Err(DurationError::Malformed { .. } | DurationError::UnknownUnit { .. }) => {
                DurationError::Malformed { value: value() }
            }
            _ => DurationError::Negative { value: value() },
        });
    }
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    if rest.is_empty() {
        return Err(DurationError::Malformed { value: value() });
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at(number_end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        rest = after;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(DurationError::Malformed { value: value() });
        }
        if unit.is_empty() {
            return Err(DurationError::NoUnit { value: value() });
        }
        let nanoseconds = choose(unit, &UNITS).map_err(|_| DurationError::UnknownUnit {
            value: value(),
            unit: excerpt(unit),
            hint: Hint::OneOf(UNITS.iter().map(|(unit, _)| *unit).filter(|unit| unit.is_ascii()).collect()),
        })?;
        total = decimal(whole)
            .and_then(|whole| whole.checked_mul(nanoseconds))
            .and_then(|whole| whole.checked_add(fraction_of(fraction, nanoseconds)))
            .and_then(|sum| sum.checked_add(total))
            .filter(|sum| *sum <= MAX_DURATION.as_nanos())
            .ok_or_else(|| DurationError::TooLong { value: value() })?;
    }
    // A year in nanoseconds fits 64 bits.
    u64::try_from(total).map(Duration::from_nanos).map_err(|_| DurationError::TooLong { value: value() })
}

/// Digits as a number; no digits count as 0 (`.5s`). `None` beyond 128 bits.
fn decimal(digits: &str) -> Option<u128> {
    if digits.is_empty() { Some(0) } else { digits.parse().ok() }
}

/// That decimal fraction of a unit, without floating point: `5` of a second is half a second.
fn fraction_of(digits: &str, unit: u128) -> u128 {
    let mut part = unit;
    let mut total = 0;
    let mut scale = 1;
    // An hour has 13 digits of nanoseconds; further digits are fractions of one.
    for digit in digits.bytes().take(13) {
        scale *= 10;
        total = total * 10 + u128::from(digit - b'0');
        part = unit * total / scale;
    }
    if digits.is_empty() { 0 } else { part }
}

/// A duration from outside: [`MAX_DURATION`] at most, whatever the number, so that no sum of a few overflows.
///
/// Every duration that comes from outside (an annotation, a kubelet's annotation, a command's option, the control API,
/// systemd) goes through it. [`parse`] refuses a longer one, because its author can mend it; every other one
/// is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundedDuration(Duration);

impl BoundedDuration {
    /// The longest one.
    pub const MAX: Self = Self(MAX_DURATION);

    /// Cuts a duration to the longest one.
    pub fn new(duration: Duration) -> Self {
        Self(duration.min(MAX_DURATION))
    }

    /// From whole seconds: a kubelet's figure, or a bare number in a command.
    pub fn of_seconds(seconds: u64) -> Self {
        Self::new(Duration::from_secs(seconds))
    }

    /// From whole milliseconds, as in the control API.
    pub fn of_milliseconds(milliseconds: u64) -> Self {
        Self::new(Duration::from_millis(milliseconds))
    }

    /// A kubelet's annotation: digits alone, any number of them. `None` for another text.
    pub fn of_seconds_text(text: &str) -> Option<Self> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| Self::of_seconds(text.parse().unwrap_or(u64::MAX)))
    }

    /// The duration, which is safe to add up.
    pub fn get(self) -> Duration {
        self.0
    }
}

/// Writes a duration the way the annotations read it: `1h30m`, `1m30s`, `1.5s`, `500ms`, `0s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationText(pub Duration);

impl fmt::Display for DurationText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, nanoseconds) = (self.0.as_secs(), self.0.subsec_nanos());
        if seconds == 0 {
            return match nanoseconds {
                0 => f.write_str("0s"),
                n if n % 1_000_000 == 0 => write!(f, "{}ms", n / 1_000_000),
                n if n % 1_000 == 0 => write!(f, "{}us", n / 1_000),
                n => write!(f, "{n}ns"),
            };
        }
        let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        if hours > 0 {
            write!(f, "{hours}h")?;
        }
        if minutes > 0 {
            write!(f, "{minutes}m")?;
        }
        match (seconds, nanoseconds) {
            (0, 0) => Ok(()),
            (_, 0) => write!(f, "{seconds}s"),
            _ => write!(f, "{seconds}.{}s", format!("{nanoseconds:09}").trim_end_matches('0')),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_syntax_is_read() {
        for (text, nanoseconds) in [
            ("0s", 0),
            ("+1s", 1_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("30m1h", 5_400_000_000_000),
            ("500ms", 500_000_000),
            ("1.5s", 1_500_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("0.000001ms", 1),
            ("0.0000009us", 0),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("3us", 3_000),
            ("3\u{b5}s", 3_000),
            ("3\u{3bc}s", 3_000),
            ("7ns", 7),
            ("8760h", 31_536_000_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanoseconds)), "{text}");
        }
    }

    #[test]
    fn every_wrong_duration_says_why() {
        for (text, message) in [
            ("", r#""" is not a duration (such as 1h30m, 10s or 500ms)"#),
            ("0", r#""0" has no unit (write "0s" for seconds)"#),
            ("10", r#""10" has no unit (write "10s" for seconds)"#),
            ("1m30", r#""1m30" has no unit (write "1m30s" for seconds)"#),
            ("-5s", r#""-5s" is negative"#),
            ("-5", r#""-5" is negative"#),
            ("-9999999h", r#""-9999999h" is negative"#),
            ("-x", r#""-x" is not a duration (such as 1h30m, 10s or 500ms)"#),
            ("soon", r#""soon" is not a duration (such as 1h30m, 10s or 500ms)"#),
            (".s", r#"".s" is not a duration (such as 1h30m, 10s or 500ms)"#),
            ("1..5s", r#""1..5s" is not a duration (such as 1h30m, 10s or 500ms)"#),
            ("1 s", r#"unknown unit " s" in "1 s" (one of: h, m, s, ms, us, ns)"#),
            ("5d", r#"unknown unit "d" in "5d" (one of: h, m, s, ms, us, ns)"#),
            ("5S", r#"unknown unit "S" in "5S" (one of: h, m, s, ms, us, ns)"#),
            ("8760h1ns", r#""8760h1ns" is longer than a year (8760h)"#),
            (
                "999999999999999999999999999999999999999999h",
                r#""999999999999999999999999999999999999999999h" is longer than a year (8760h)"#,
            ),
        ] {
            assert_eq!(parse(text).map_err(|e| e.to_string()), Err(message.to_owned()), "{text}");
        }
    }

    /// The largest number that each source can carry.
    #[test]
    fn what_is_too_long_is_cut() {
        for cut in [
            BoundedDuration::of_seconds(u64::MAX),
            BoundedDuration::of_milliseconds(u64::MAX),
            BoundedDuration::new(Duration::MAX),
        ] {
            assert_eq!(cut, BoundedDuration::MAX);
        }
        for (text, expected) in [
            ("9223372036854775807", Some(MAX_DURATION)),
            ("99999999999999999999999999", Some(MAX_DURATION)),
            ("45", Some(Duration::from_secs(45))),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1s", None),
        ] {
            assert_eq!(BoundedDuration::of_seconds_text(text).map(BoundedDuration::get), expected, "{text}");
        }
        assert_eq!(BoundedDuration::of_milliseconds(1500).get(), Duration::from_millis(1500));
    }

    #[test]
    fn durations_are_written_as_people_write_them() {
        for text in ["0s", "5ns", "7us", "500ms", "1s", "1.5s", "1m30s", "2m", "1h", "1h30m", "1h0.5s"] {
            let duration = parse(text).expect("a duration");
            assert_eq!(DurationText(duration).to_string(), text);
        }
    }
}
