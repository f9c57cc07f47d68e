//! The bounds on a pattern. This file contains only numbers.

/// Largest compiled pattern: instructions, and ranges of its sets. Each letter of a line costs at most this many steps.
pub const MAX_SIZE: usize = 512;

/// Most letters, sets and groups of a pattern; one with more is refused before all of it is read.
pub(crate) const MAX_ATOMS: usize = 16 * MAX_SIZE;

/// Deepest nesting of groups.
pub(crate) const MAX_DEPTH: usize = 32;

/// Largest number in `{m,n}`.
pub(crate) const MAX_REPEAT: u32 = 500;
