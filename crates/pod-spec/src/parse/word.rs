//! Values that are one of a few words, whose tables `keys` has.

use crate::error::Problem;
use crate::excerpt::excerpt;
use crate::nearest::choose;

/// Reads one of a few words.
pub(super) fn word<T: Copy>(value: &str, words: &[(&'static str, T)]) -> Result<T, Problem> {
    choose(value, words).map_err(|hint| Problem::UnknownValue { value: excerpt(value), hint })
}
