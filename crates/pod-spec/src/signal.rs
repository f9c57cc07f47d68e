//! Signal names: how `stop-signal.<c>` is read and how a signal is shown. Numbers are those of Linux on x86 and Arm.
//! Owns the table of names; `pod-lifecycle` decides what a signal means to a container.

use std::fmt;

use crate::excerpt::excerpt;
use crate::nearest::{Hint, hint_for_name};
use crate::plan::Signal;

/// The C library's SIGRTMIN: the kernel's is 32, and glibc keeps two for itself.
const RTMIN: u8 = 34;
/// The last realtime signal.
const RTMAX: u8 = 64;

/// Names without `SIG`. If a number has several names, the first is the one shown.
const NAMES: [(&str, u8); 35] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("IOT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("POLL", 29),
    ("PWR", 30),
    ("SYS", 31),
    ("UNUSED", 31),
];

/// Why a text is no signal, or no signal that can stop a container.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignalError {
    /// No such name.
    #[error("unknown signal {signal:?}{hint}")]
    Unknown {
        /// The text.
        signal: String,
        /// The nearest name.
        hint: Hint,
    },
    /// A number or a realtime signal that Linux does not have.
    #[error("there is no signal {signal:?} (signals are 1 to 64, RTMIN to RTMIN+30)")]
    OutOfRange {
        /// The text.
        signal: String,
    },
    /// A signal that no program can handle: it would not stop the program but kill or freeze it.
    #[error("no program can handle {signal}, so it cannot be a stop signal: write another, such as SIGTERM")]
    NoStopSignal {
        /// The signal.
        signal: Signal,
    },
}

impl Signal {
    /// Reads a signal name in any case, with or without `SIG`, also `RTMIN+n` and `RTMAX-n`, or a number
    /// from 1 to 64.
    ///
    /// # Errors
    /// An unknown name, with the nearest one, or a number out of range.
    pub fn parse(text: &str) -> Result<Self, SignalError> {
        let out_of_range = || SignalError::OutOfRange { signal: excerpt(text) };
        if is_decimal(text) {
            return text.parse().ok().and_then(Self::new).ok_or_else(out_of_range);
        }
        let upper = text.to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        if let Some((_, number)) = NAMES.iter().find(|(valid, _)| *valid == name) {
            return Self::new(u32::from(*number)).ok_or_else(out_of_range);
        }
        let realtime = if let Some(rest) = name.strip_prefix("RTMIN") {
            offset(rest, '+').map(|n| n.checked_add(u32::from(RTMIN)))
        } else if let Some(rest) = name.strip_prefix("RTMAX") {
            offset(rest, '-').map(|n| u32::from(RTMAX).checked_sub(n))
        } else {
            None
        };
        match realtime {
            Some(number) => number
                .filter(|number| (u32::from(RTMIN)..=u32::from(RTMAX)).contains(number))
                .and_then(Self::new)
                .ok_or_else(out_of_range),
            None => Err(SignalError::Unknown {
                signal: excerpt(text),
                hint: hint_for_name(name, NAMES.iter().map(|(valid, _)| *valid).chain(["RTMIN", "RTMAX"])),
            }),
        }
    }

    /// Reads a signal that a program can take as a request to stop (`stop-signal.<c>`, K7).
    pub(crate) fn parse_stop_signal(text: &str) -> Result<Self, SignalError> {
        let signal = Self::parse(text)?;
        if signal == Self::KILL || signal == Self::STOP {
            return Err(SignalError::NoStopSignal { signal });
        }
        Ok(signal)
    }
}

fn is_decimal(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Reads what follows `RTMIN` or `RTMAX`: nothing, or the sign and a number. `None` for anything else.
fn offset(rest: &str, sign: char) -> Option<u32> {
    if rest.is_empty() {
        return Some(0);
    }
    let digits = rest.strip_prefix(sign).filter(|digits| is_decimal(digits))?;
    // A number beyond 32 bits is out of range too.
    Some(digits.parse().unwrap_or(u32::MAX))
}

impl fmt::Display for Signal {
    /// The name as `kill -l` shows it (`SIGTERM`, `SIGRTMIN+3`); the number if there is no name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.number();
        if let Some((name, _)) = NAMES.iter().find(|(_, named)| *named == number) {
            return write!(f, "SIG{name}");
        }
        match number.checked_sub(RTMIN) {
            Some(0) => f.write_str("SIGRTMIN"),
            Some(n) => write!(f, "SIGRTMIN+{n}"),
            None => write!(f, "{number}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_numbers_and_realtime_signals_are_read() {
        for (text, number) in [
            ("TERM", 15),
            ("SIGTERM", 15),
            ("sigterm", 15),
            ("15", 15),
            ("USR1", 10),
            ("IOT", 6),
            ("RTMIN", 34),
            ("RTMIN+3", 37),
            ("SIGRTMIN+30", 64),
            ("RTMAX", 64),
            ("SIGRTMAX-1", 63),
            ("32", 32),
            ("64", 64),
        ] {
            assert_eq!(Signal::parse(text).map(Signal::number), Ok(number), "{text}");
        }
    }

    #[test]
    fn every_signal_is_shown_as_it_is_read() {
        for number in 1..=64 {
            let signal = Signal::new(number).expect("in range");
            assert_eq!(Signal::parse(&signal.to_string()), Ok(signal));
        }
    }

    #[test]
    fn every_wrong_signal_says_why() {
        for (text, message) in [
            ("TREM", r#"unknown signal "TREM" (did you mean "TERM"?)"#),
            ("SIGTEM", r#"unknown signal "SIGTEM" (did you mean "TERM"?)"#),
            ("banana", r#"unknown signal "banana""#),
            ("", r#"unknown signal """#),
            ("-9", r#"unknown signal "-9""#),
            ("RTMIN+x", r#"unknown signal "RTMIN+x" (did you mean "RTMIN"?)"#),
            ("RTMIN-1", r#"unknown signal "RTMIN-1" (did you mean "RTMIN"?)"#),
            ("RTMIN+31", r#"there is no signal "RTMIN+31" (signals are 1 to 64, RTMIN to RTMIN+30)"#),
            ("RTMAX-31", r#"there is no signal "RTMAX-31" (signals are 1 to 64, RTMIN to RTMIN+30)"#),
            ("0", r#"there is no signal "0" (signals are 1 to 64, RTMIN to RTMIN+30)"#),
            ("65", r#"there is no signal "65" (signals are 1 to 64, RTMIN to RTMIN+30)"#),
            ("99999999999", r#"there is no signal "99999999999" (signals are 1 to 64, RTMIN to RTMIN+30)"#),
        ] {
            assert_eq!(Signal::parse(text).map_err(|e| e.to_string()), Err(message.to_owned()), "{text}");
        }
    }
}
