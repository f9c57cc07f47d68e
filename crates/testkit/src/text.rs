//! How times, signals and causes of stops are written in scenarios and traces. Owns nothing else.

use std::time::Duration;

use pod_lifecycle::StopCause;
use pod_spec::Signal;

/// Reads `0s`, `250ms`, `1.5s`, `2m`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic())?);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => number / 1000.0,
        "s" => number,
        "m" => number * 60.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(seconds).ok()
}

/// Writes the text that [`parse_duration`] reads.
pub(crate) fn show_duration(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

/// Writes why a stop began, as an operator sees it: without what becomes of the sandbox.
pub(crate) fn show_cause(cause: StopCause) -> String {
    match cause {
        StopCause::Sandbox(_) => "Sandbox".to_owned(),
        _ => format!("{cause:?}"),
    }
}

const NAMES: [(&str, u32); 12] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", 9),
    ("USR1", 10),
    ("USR2", 12),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", 19),
    ("WINCH", 28),
    ("PWR", 30),
    ("RTMIN+3", 37),
];

/// Reads a signal's name or number.
pub(crate) fn parse_signal(text: &str) -> Option<Signal> {
    let named = NAMES.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    Signal::new(named.or_else(|| text.parse().ok())?)
}

/// Writes a signal's name, or its number if it has no name here.
pub(crate) fn show_signal(signal: Signal) -> String {
    let number = u32::from(signal.number());
    let name = NAMES.iter().find(|(_, known)| *known == number).map(|(name, _)| (*name).to_owned());
    name.unwrap_or_else(|| number.to_string())
}

/// That many milliseconds.
pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
