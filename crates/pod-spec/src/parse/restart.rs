//! The value of `restart.<c>`: a mode and its backoff (R4, R6). Owns its grammar; `pod-lifecycle` owns what a mode
//! means for a role.

use std::time::Duration;

use crate::duration::DurationText;
use crate::error::Problem;
use crate::excerpt::excerpt;
use crate::keys::RESTART_MODES;
use crate::limits::MIN_BACKOFF;
use crate::nearest::choose;
use crate::plan::{Backoff, Restart};

use super::options;

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

/// Reads the mode and its options.
pub(super) fn parse(value: &str) -> Result<Restart, Problem> {
    let (word, rest) = match value.split_once(';') {
        Some((word, rest)) => (word.trim(), Some(rest)),
        None => (value, None),
    };
    let mode =
        choose(word, &RESTART_MODES).map_err(|hint| Problem::UnknownValue { value: excerpt(word), hint })?;
    let mut restart = Restart { mode, backoff: Backoff::default(), limit: None };
    let backoff = &mut restart.backoff;
    for given in rest.map(|rest| options::split(rest, &BACKOFF_OPTIONS)).transpose()?.unwrap_or_default() {
        match given.option {
            BackoffOption::First => backoff.first = given.duration(Duration::ZERO)?,
            // Without a delay a program that cannot start would keep a core busy for ever.
            BackoffOption::Base => backoff.base = given.duration(MIN_BACKOFF)?,
            BackoffOption::Max => backoff.max = given.duration(Duration::ZERO)?,
            BackoffOption::Limit => restart.limit = Some(given.count(0)?),
        }
    }
    if backoff.max < backoff.base {
        return Err(Problem::BackoffMaxBelowBase {
            max: DurationText(backoff.max).to_string(),
            base: DurationText(backoff.base).to_string(),
        });
    }
    Ok(restart)
}
