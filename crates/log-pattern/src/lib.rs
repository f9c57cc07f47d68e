//! Regular expressions for one line at a time, in time linear in the line, whatever the pattern.
//!
//! The patterns are those of `log:` gates: a pod's author writes one, and the shim, a process that runs as root, looks
//! for it in every line that a container writes. It trusts neither the author of the pattern nor that of the line
//! (DESIGN §6), so a pattern has a bounded [size](Pattern::size), and each letter of a line costs at most that many steps:
//!
//! ```
//! let pattern = log_pattern::Pattern::parse(r"started in \d+(\.\d+)? ?m?s").expect("a pattern");
//! let mut matcher = pattern.matcher();
//! assert!(matcher.is_match("2026-01-01 server: started in 3.25 s"));
//! assert!(!matcher.is_match("2026-01-01 server: starting"));
//! ```
//!
//! # How it works
//!
//! `syntax` reads a pattern into a tree, `compile` makes a list of instructions of the tree, and `matcher` follows all
//! ways through the instructions at once, letter by letter (Thompson's construction, Pike's machine). There is no
//! backtracking, and a repetition such as `a{0,120}` is written out, so the limit on the number of instructions bounds
//! it too. `char_set` keeps a class as sorted ranges: its size depends on what it means, not on how it is written.
//!
//! # What it understands
//!
//! | written | matches |
//! |---|---|
//! | `a`, `\.` | that letter; a backslash quotes ASCII punctuation and the space |
//! | `.` | any letter |
//! | `[abc]`, `[a-z]`, `[^a]` | one letter of a class, or one outside of it |
//! | `\d` `\w` `\s` `\D` `\W` `\S` `\t` | ASCII digits, word letters, white space, all others; a tab |
//! | `^`, `$` | the beginning and the end of the line |
//! | `x*` `x+` `x?` `x{m}` `x{m,}` `x{m,n}` | repetition; a `?` after it changes nothing, as only the fact of a match counts |
//! | `x\|y`, `(x)`, `(?:x)` | one of several; groups |
//! | `(?i)` at the beginning | ignore the case of ASCII letters |
//!
//! What it understands means the same as in other engines; the tests hold it against one. Everything else is a
//! [`PatternError`], never a guess.
//!
//! # Why not a crate
//!
//! The shim must stay small: the smallest linear-time crate would add a thirtieth to it.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use compile::Program;

#[cfg(any(test, fuzzing))]
pub mod bad_input;
mod char_set;
mod compile;
mod error;
mod limits;
mod matcher;
mod syntax;
#[cfg(test)]
mod tests;

pub use error::PatternError;
pub use limits::MAX_SIZE;
pub use matcher::Matcher;

/// A valid regular expression.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Arc<str>,
    program: Arc<Program>,
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
