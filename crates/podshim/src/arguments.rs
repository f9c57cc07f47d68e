//! What all commands share: errors, exit codes, `-h`, reading of arguments.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use control_api::client::ClientError;
use lexopt::Arg;
use pod_spec::BoundedDuration;

use crate::output::Format;
use crate::shims::{self, FindError};
use crate::source::SourceError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well: exit code 0.
    Success,
    /// The command has printed problems or a failure: exit code 1.
    Findings,
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It was called wrongly: exit code 2.
    #[error("{message} (see podshim {command}{}-h)", if .command.is_empty() { "" } else { " " })]
    Usage {
        /// What is wrong.
        message: String,
        /// The command that was called; empty if there was none.
        command: &'static str,
    },
    /// A file cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no such pod.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The pod's shim refused the request or did not answer.
    #[error("pod {pod}: {source}")]
    Shim {
        /// The pod as the user named it.
        pod: String,
        /// The error of the call to its shim.
        source: ClientError,
    },
    /// Any other failure, such as a file with the wrong content.
    #[error("{0}")]
    Input(String),
    /// The result cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The error of a wrong call.
    pub fn usage(command: &'static str, message: impl ToString) -> Self {
        Self::Usage { message: message.to_string(), command }
    }

    /// 2 for a wrong call, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage { .. }) { 2 } else { 1 }
    }
}

/// The arguments of a command that takes files and `--json`.
#[derive(Debug, Default)]
pub struct FileArguments {
    /// At least one.
    pub files: Vec<String>,
    /// How to show the result.
    pub format: Format,
    /// The options that are its own, with their values.
    pub own: Vec<(&'static str, String)>,
}

/// The arguments of a command about pods.
#[derive(Debug)]
pub struct PodArguments {
    /// The arguments that are not options.
    pub words: Vec<String>,
    /// How to show the result.
    pub format: Format,
    /// Where the shims are found.
    pub root: PathBuf,
    /// The options that are its own, with their values.
    pub own: Vec<(&'static str, String)>,
}

/// What to do after reading arguments.
#[derive(Debug)]
pub enum Parsed<T> {
    /// `-h`: show the help and nothing else.
    Help,
    /// Run the command with these arguments.
    Run(T),
}

/// Reads `[options] FILE...`. `own` are the command's own options, each with a value.
///
/// # Errors
/// An unknown option, a missing value, no file.
pub fn file_arguments(
    command: &'static str,
    arguments: impl IntoIterator<Item = OsString>,
    own: &[&'static str],
) -> Result<Parsed<FileArguments>, CommandError> {
    let wrong = |error: lexopt::Error| CommandError::usage(command, error);
    let mut found = FileArguments::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Long("json") => found.format = Format::Json,
            Arg::Long(option) if own.contains(&option) => {
                let name = own.iter().find(|name| **name == option).copied().unwrap_or_default();
                found.own.push((name, text(command, parser.value().map_err(wrong)?)?));
            }
            Arg::Value(file) => found.files.push(text(command, file)?),
            other => return Err(wrong(other.unexpected())),
        }
    }
    if found.files.is_empty() {
        return Err(CommandError::usage(command, "no file given; \"-\" is standard input"));
    }
    Ok(Parsed::Run(found))
}

/// Reads `[options] WORD...`: a word for each name in `words`, then at most as many as `more` has. `own` are the
/// command's own options, each with a value.
///
/// # Errors
/// An unknown option, a missing value, more or fewer words.
pub fn pod_arguments(
    command: &'static str,
    arguments: impl IntoIterator<Item = OsString>,
    words: &[&str],
    more: &[&str],
    own: &[&'static str],
) -> Result<Parsed<PodArguments>, CommandError> {
    let wrong = |error: lexopt::Error| CommandError::usage(command, error);
    let mut found = PodArguments {
        words: Vec::new(),
        format: Format::Text,
        root: shims::default_root(),
        own: Vec::new(),
    };
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Long("json") => found.format = Format::Json,
            Arg::Long("run-dir") => found.root = parser.value().map_err(wrong)?.into(),
            Arg::Long(option) if own.contains(&option) => {
                let name = own.iter().find(|name| **name == option).copied().unwrap_or_default();
                found.own.push((name, text(command, parser.value().map_err(wrong)?)?));
            }
            Arg::Value(word) if found.words.len() < words.len() + more.len() => {
                found.words.push(text(command, word)?)
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    match words.get(found.words.len()) {
        Some(missing) => Err(CommandError::usage(command, format!("no {missing} given"))),
        None => Ok(Parsed::Run(found)),
    }
}

impl PodArguments {
    /// The value of an option of the command's own; the last one counts.
    pub fn option(&self, name: &str) -> Option<&str> {
        last_of(&self.own, name)
    }

    /// The value of an option of the command's own as a duration; the last one counts. A bare number is seconds, as
    /// with crictl and kubectl.
    ///
    /// # Errors
    /// The value is not a duration.
    pub fn duration(&self, command: &'static str, name: &str) -> Result<Option<Duration>, CommandError> {
        let Some(value) = self.option(name) else { return Ok(None) };
        let read = match value.parse() {
            Ok(seconds) => Ok(BoundedDuration::of_seconds(seconds).get()),
            Err(_) => pod_spec::parse_duration(value),
        };
        read.map(Some).map_err(|error| CommandError::usage(command, format!("--{name} {value}: {error}")))
    }
}

fn text(command: &'static str, value: OsString) -> Result<String, CommandError> {
    value
        .into_string()
        .map_err(|value| CommandError::usage(command, format!("{} is not UTF-8", value.to_string_lossy())))
}

impl FileArguments {
    /// The value of an option of the command's own; the last one counts.
    pub fn option(&self, name: &str) -> Option<&str> {
        last_of(&self.own, name)
    }

    /// All values of an option that may be given more than once.
    pub fn options(&self, name: &str) -> impl Iterator<Item = &str> {
        self.own.iter().filter(move |(own, _)| *own == name).map(|(_, value)| value.as_str())
    }
}

fn last_of<'a>(own: &'a [(&'static str, String)], name: &str) -> Option<&'a str> {
    own.iter().rev().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
}
