//! The value of `restart.<c>`: a mode and its backoff (R4, R6). Owns its grammar. The plan has no place for
//! it yet, so a valid value is only checked.

use std::time::Duration;

use crate::duration::DurationText;
use crate::error::{Problem, excerpt};
use crate::nearest::choose;

use super::options;

/// Who restarts a container, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RestartMode {
    Never,
    OnFailure,
    Always,
    /// The exit is shown: the caller restarts it.
    Visible,
}

const MODES: [(&str, RestartMode); 4] = [
    ("never", RestartMode::Never),
    ("on-failure", RestartMode::OnFailure),
    ("always", RestartMode::Always),
    ("visible", RestartMode::Visible),
];

/// Options of the backoff (R4).
#[derive(Clone, Copy, PartialEq)]
enum BackoffOption {
    First,
    Base,
    Max,
    Limit,
}

const BACKOFF_OPTIONS: [(&str, BackoffOption); 4] = [
    ("first", BackoffOption::First),
    ("base", BackoffOption::Base),
    ("max", BackoffOption::Max),
    ("limit", BackoffOption::Limit),
];

/// Reads the mode and checks the options.
pub(super) fn parse(value: &str) -> Result<RestartMode, Problem> {
    let (word, rest) = match value.split_once(';') {
        Some((word, rest)) => (word.trim(), Some(rest)),
        None => (value, None),
    };
    let mode = choose(word, &MODES).map_err(|hint| Problem::UnknownValue { value: excerpt(word), hint })?;
    let (mut base, mut max) = (Duration::from_secs(1), Duration::from_secs(60));
    for given in rest.map(|rest| options::split(rest, &BACKOFF_OPTIONS)).transpose()?.unwrap_or_default() {
        match given.option {
            BackoffOption::First => {
                given.duration(Duration::ZERO)?;
            }
            BackoffOption::Base => base = given.duration(Duration::ZERO)?,
            BackoffOption::Max => max = given.duration(Duration::ZERO)?,
            BackoffOption::Limit => {
                given.count(0)?;
            }
        }
    }
    if max < base {
        return Err(Problem::BackoffMaxBelowBase {
            max: DurationText(max).to_string(),
            base: DurationText(base).to_string(),
        });
    }
    Ok(mode)
}
