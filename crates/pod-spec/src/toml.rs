//! The small part of TOML in which podshim's configuration is written: lines of `key = value` with strings, numbers,
//! booleans and lists of strings, which may continue over several lines.
//!
//! Owns that grammar, and knows no key. Anything beyond it is an error that names the line, never a guess.

use crate::excerpt::{excerpt, printable};

/// Why a text cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TomlError {
    /// A line that is not `Key = value`.
    #[error("line {line}: expected `Key = value`, found {text:?}")]
    NotAnAssignment {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A value of no known kind.
    #[error(
        "line {line}: {key}: cannot read {text}: a string in quotes, true, false, a whole number or a list of strings \
         is expected"
    )]
    Unreadable {
        /// Counted from 1.
        line: usize,
        /// The key.
        key: String,
        /// The value as it is written.
        text: String,
    },
}

impl TomlError {
    /// The line, counted from 1.
    pub fn line(&self) -> usize {
        match self {
            Self::NotAnAssignment { line, .. } | Self::Unreadable { line, .. } => *line,
        }
    }
}

/// An assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment<'a> {
    /// Counted from 1.
    pub line: usize,
    /// The key, without quotes.
    pub key: &'a str,
    /// Its value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// `"..."` or `'...'`.
    Text(String),
    /// A whole number.
    Number(i64),
    /// `true` or `false`.
    Switch(Switch),
    /// `["...", "..."]`.
    List(Vec<String>),
}

/// A boolean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// `true`.
    On,
    /// `false`.
    Off,
}

/// The assignments of a file, in its order. Skips empty lines and comments.
///
/// # Errors
/// A line that is no assignment, no comment and not empty.
pub fn assignments(text: &str) -> impl Iterator<Item = Result<Assignment<'_>, TomlError>> {
    Assignments { rest: text, line: 0 }
}

struct Assignments<'a> {
    /// The text from the start of a line.
    rest: &'a str,
    /// How many lines come before it.
    line: usize,
}

impl<'a> Iterator for Assignments<'a> {
    type Item = Result<Assignment<'a>, TomlError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let text = self.rest;
            let first = next_line(text);
            let is_assignment = !is_blank(first);
            let read = is_assignment.then(|| assignment(self.line + 1, first.trim(), text));
            // A list may end on a later line.
            let end = match &read {
                Some(Ok((_, rest))) => text.len() - rest.len(),
                _ => first.len(),
            };
            self.line += text[..end].matches('\n').count() + 1;
            self.rest = text[end..].split_once('\n').map_or("", |(_, rest)| rest);
            if let Some(read) = read {
                return Some(read.map(|(assignment, _)| assignment));
            }
        }
        None
    }
}

/// The assignment on a line, and what follows its value. `text` is the line and everything after it.
fn assignment<'a>(
    number: usize,
    line: &'a str,
    text: &'a str,
) -> Result<(Assignment<'a>, &'a str), TomlError> {
    let Some((key, value)) = line.split_once('=').filter(|_| !line.starts_with('[')) else {
        return Err(TomlError::NotAnAssignment { line: number, text: excerpt(line) });
    };
    let (key, value) = (key.trim().trim_matches('"'), value.trim());
    // There is a `=`: the line is the start of the text.
    let after_key = text.split_once('=').map_or("", |(_, rest)| rest);
    match read_value(after_key.trim_start_matches([' ', '\t'])) {
        Some((value, rest)) if is_blank(next_line(rest)) => {
            Ok((Assignment { line: number, key, value }, rest))
        }
        _ => {
            let [key, text] = [key, value].map(printable);
            Err(TomlError::Unreadable { line: number, key, text })
        }
    }
}

/// What follows the first line.
fn next_line(text: &str) -> &str {
    text.split_once('\n').map_or(text, |(line, _)| line)
}

/// Whether nothing but a comment follows.
fn is_blank(rest: &str) -> bool {
    let rest = rest.trim_start();
    rest.is_empty() || rest.starts_with('#')
}

/// A value and what follows it.
fn read_value(text: &str) -> Option<(Value, &str)> {
    match text.chars().next()? {
        '[' => read_list(&text[1..]),
        '"' | '\'' => read_string(text).map(|(text, rest)| (Value::Text(text), rest)),
        _ => {
            let end = text.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(text.len());
            let value = match &text[..end] {
                "true" => Value::Switch(Switch::On),
                "false" => Value::Switch(Switch::Off),
                number => Value::Number(number.replace('_', "").parse().ok()?),
            };
            Some((value, &text[end..]))
        }
    }
}

fn read_list(text: &str) -> Option<(Value, &str)> {
    let (mut list, mut rest) = (Vec::new(), skip_blank_lines(text));
    loop {
        if let Some(after) = rest.strip_prefix(']') {
            return Some((Value::List(list), after));
        }
        let (entry, after) = read_string(rest)?;
        list.push(entry);
        let after = skip_blank_lines(after);
        rest = match after.strip_prefix(',') {
            Some(next) => skip_blank_lines(next),
            None if after.starts_with(']') => after,
            None => return None,
        };
    }
}

/// Skips white space, line ends and comments, which a list may have between its entries.
fn skip_blank_lines(mut text: &str) -> &str {
    loop {
        text = text.trim_start();
        if !text.starts_with('#') {
            return text;
        }
        text = text.split_once('\n').map_or("", |(_, rest)| rest);
    }
}

fn read_string(text: &str) -> Option<(String, &str)> {
    match text.chars().next()? {
        '"' => read_basic_string(&text[1..]),
        '\'' => {
            let (value, rest) = text[1..].split_once('\'')?;
            (!value.contains('\n')).then(|| (value.to_owned(), rest))
        }
        _ => None,
    }
}

/// Reads up to the closing quote of a TOML basic string.
fn read_basic_string(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[index + 1..])),
            '\n' => return None,
            '\\' => value.push(match chars.next()?.1 {
                '"' => '"',
                '\\' => '\\',
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'u' => read_code_point(&mut chars, 4)?,
                'U' => read_code_point(&mut chars, 8)?,
                _ => return None,
            }),
            c => value.push(c),
        }
    }
    None
}

fn read_code_point(chars: &mut std::str::CharIndices<'_>, digits: usize) -> Option<char> {
    let mut code = 0u32;
    for _ in 0..digits {
        code = code.checked_mul(16)?.checked_add(chars.next()?.1.to_digit(16)?)?;
    }
    char::from_u32(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_read_with_its_escapes() {
        let text = r#"key = "\" \\ \n \t \r \b \f \u00e9 \U0001F600""#;
        let read: Vec<_> = assignments(text).map(|assignment| assignment.map(|found| found.value)).collect();
        let expected = "\" \\ \n \t \r \u{8} \u{c} é 😀".to_owned();
        assert_eq!(read, [Ok(Value::Text(expected))]);
        for bad in [r#""\x41""#, r#""\u12""#, r#""\ud800""#, r#""a"#] {
            assert!(assignments(&format!("key = {bad}\n")).any(|found| found.is_err()), "{bad}");
        }
    }

    #[test]
    fn an_error_knows_its_line() {
        for text in ["a = 1\n\nb = x\n", "a = 1\n\nb\n"] {
            let error = assignments(text).find_map(Result::err);
            assert_eq!(error.map(|error| error.line()), Some(3), "{text:?}");
        }
    }
}
