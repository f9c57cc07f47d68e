//! `;option=value` after a gate or a restart mode. Owns splitting and two kinds of values, durations and counts;
//! the caller's table has the options.

use std::time::Duration;

use crate::duration::{self, DurationText};
use crate::error::OptionError;
use crate::excerpt::excerpt;
use crate::nearest::choose;

/// One option of a known kind.
pub(super) struct Given<'a, T> {
    /// Which option it is.
    pub(super) option: T,
    word: &'static str,
    value: &'a str,
}

/// Splits what follows the first `;`. Options may stand in any order, each once.
pub(super) fn split<'a, T: Copy + PartialEq>(
    text: &'a str,
    words: &[(&'static str, T)],
) -> Result<Vec<Given<'a, T>>, OptionError> {
    let mut given: Vec<Given<'a, T>> = Vec::new();
    for part in text.split(';') {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        let (name, value) = (name.trim(), value.trim());
        let option =
            choose(name, words).map_err(|hint| OptionError::Unknown { option: excerpt(name), hint })?;
        if value.is_empty() {
            return Err(OptionError::NoValue { option: excerpt(name) });
        }
        let Some((word, _)) = words.iter().find(|(word, _)| *word == name) else { continue };
        if given.iter().any(|earlier| earlier.option == option) {
            return Err(OptionError::Twice { option: word });
        }
        given.push(Given { option, word, value });
    }
    Ok(given)
}

impl<T> Given<'_, T> {
    /// The option as it is written.
    pub(super) fn word(&self) -> &'static str {
        self.word
    }

    /// The value as it is written.
    pub(super) fn value(&self) -> &str {
        self.value
    }

    /// The value as a duration of at least `least`.
    pub(super) fn duration(&self, least: Duration) -> Result<Duration, OptionError> {
        let duration = duration::parse(self.value)
            .map_err(|source| OptionError::Duration { option: self.word, source })?;
        if duration < least {
            return Err(OptionError::TooShort {
                option: self.word,
                value: excerpt(self.value),
                least: DurationText(least).to_string(),
            });
        }
        Ok(duration)
    }

    /// The value as a count of at least `least`.
    pub(super) fn count(&self, least: u32) -> Result<u32, OptionError> {
        // Rust's own parser accepts a sign, the grammar does not.
        let digits = self.value.bytes().all(|byte| byte.is_ascii_digit());
        match self.value.parse() {
            Ok(count) if digits && count >= least => Ok(count),
            _ => Err(OptionError::Count { option: self.word, value: excerpt(self.value), least }),
        }
    }
}
