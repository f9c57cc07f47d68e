//! What can be wrong with the options after a gate or a restart mode. Owns the wording; `parse` finds them.

use crate::duration::DurationError;
use crate::nearest::Hint;

/// What can be wrong with one `;option=value`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    /// No such option.
    #[error("unknown option {option:?}{hint}")]
    Unknown {
        /// The option.
        option: String,
        /// The valid ones.
        hint: Hint,
    },
    /// An option without `=value`.
    #[error("option {option:?} has no value: write option=value")]
    NoValue {
        /// The option.
        option: String,
    },
    /// An option given twice.
    #[error("option {option:?} is given twice")]
    Twice {
        /// The option.
        option: &'static str,
    },
    /// An invalid duration.
    #[error("{option}: {source}")]
    Duration {
        /// The option.
        option: &'static str,
        /// What is wrong.
        source: DurationError,
    },
    /// A duration shorter than the option allows.
    #[error("{option}: {value} is too short, at least {least}")]
    TooShort {
        /// The option.
        option: &'static str,
        /// What was written.
        value: String,
        /// The shortest allowed.
        least: String,
    },
    /// An invalid count.
    #[error("{option}: {value:?} is not a number of at least {least}")]
    Count {
        /// The option.
        option: &'static str,
        /// What was written.
        value: String,
        /// The smallest allowed.
        least: u32,
    },
}
