//! How containerd gets back the configuration that it had, if it does not take podshim's runtime.
//!
//! Owns the order: note what was refused, change the files, restart containerd. An installer that is killed in between leaves
//! the rest to the next one, which finds by the notes and the files how far this one came.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use thiserror::Error;

use super::cri::{CriError, Loaded};
use super::files::{self, Content, FileChange, FileError};
use super::host::HostError;
use super::notes::{self, Before};
use super::root::Root;
use super::running::Daemon;
use crate::signals::{Signals, WaitResult};

/// How often to ask a containerd that is being restarted.
pub const SOON: Duration = Duration::from_secs(2);

/// What gives containerd back the configuration that it had.
#[derive(Debug)]
pub struct Undo {
    /// The changes that do so after those of the installation.
    changes: Vec<FileChange>,
    /// The changes that finish what a killed installer has begun to give back; `None` if none has. Its restart may be all that is left.
    unfinished: Option<Vec<FileChange>>,
    /// The files as they were when containerd answered last, to be noted, in the order in which they are given back.
    pub before: Vec<Before>,
    /// Whether the installation changes these files.
    pub configuration: Configuration,
    /// The texts of the files with podshim's runtime.
    pub texts: String,
}

/// Whether an installation changes containerd's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// It does.
    Changed,
    /// It was right already.
    AsBefore,
}

impl Configuration {
    /// Of these changes, if containerd reads its configuration from these files.
    pub fn of(changes: &[FileChange], files: &[PathBuf]) -> Self {
        let is_changed = changes.iter().any(|change| files.iter().any(|file| file == change.path()));
        if is_changed { Self::Changed } else { Self::AsBefore }
    }
}

impl Undo {
    /// Of an installation that makes these changes. `files` are those from which containerd reads its configuration;
    /// `without_runtime` takes the runtime out of them as they are.
    ///
    /// # Errors
    /// A file that an installer has noted cannot be read.
    pub fn new(
        daemon: &Daemon,
        changes: &[FileChange],
        files: &[PathBuf],
        without_runtime: &[FileChange],
    ) -> Result<Self, FileError> {
        let root = &daemon.root;
        // A backup is beside its file, and goes with it.
        let is_of = |change: &&FileChange| {
            let mut of = files.iter().map(PathBuf::as_path);
            of.any(|file| {
                change.path() == file || matches!(&change.after, Content::Copy { of, .. } if of == file)
            })
        };
        let made: Vec<_> = changes.iter().filter(is_of).collect();
        let (present, texts) = (texts(root, files, &[]), texts(root, files, &made));
        let note = notes::restarted(root);
        // From a restart with these texts it is known what containerd had before. Else the runtime is what may be wrong.
        let earlier = |texts: &str| match &note {
            Some(note) if note.texts == texts && !note.before.is_empty() => before(root, &note.before),
            _ => Ok(without_runtime.to_vec()),
        };
        // What is there may be why containerd does not answer: to go back to that would not help.
        let unconfirmed = note.as_ref().filter(|note| note.texts == present && !daemon.has_taken(files));
        let mut undo: Vec<_> = made.iter().rev().map(|change| change.reversed()).collect();
        if made.is_empty() || unconfirmed.is_some() {
            undo.extend(earlier(&present)?);
        }
        let configuration = Configuration::of(changes, files);
        let is_there = configuration == Configuration::AsBefore && !without_runtime.is_empty();
        let is_restarted = note.as_ref().is_some_and(|note| note.texts == texts);
        Ok(Self {
            changes: undo,
            unfinished: (is_there || is_restarted).then(|| earlier(&texts)).transpose()?,
            before: match unconfirmed {
                Some(note) => note.before.clone(),
                None => made.iter().rev().filter_map(|change| noted(change)).collect(),
            },
            configuration,
            texts,
        })
    }

    /// Whether containerd was restarted with these texts and has not answered yet.
    pub fn is_restarted(&self, root: &Root) -> bool {
        notes::restarted(root).is_some_and(|note| note.texts == self.texts)
    }

    /// Whether containerd did not take these texts.
    pub fn is_refused(&self, root: &Root) -> bool {
        notes::refused(root).is_some_and(|texts| texts == self.texts)
    }

