//! The options table of containerd's configuration, as it arrives inside `runtimeoptions.v1.Options`.
//!
//! Owns the subset of TOML that such a table can be: `Key = value` lines with strings, numbers and booleans
//! (containerd writes nothing else for runc's options). Everything beyond it is an error that names the line,
//! never a guess.

use std::path::PathBuf;

use thiserror::Error;

use super::{CgroupDriver, RuntimeOptions};

/// The keys runc's options have that containerd's own shim does not use either. A table that sets them is fine.
const WITHOUT_EFFECT: [&str; 3] = ["CriuImagePath", "TaskApiAddress", "TaskApiVersion"];

/// The keys that have an effect, for the message about one that does not exist.
const KEYS: &str = "BinaryName, Root, SystemdCgroup, NoPivotRoot, NoNewKeyring, ShimCgroup, IoUid, IoGid, \
                    CriuPath, CriuWorkPath";

/// What is wrong in an options table.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// A line that is not `Key = value`.
    #[error("line {line}: expected `Key = value`, found {text:?}")]
    NotAnAssignment {
        /// Counted from 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// A value that is neither a string, a whole number nor a boolean.
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
    /// A value of the wrong type.
    #[error("line {line}: {key} must be {expected}")]
    WrongType {
        /// Counted from 1.
        line: usize,
        /// The key.
        key: String,
        /// What it must be.
        expected: &'static str,
    },
    /// A key that no runtime option has.
    #[error("line {line}: unknown option {key}; known are {KEYS}")]
    UnknownKey {
        /// Counted from 1.
        line: usize,
        /// The key.
        key: String,
    },
}

/// A value of the subset.
enum Value {
    Text(String),
    Number(i64),
    Switch(Switch),
}

#[derive(Clone, Copy, PartialEq)]
enum Switch {
    On,
    Off,
}

/// Reads an options table.
///
/// # Errors
///
/// [`ConfigError`] for the first line that is not an option the shim knows.
pub(super) fn parse(text: &str) -> Result<RuntimeOptions, ConfigError> {
    let mut options = RuntimeOptions::default();
    for (index, raw) in text.lines().enumerate() {
        let line = index + 1;
        let trimmed = raw.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let Some((key, value)) = trimmed.split_once('=').filter(|_| !trimmed.starts_with('[')) else {
            return Err(ConfigError::NotAnAssignment { line, text: trimmed.to_owned() });
        };
        let key = key.trim().trim_matches('"');
        let value = read_value(value.trim()).ok_or_else(|| ConfigError::Unreadable {
            line,
            key: key.to_owned(),
            text: value.trim().to_owned(),
        })?;
        Assignment { line, key, value }.apply(&mut options)?;
    }
    Ok(options)
}

/// One line of the table.
struct Assignment<'a> {
    line: usize,
    key: &'a str,
    value: Value,
}

impl Assignment<'_> {
    fn apply(&self, options: &mut RuntimeOptions) -> Result<(), ConfigError> {
        // Go's TOML libraries match keys without regard to case; a table that worked with runc's shim works.
        let is = |name: &str| self.key.eq_ignore_ascii_case(name);
        if is("BinaryName") {
            options.binary_name = self.text()?;
        } else if is("Root") {
            options.root = self.text()?.map(PathBuf::from);
        } else if is("SystemdCgroup") {
            options.cgroup_driver = Some(match self.switch()? {
                Switch::On => CgroupDriver::Systemd,
                Switch::Off => CgroupDriver::Cgroupfs,
            });
        } else if is("NoPivotRoot") {
            options.no_pivot_root = self.switch()? == Switch::On;
        } else if is("NoNewKeyring") {
            options.no_new_keyring = self.switch()? == Switch::On;
        } else if is("ShimCgroup") {
            options.shim_cgroup = self.text()?;
        } else if is("IoUid") {
            options.io_uid = Some(self.id()?);
        } else if is("IoGid") {
            options.io_gid = Some(self.id()?);
        } else if is("CriuPath") {
            options.criu_path = self.text()?.map(PathBuf::from);
        } else if is("CriuWorkPath") {
            options.criu_work_path = self.text()?.map(PathBuf::from);
        } else if !WITHOUT_EFFECT.iter().any(|name| is(name)) {
            return Err(ConfigError::UnknownKey { line: self.line, key: self.key.to_owned() });
        }
        Ok(())
    }

    /// An empty string says nothing, as in runc's message.
    fn text(&self) -> Result<Option<String>, ConfigError> {
        match &self.value {
            Value::Text(text) => Ok((!text.is_empty()).then(|| text.clone())),
            _ => Err(self.wrong_type("a string in quotes")),
        }
    }

    fn switch(&self) -> Result<Switch, ConfigError> {
        match self.value {
            Value::Switch(switch) => Ok(switch),
            _ => Err(self.wrong_type("true or false")),
        }
    }

    fn id(&self) -> Result<u32, ConfigError> {
        match self.value {
            Value::Number(number) => {
                u32::try_from(number).map_err(|_| self.wrong_type("a number from 0 to 4294967295"))
            }
            _ => Err(self.wrong_type("a number")),
        }
    }

    fn wrong_type(&self, expected: &'static str) -> ConfigError {
        ConfigError::WrongType { line: self.line, key: self.key.to_owned(), expected }
    }
}

/// Reads a value and makes sure that nothing but a comment follows it.
fn read_value(text: &str) -> Option<Value> {
    let (value, rest) = match text.chars().next()? {
        '"' => read_basic_string(&text[1..])?,
        '\'' => {
            let (value, rest) = text[1..].split_once('\'')?;
            (Value::Text(value.to_owned()), rest)
        }
        _ => {
            let end = text.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(text.len());
            let value = match &text[..end] {
                "true" => Value::Switch(Switch::On),
                "false" => Value::Switch(Switch::Off),
                number => Value::Number(number.replace('_', "").parse().ok()?),
            };
            (value, &text[end..])
        }
    };
    let rest = rest.trim_start();
    (rest.is_empty() || rest.starts_with('#')).then_some(value)
}

/// Reads up to the closing quote of a TOML basic string.
fn read_basic_string(text: &str) -> Option<(Value, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, c)) = chars.next() {
        match c {
            '"' => return Some((Value::Text(value), &text[index + 1..])),
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
