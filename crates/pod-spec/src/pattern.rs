//! Regular expressions of `log:` gates. Owns which syntax podshim understands, and that a match takes time linear in
//! the line, whatever the pattern: podshim trusts neither the author of the pattern nor that of the line (DESIGN §6).
//!
//! podshim has its own small engine because the shim must stay small: the smallest linear-time crate would add a
//! thirtieth to it. What it understands means the same as in other engines, which the tests check against another one;
//! the rest is an error, never a guess.

use std::fmt;
use std::sync::Arc;

use crate::limits::MAX_PATTERN;
use compile::Program;

mod compile;
mod matcher;
mod set;
mod syntax;
#[cfg(test)]
mod tests;

pub use matcher::Matcher;

/// Most letters, sets and groups of a pattern; one with more is refused before all of it is read.
const MAX_ATOMS: usize = 16 * MAX_PATTERN;
/// Deepest nesting of groups.
const MAX_DEPTH: usize = 32;
/// Largest number in `{m,n}`.
const MAX_REPEAT: u32 = 500;

/// A valid regular expression.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Arc<str>,
    program: Arc<Program>,
}

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

impl Pattern {
    /// Reads a regular expression.
    ///
    /// # Errors
    /// What is wrong with it, or not supported.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let program = compile::compile(&syntax::parse(text)?)?;
        Ok(Self { text: text.into(), program: Arc::new(program) })
    }

    /// The text as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How large it is: instructions when compiled, and ranges of its sets after merging. Each letter of a line costs
    /// at most this many steps.
    pub fn size(&self) -> usize {
        compile::size(&self.program)
    }

    /// A matcher that looks for it in lines.
    pub fn matcher(&self) -> Matcher {
        Matcher::new(self.program.clone())
    }
}

impl fmt::Debug for Pattern {
    /// Shows the text: the program follows from it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}
