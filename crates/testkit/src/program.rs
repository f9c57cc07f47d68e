//! What a container's program does: how long it runs, how it reacts to a stop signal, when it is ready.
//!
//! Owns the script and its one-line form; the world plays it.

use std::fmt;
use std::time::Duration;

use crate::text::{parse_duration, show_duration};

/// The runs of a program, one after another; the last one repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    runs: Vec<Run>,
}

/// One run of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// When and how it ends by itself; `None` = never.
    pub ends: Option<RunEnd>,
    /// What it does about a stop signal.
    pub on_stop: OnStop,
    /// From its start until probes succeed; `None` = never.
    pub ready_after: Option<Duration>,
    /// From `runtime start` until the program has been exec'd (U1).
    pub exec_after: Duration,
}

/// An exit by itself or after a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunEnd {
    /// The exit code.
    pub code: u32,
    /// Since the start, or since the signal.
    pub after: Duration,
}

/// The reaction to a stop signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnStop {
    /// It exits.
    Exits(RunEnd),
    /// It goes on.
    Ignores,
}

impl Default for Run {
    /// Runs for ever, is ready at once, dies of a stop signal.
    fn default() -> Self {
        Self {
            ends: None,
            on_stop: OnStop::Exits(RunEnd { code: 143, after: Duration::ZERO }),
            ready_after: Some(Duration::ZERO),
            exec_after: Duration::ZERO,
        }
    }
}

impl Default for Program {
    fn default() -> Self {
        Self { runs: vec![Run::default()] }
    }
}

impl Program {
    /// A program of these runs; without any, the default program.
    pub fn new(runs: Vec<Run>) -> Self {
        if runs.is_empty() { Self::default() } else { Self { runs } }
    }

    /// Its runs; at least one.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// The run that comes after that many earlier runs.
    pub fn run(&self, before: usize) -> Run {
        self.runs.get(before).or(self.runs.last()).cloned().unwrap_or_default()
    }

    /// Reads runs separated by `|`, each of the words `exit=CODE@TIME`, `term=CODE@TIME`, `ignore-term`,
    /// `ready=TIME`, `never-ready`, `exec=TIME`.
    ///
    /// # Errors
    /// The first unknown word.
    pub fn parse(text: &str) -> Result<Self, String> {
        text.split('|').map(parse_run).collect::<Result<_, _>>().map(Self::new)
    }
}

fn parse_run(text: &str) -> Result<Run, String> {
    let mut run = Run::default();
    for word in text.split_whitespace() {
        let unknown = || format!("unknown word {word:?} in a program");
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "exit" => run.ends = Some(parse_end(value).ok_or_else(unknown)?),
            "term" => run.on_stop = OnStop::Exits(parse_end(value).ok_or_else(unknown)?),
            "ignore-term" => run.on_stop = OnStop::Ignores,
            "ready" => run.ready_after = Some(parse_duration(value).ok_or_else(unknown)?),
            "never-ready" => run.ready_after = None,
            "exec" => run.exec_after = parse_duration(value).ok_or_else(unknown)?,
            _ => return Err(unknown()),
        }
    }
    Ok(run)
}

fn parse_end(text: &str) -> Option<RunEnd> {
    let (code, after) = text.split_once('@')?;
    Some(RunEnd { code: code.parse().ok()?, after: parse_duration(after)? })
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let runs: Vec<_> = self.runs.iter().map(ToString::to_string).collect();
        f.write_str(&runs.join(" | "))
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words = Vec::new();
        if let Some(RunEnd { code, after }) = self.ends {
            words.push(format!("exit={code}@{}", show_duration(after)));
        }
        words.push(match self.on_stop {
            OnStop::Exits(RunEnd { code, after }) => format!("term={code}@{}", show_duration(after)),
            OnStop::Ignores => "ignore-term".to_owned(),
        });
        match self.ready_after {
            Some(Duration::ZERO) => {}
            Some(after) => words.push(format!("ready={}", show_duration(after))),
            None => words.push("never-ready".to_owned()),
        }
        if !self.exec_after.is_zero() {
            words.push(format!("exec={}", show_duration(self.exec_after)));
        }
        f.write_str(&words.join(" "))
    }
}
