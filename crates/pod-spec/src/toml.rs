//! The little of TOML that configuration for podshim is written in: lines of `key = value` with strings, numbers,
//! booleans and lists of strings on one line.
//!
//! Owns that grammar, and knows no key. Everything beyond it is an error that names the line, never a guess.

use crate::error::{excerpt, printable};

/// What is no line of such a file.
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
    /// A value of none of the kinds.
    #[error(
        "line {line}: {key}: cannot read {text}: a string in quotes, true, false or a whole number is expected"
    )]
    Unreadable {
        /// Counted from 1.
        line: usize,
        /// The key.
        key: String,
        /// The value as it stands there.
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

/// A line that says something.
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

/// The assignments of a file, in its order. Empty lines and comments say nothing.
///
/// # Errors
/// Each line that is none of these.
pub fn assignments(text: &str) -> impl Iterator<Item = Result<Assignment<'_>, TomlError>> {
    text.lines().enumerate().filter_map(|(index, raw)| {
        let (line, trimmed) = (index + 1, raw.trim());
        (!trimmed.is_empty() && !trimmed.starts_with('#')).then(|| assignment(line, trimmed))
    })
}

fn assignment(line: usize, text: &str) -> Result<Assignment<'_>, TomlError> {
    let Some((key, value)) = text.split_once('=').filter(|_| !text.starts_with('[')) else {
        return Err(TomlError::NotAnAssignment { line, text: excerpt(text) });
    };
    let (key, value) = (key.trim().trim_matches('"'), value.trim());
    match read_value(value).filter(|(_, rest)| is_blank(rest)) {
        Some((value, _)) => Ok(Assignment { line, key, value }),
        None => {
            let [key, text] = [key, value].map(printable);
            Err(TomlError::Unreadable { line, key, text })
        }
    }
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
    let (mut list, mut rest) = (Vec::new(), text.trim_start());
    loop {
        if let Some(after) = rest.strip_prefix(']') {
            return Some((Value::List(list), after));
        }
        let (entry, after) = read_string(rest)?;
        list.push(entry);
        let after = after.trim_start();
        rest = match after.strip_prefix(',') {
            Some(next) => next.trim_start(),
            None => after,
        };
        if after == rest && !rest.starts_with(']') {
            return None;
        }
    }
}

fn read_string(text: &str) -> Option<(String, &str)> {
    match text.chars().next()? {
        '"' => read_basic_string(&text[1..]),
        '\'' => text[1..].split_once('\'').map(|(value, rest)| (value.to_owned(), rest)),
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
