//! Which valid word a wrong one was probably meant to be. Owns the distance and the wording of a hint; knows no word of
//! the vocabulary itself.

use std::fmt;

use crate::limits::MAX_EXCERPT_BYTES;

/// What to do about a wrong word: the end of an error message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// One valid word is near enough to be the one that was meant.
    Nearest(String),
    /// No word is near: lists all valid words.
    OneOf(Vec<&'static str>),
    /// No word is near, and the valid words are too many to list.
    Nothing,
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nearest(word) => write!(f, " (did you mean {word:?}?)"),
            Self::OneOf(words) => write!(f, " (one of: {})", words.join(", ")),
            Self::Nothing => Ok(()),
        }
    }
}

/// The value of `word`, or a hint if it is not valid. Words are case-sensitive.
pub(crate) fn choose<T: Copy>(word: &str, choices: &[(&'static str, T)]) -> Result<T, Hint> {
    if let Some((_, choice)) = choices.iter().find(|(valid, _)| *valid == word) {
        return Ok(*choice);
    }
    match nearest(word, choices.iter().map(|(valid, _)| *valid)) {
        Some(valid) => Err(Hint::Nearest(valid.to_owned())),
        None => Err(Hint::OneOf(choices.iter().map(|(valid, _)| *valid).collect())),
    }
}

/// The hint for a wrong word that should have been one of many names.
pub(crate) fn hint_for_name<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> Hint {
    nearest(word, names).map_or(Hint::Nothing, |name| Hint::Nearest(name.to_owned()))
}

/// The first of the valid words with the smallest distance, if at most a third of the letters differ.
pub(crate) fn nearest<'a>(word: &str, valid: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = folded(word)?;
    valid
        .into_iter()
        .filter_map(|candidate| {
            let letters = folded(candidate)?;
            let allowed = (word.len().max(letters.len()) / 3).max(1);
            // Too different in length to be near: this skips the table, which pod authors could make expensive.
            if word.len().abs_diff(letters.len()) > allowed {
                return None;
            }
            let distance = distance(&word, &letters);
            // A word without one right letter is no suggestion, however short it is.
            (distance <= allowed && distance < letters.len().max(1)).then_some((distance, candidate))
        })
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// Letters without case, because `always` for `Always` is the commonest slip. `None` if the word is too long to
/// compare.
fn folded(word: &str) -> Option<Vec<char>> {
    (word.len() <= MAX_EXCERPT_BYTES).then(|| word.chars().flat_map(char::to_lowercase).collect())
}

/// Edits between two words; a swap of two neighbours counts as one.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i + 1);
        for (j, to) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(from != to);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *from == b[j - 1] && a[i - 1] == *to {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suggestion_is_near_and_ignores_case() {
        let words = ["init", "sidecar", "main"];
        for (wrong, meant) in [
            ("sidcar", Some("sidecar")),
            ("sidecars", Some("sidecar")),
            ("Main", Some("main")),
            ("mian", Some("main")),
            ("inti", Some("init")),
            ("job", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(wrong, words), meant, "{wrong}");
        }
        assert_eq!(nearest("x", ["a"]), None, "no letter is right");
    }

    #[test]
    fn a_distance_counts_the_edits() {
        let letters = |word: &str| word.chars().collect::<Vec<_>>();
        for (a, b, edits) in [
            ("ab", "abcd", 2),
            ("abcd", "ab", 2),
            ("", "abc", 3),
            ("abc", "", 3),
            ("kitten", "sitting", 3),
            ("ab", "ba", 1),
            ("abcd", "badc", 2),
        ] {
            assert_eq!(distance(&letters(a), &letters(b)), edits, "{a} {b}");
        }
    }

    #[test]
    fn a_word_too_long_to_compare_has_no_suggestion() {
        let long = "a".repeat(MAX_EXCERPT_BYTES + 1);
        assert_eq!(nearest(&long, [long.as_str()]), None);
    }
}
