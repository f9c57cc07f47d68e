//! The value of `restart.<c>`: a mode, its exit codes and its backoff (R4, R13, R15). Owns its grammar; `pod-lifecycle`
//! owns what a mode means for a role.

use std::time::Duration;

use crate::code_set::CodeSet;
use crate::duration::DurationText;
use crate::error::Problem;
use crate::excerpt::excerpt;
use crate::keys::{RESTART_MODES, word_of};
use crate::limits::MIN_BACKOFF;
use crate::nearest::choose;
use crate::plan::{Backoff, Restart, RestartMode};

use super::codes::{self, ListedCodes};
use super::options;

/// Options of the backoff (R4) and of the mode (R13).
#[derive(Clone, Copy, PartialEq)]
enum RestartOption {
    Codes(ListedCodes),
    First,
    Base,
    Max,
    Limit,
}

const RESTART_OPTIONS: [(&str, RestartOption); 6] = [
    ("codes", RestartOption::Codes(ListedCodes::Restarted)),
    ("not", RestartOption::Codes(ListedCodes::NotRestarted)),
    ("first", RestartOption::First),
    ("base", RestartOption::Base),
    ("max", RestartOption::Max),
    ("limit", RestartOption::Limit),
];

/// Reads the mode and its options.
pub(super) fn parse(value: &str) -> Result<Restart, Problem> {
    let (word, rest) = match value.split_once(';') {
        Some((word, rest)) => (word.trim(), Some(rest)),
        None => (value, None),
    };
    let mode =
        choose(word, &RESTART_MODES).map_err(|hint| Problem::UnknownValue { value: excerpt(word), hint })?;
    let mut restart = Restart { mode, codes: CodeSet::FAILURES, backoff: Backoff::default(), limit: None };
    let backoff = &mut restart.backoff;
    let given = rest.map(|rest| options::split(rest, &RESTART_OPTIONS)).transpose()?.unwrap_or_default();
    if given.iter().filter(|given| matches!(given.option, RestartOption::Codes(_))).count() > 1 {
        return Err(Problem::CodesAndNot);
    }
    for given in given {
        match given.option {
            RestartOption::Codes(_) if mode != RestartMode::OnFailure => {
                let mode = word_of(&RESTART_MODES, &mode);
                return Err(Problem::CodesOfOtherMode { option: given.word(), mode });
            }
            RestartOption::Codes(listed) => {
                restart.codes = codes::parse(listed, given.value())
                    .map_err(|source| Problem::Codes { option: given.word(), source })?;
            }
            RestartOption::First => backoff.first = given.duration(Duration::ZERO)?,
            // Without a delay a program that cannot start would keep a core busy for ever.
            RestartOption::Base => backoff.base = given.duration(MIN_BACKOFF)?,
            RestartOption::Max => backoff.max = given.duration(Duration::ZERO)?,
            RestartOption::Limit => restart.limit = Some(given.count(0)?),
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
