//! Why a text is no pattern. Owns the wording.

use crate::limits::MAX_REPEAT;

/// Why a text is no regular expression, or none that podshim understands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// An empty pattern.
    #[error("the pattern is empty")]
    Empty,
    /// `(` without `)`.
    #[error("the pattern has a \"(\" that is never closed")]
    OpenGroup,
    /// `)` without `(`.
    #[error("the pattern has a \")\" without its \"(\"")]
    CloseGroup,
    /// `[` without `]`.
    #[error("the pattern has a \"[\" that is never closed")]
    OpenClass,
    /// `*` and the like after nothing that could be repeated.
    #[error(
        "the pattern has a {letter:?} with nothing to repeat before it (write \"\\{letter}\" for the letter)"
    )]
    NothingToRepeat {
        /// The letter.
        letter: char,
    },
    /// `{` that begins no repetition.
    #[error(
        "the pattern has a \"{{\" that begins no repetition: write {{m}}, {{m,}} or {{m,n}} up to {MAX_REPEAT} (or \"\\{{\" for the letter)"
    )]
    Repetition,
    /// `[z-a]`, or a range that ends in a class.
    #[error(
        "the pattern has an invalid range in []: write its ends as letters in ascending order, such as a-z"
    )]
    Range,
    /// A backslash before a letter for which it has no meaning, or at the end.
    #[error(
        "the pattern has a backslash with no meaning here: write \\d \\w \\s \\D \\W \\S \\t, or quote a sign, as in \\."
    )]
    Escape,
    /// A group with a special form: look-around, names, flags.
    #[error("the pattern has a \"(?\" that is not supported (only \"(?:\", and \"(?i)\" at its beginning)")]
    Group,
    /// `[` in a class, where other engines differ.
    #[error("the pattern has a \"[\" inside [] (write \"\\[\" for the letter)")]
    NestedClass,
    /// More than the limits allow.
    #[error("the pattern is too large")]
    TooLarge,
}