    /// Gives containerd its configuration of before, and restarts it. Returns what became of it, for people.
    pub fn give_back(&self, daemon: &Daemon, unit: Option<&str>, signals: &Signals) -> String {
        // First: an installer that is killed meanwhile must not try the same again.
        match notes::put_refused(&daemon.root, &self.texts) {
            Ok(()) => restore(&self.changes, daemon, || Ok(unit), signals),
            Err(error) => {
                format!("its configuration stays, as {} cannot be written: {error}", notes::REFUSED)
            }
        }
    }

    /// Gives back what an installer did not that was killed on the way: the refused texts are in the files, or containerd was not
    /// restarted without them. `None` if nothing is left to do.
    pub fn finish(&self, daemon: &Daemon, signals: &Signals) -> Option<String> {
        let changes = self.unfinished.as_ref()?;
        Some(restore(changes, daemon, || daemon.unit(signals), signals))
    }
}

/// The changes that give these files their texts.
fn before(root: &Root, files: &[Before]) -> Result<Vec<FileChange>, FileError> {
    let content = |text: &Option<String>| text.clone().map_or(Content::Absent, Content::Text);
    files.iter().map(|(path, text)| FileChange::new(root, path.clone(), content(text))).collect()
}

/// What this change replaces, to be noted. containerd's files are texts.
fn noted(change: &FileChange) -> Option<Before> {
    match &change.before {
        Content::Absent => Some((change.path().to_owned(), None)),
        Content::Text(text) => Some((change.path().to_owned(), Some(text.clone()))),
        _ => None,
    }
}

/// The texts of these files, once these changes are made.
fn texts(root: &Root, files: &[PathBuf], made: &[&FileChange]) -> String {
    // A file is changed behind its links.
    let mut paths: Vec<_> = files.iter().filter_map(|file| root.behind_links(file).ok()).collect();
    paths.sort();
    paths.dedup();
    let text = |path: &Path| match made.iter().find(|change| change.path() == path) {
        Some(FileChange { after: Content::Text(text), .. }) => Some(text.clone()),
        Some(_) => None,
        None => files::read_text(root, path).ok().flatten(),
    };
    paths.iter().filter_map(|path| text(path)).collect()
}

fn restore<'a>(
    changes: &[FileChange],
    daemon: &Daemon,
    unit: impl FnOnce() -> Result<Option<&'a str>, HostError>,
    signals: &Signals,
) -> String {
    match try_restore(changes, daemon, unit, signals) {
        Ok(Loaded::Yes) => "its configuration is as before, with which it has the runtime again".to_owned(),
        Ok(Loaded::No) => "its configuration is as before, with which it answers again".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// How far containerd did not get what it had.
#[derive(Debug, Error)]
enum RestoreError {
    #[error("its configuration cannot be given back: {0}")]
    Files(#[from] FileError),
    #[error("its configuration is as before, and it is being restarted")]
    Interrupted,
    #[error("its configuration is as before, but it was not restarted: {0}")]
    NotRestarted(HostError),
    #[error("its configuration is as before, but it does not answer: {0}")]
    Silent(CriError),
}

#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
fn try_restore<'a>(
    changes: &[FileChange],
    daemon: &Daemon,
    unit: impl FnOnce() -> Result<Option<&'a str>, HostError>,
    signals: &Signals,
) -> Result<Loaded, RestoreError> {
    let begin = Instant::now();
    files::apply(changes)?;
    let restarted = unit().and_then(|unit| daemon.restart(unit, signals));
    if matches!(restarted, Err(HostError::BySignal(_))) {
        // The note stays: the next installer makes sure of the restart.
        return Err(RestoreError::Interrupted);
    }
    notes::remove_restarted(&daemon.root);
    restarted.map_err(RestoreError::NotRestarted)?;
    loop {
        match daemon.loaded() {
            Ok(state) => return Ok(state),
            Err(error) if begin.elapsed() >= daemon.restart_limit => {
                return Err(RestoreError::Silent(error));
            }
            Err(_) => {}
        }
        if !matches!(signals.wait(SOON), Ok(WaitResult::ByTime)) {
            return Err(RestoreError::Interrupted);
        }
    }
}
