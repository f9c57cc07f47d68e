//! What is wrong, or probably not meant, at one place of a file. Owns how a finding is shown to programs.

use serde::Serialize;

/// One thing found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// The file as it was given.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// How bad it is.
    pub severity: Severity,
    /// The key that is wrong, if there is one.
    pub key: Option<String>,
    /// The value that was found.
    pub value: Option<String>,
    /// One line that says what is wrong.
    pub message: String,
    /// The valid word that was probably meant.
    pub nearest: Option<String>,
    /// What to do.
    pub fix: Option<String>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It does not work.
    Error,
    /// It works, and is probably not what was meant.
    Warning,
    /// It works as meant, and has an effect that is easily overlooked.
    Note,
}

impl Finding {
    /// A finding with neither value nor fix.
    pub fn new(severity: Severity, file: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            line,
            severity,
            key: None,
            value: None,
            message: message.into(),
            nearest: None,
            fix: None,
        }
    }

    /// Adds the key.
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Adds the value that was found.
    pub fn value(mut self, value: &str) -> Self {
        self.value = Some(value.to_owned());
        self
    }

    /// Adds what to do.
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Adds the word that was probably meant.
    pub fn nearest(mut self, word: &str) -> Self {
        self.nearest = Some(word.to_owned());
        self
    }
}
