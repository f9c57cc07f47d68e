//! Bad input for the reader of patterns (DESIGN §6): no panic, and one bounded line as the answer. Only in tests and in a
//! target of `fuzz/`.

use crate::Pattern;

/// The longest answer names one letter of the pattern.
const LONGEST_ANSWER: usize = 256;

/// The regular expression of a `log:` gate.
pub fn pattern(input: &[u8]) {
    const LINE: &str = "2026-11-21 started in 12.5 ms, ready and serving aaabbbcccabc";
    match Pattern::parse(&String::from_utf8_lossy(input)) {
        Ok(pattern) => drop(pattern.matcher().is_match(LINE)),
        Err(error) => {
            let answer = error.to_string();
            assert!(answer.len() <= LONGEST_ANSWER && !answer.contains(char::is_control), "{answer}");
        }
    }
}

#[cfg(test)]
mod tests {
    use fuzz_input::{fuzz, known};

    use super::*;

    /// Fuzzing needs valid inputs to start from: one that is refused at once reaches little code.
    #[test]
    fn what_is_known_is_understood() {
        for (name, input) in known("patterns") {
            Pattern::parse(str::from_utf8(&input).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn fuzz_patterns() {
        fuzz("patterns", pattern);
    }
}
