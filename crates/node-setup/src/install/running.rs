//! The node's running containerd: what it answers, and its restart.
//!
//! Owns which unit that is. When to restart it is decided above.

use std::path::PathBuf;
use std::time::Duration;

use super::cri::{self, CriError, Loaded, Sandbox};
use super::host::{self, HostError};
use super::notes::{self, Restarted};
use super::place::{Found, Restart};
use super::root::Root;
use crate::bounded::Bound;
use crate::signals::Signals;

/// The node's containerd, as an installer that stays deals with it.
#[derive(Debug)]
pub struct Daemon {
    /// The node's file system.
    pub root: Root,
    /// Which containerd it is.
    pub found: Found,
    /// How long a restart may take, until it answers with the runtime.
    pub restart_limit: Duration,
}

impl Daemon {
    /// Whether it has podshim's runtime.
    ///
    /// # Errors
    /// It does not answer.
    pub fn loaded(&self) -> Result<Loaded, CriError> {
        loaded(&self.root, &self.found)
    }

    /// Whether it started before one of these files was changed, as it makes its socket when it starts. What it answers is then not of
    /// these files. If a time is not known, it did not.
    pub fn is_older_than(&self, files: &[PathBuf]) -> bool {
        let started = self.root.changed_at(self.found.distribution.socket());
        files.iter().any(|file| match (self.root.changed_at(file), started) {
            (Some(changed), Some(started)) => changed > started,
            _ => false,
        })
    }

    /// Whether it runs with podshim's runtime as these files have it.
    pub fn has_taken(&self, files: &[PathBuf]) -> bool {
        matches!(self.loaded(), Ok(Loaded::Yes)) && !self.is_older_than(files)
    }

    /// The unit with which it is restarted; `None` where its supervisor does that.
    ///
    /// # Errors
    /// As [`unit()`].
    pub fn unit(&self, signals: &Signals) -> Result<Option<&'static str>, HostError> {
        unit(&self.root, &self.found, notes::restarted(&self.root), Some(signals))
    }

    /// Restarts it, and waits at most as long as a restart may take.
    ///
    /// # Errors
    /// systemd did not, or not in time.
    pub fn restart(&self, unit: Option<&str>, signals: &Signals) -> Result<(), HostError> {
        host::restart(&self.root, unit, Bound { limit: self.restart_limit, signals: Some(signals) })
    }
}

/// The unit with which the node's containerd is restarted; `None` where its supervisor does that. One that has not come back
/// from a restart is not active: then it is the one that the installer of that restart has noted.
///
/// # Errors
/// systemctl cannot be run or is late, or none of the units is active.
pub fn unit(
    root: &Root,
    found: &Found,
    note: Option<Restarted>,
    signals: Option<&Signals>,
) -> Result<Option<&'static str>, HostError> {
    let how = found.distribution.restart();
    let active = host::active_unit(root, how, signals);
    let (Err(HostError::Inactive(_)), Restart::Units(units), Some(note)) = (&active, how, note) else {
        return active;
    };
    match units.iter().find(|unit| **unit == note.unit) {
        Some(unit) => Ok(Some(unit)),
        None => active,
    }
}

/// Whether the running containerd of the node has podshim's runtime.
///
/// # Errors
/// It does not answer.
pub fn loaded(root: &Root, found: &Found) -> Result<Loaded, CriError> {
    let socket = root.reach(found.distribution.socket())?;
    cri::loaded(&socket.path())
}

/// The default runtime of the running containerd of the node, if it says which.
///
/// # Errors
/// It does not answer.
pub fn default_runtime(root: &Root, found: &Found) -> Result<Option<String>, CriError> {
    let socket = root.reach(found.distribution.socket())?;
    cri::default_runtime(&socket.path())
}

/// The sandboxes of the node's containerd that have not ended.
///
/// # Errors
/// It does not answer.
pub fn sandboxes(root: &Root, found: &Found) -> Result<Vec<Sandbox>, CriError> {
    let socket = root.reach(found.distribution.socket())?;
    cri::sandboxes(&socket.path())
}
