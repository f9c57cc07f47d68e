//! The value of `fatal.<c>`: a word, and the limit of `restart` (R9, R14). Owns its grammar.

use crate::error::Problem;
use crate::excerpt::excerpt;
use crate::keys::{FATALS, word_of};
use crate::nearest::choose;
use crate::plan::Fatal;

use super::options;

/// Reads the word and its option.
pub(super) fn parse(value: &str) -> Result<Fatal, Problem> {
    let (word, rest) = match value.split_once(';') {
        Some((word, rest)) => (word.trim(), Some(rest)),
        None => (value, None),
    };
    let fatal = choose(word, &FATALS).map_err(|hint| Problem::UnknownValue { value: excerpt(word), hint })?;
    let (Fatal::Restart { mut limit }, Some(rest)) = (fatal, rest) else {
        return match rest {
            None => Ok(fatal),
            Some(_) => Err(Problem::OptionOfOtherFatal { word: word_of(&FATALS, &fatal) }),
        };
    };
    // The only option.
    for given in options::split(rest, &[("limit", ())])? {
        // Without one restart the word is `failure`.
        limit = given.count(1)?;
    }
    Ok(Fatal::Restart { limit })
}
