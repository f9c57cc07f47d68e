//! A bad value as messages repeat it: cut to what fits into a line, without control characters.

use crate::limits::MAX_EXCERPT_BYTES;

/// An excerpt on one line, whatever is in it.
pub(crate) fn printable(text: &str) -> String {
    let mut printable = String::new();
    for letter in excerpt(text).chars() {
        match letter {
            '"' | '\'' | '\\' => printable.push(letter),
            _ => printable.extend(letter.escape_debug()),
        }
    }
    printable
}

/// A bad value as messages repeat it: cut to what fits into a line.
pub(crate) fn excerpt(text: &str) -> String {
    if text.len() <= MAX_EXCERPT_BYTES {
        return text.to_owned();
    }
    let mut end = MAX_EXCERPT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_letter_is_not_cut_in_two() {
        let before = "a".repeat(MAX_EXCERPT_BYTES - 1);
        assert_eq!(excerpt(&format!("{before}\u{e9}b")), format!("{before}..."));
        assert_eq!(excerpt(&before), before);
    }
}
