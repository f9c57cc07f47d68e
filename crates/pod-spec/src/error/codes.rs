//! What can be wrong with a list of exit codes. Owns the wording; `parse::codes` finds it.

use crate::limits::MAX_CODE_RANGES;

/// What can be wrong with `codes=` or `not=` (R13).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CodesError {
    /// An entry that is neither an exit code nor a range of them.
    #[error("{entry:?} is no exit code: write 0 to 255, or a range such as 100-110")]
    NoCode {
        /// The entry.
        entry: String,
    },
    /// A range whose end is before its beginning.
    #[error("{last}-{first} goes backwards (did you mean \"{first}-{last}\"?)")]
    Backwards {
        /// The lower code.
        first: u8,
        /// The higher one.
        last: u8,
    },
    /// More entries than [`MAX_CODE_RANGES`].
    #[error("{count} codes and ranges, at most {MAX_CODE_RANGES} are allowed: join neighbours to ranges")]
    TooMany {
        /// How many there are.
        count: usize,
    },
    /// Every code, so no list is needed.
    #[error("these are all exit codes (did you mean \"always\" instead of \"on-failure\"?)")]
    All,
    /// `not=` with every failure.
    #[error("no failure is left after which it restarts (did you mean \"never\" instead of \"on-failure\"?)")]
    NoneLeft,
}
