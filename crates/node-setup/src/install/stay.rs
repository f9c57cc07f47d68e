//! `podshim install --stay`: what follows the installation on a node where a DaemonSet's pod does it.
//!
//! Owns when containerd is restarted, when the node is labelled, and the wait in between. It ends at SIGTERM, and then
//! removes nothing: a roll-out, a drain and a reboot end it too.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::cri::{CriError, Loaded};
use super::give_back::{Configuration, SOON, Undo};
use super::host::HostError;
use super::label::{Labels, Ready};
use super::notes;
use super::place::Restart;
use super::running::Daemon;
use crate::signals::{Signals, WaitResult};

/// How long a restarted containerd may take, unless another time is given.
pub const RESTART_LIMIT: Duration = Duration::from_secs(120);
/// How often to look whether all is as it was: a node that was removed and came back has no label.
const LATER: Duration = Duration::from_secs(60);
const BY_SIGNAL: &str = "ended by a signal: what is installed stays";

/// Whether containerd may be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may, if its configuration has changed.
    Given,
    /// People do that.
    Withheld,
}

/// Why it cannot stay.
#[derive(Debug, thiserror::Error)]
pub enum StayError {
    /// Signals or the output cannot be used.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The node's systemd does not run the containerd that shall be restarted.
    #[error(transparent)]
    Host(#[from] HostError),
    /// Without the note an installer that is killed would leave a containerd that does not answer.
    #[error("containerd was not restarted, as {path} cannot be written: {0}", path = notes::RESTARTED)]
    Note(io::Error),
    /// containerd was restarted, and does not have the runtime.
    #[error(
        "containerd at {socket} does not have podshim's runtime after its restart: {state}; {reverted}; `podshim doctor` on the node says more"
    )]
    NotLoaded {
        /// Its socket.
        socket: PathBuf,
        /// What is known of it.
        state: String,
        /// What became of its configuration.
        reverted: String,
    },
    /// It did not take this configuration before.
    #[error(
        "containerd did not take this configuration at its last restart; {state}. `podshim doctor` on the node says more; once the \
         cause is mended remove {note}"
    )]
    Refused {
        /// What became of its configuration.
        state: String,
        /// The file that says so.
        note: PathBuf,
    },
}

/// What is known after the installation.
#[derive(Debug)]
pub struct Stay {
    /// The node's containerd.
    pub daemon: Daemon,
    /// The files that containerd reads podshim's runtime from.
    pub files: Vec<PathBuf>,
    /// What gives containerd back the configuration that it had.
    pub undo: Undo,
    /// Whether containerd may be restarted.
    pub permission: Permission,
    /// Where the node is labelled, if it shall be.
    pub labels: Option<Labels>,
}

/// Whether the node has the label that it shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labelled {
    AsWanted,
    Failed,
}

/// What has to happen until containerd has the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// It has it.
    None,
    /// This installer restarts it.
    Restart,
    /// An installer before this one has restarted it, and ended before its answer.
    Answer,
    /// A person restarts it.
    ByPerson,
}

impl Stay {
    /// Refuses what containerd did not take before: it is not restarted again and again. If the installer of that restart was
    /// killed before it had given back the configuration, this one does so first.
    ///
    /// # Errors
    /// containerd did not take this configuration.
    pub fn refuse_again(&self, signals: &Signals) -> Result<(), StayError> {
        let root = &self.daemon.root;
        if self.permission == Permission::Withheld || !self.undo.is_refused(root) || self.is_loaded() {
            return Ok(());
        }
        let given_back = self.undo.finish(&self.daemon, signals);
        if given_back.is_some() {
            self.label_as_without();
        }
        let as_before = || "it has the one of before; nothing was changed".to_owned();
        let state = given_back.unwrap_or_else(as_before);
        Err(StayError::Refused { state, note: root.shown(notes::REFUSED.as_ref()) })
    }

    /// Brings podshim's runtime into the running containerd, labels the node, and stays until a signal.
    ///
    /// # Errors
    /// containerd does not take the runtime: it has its configuration of before again.
    pub fn run(
        &self,
        signals: &Signals,
        mut say: impl FnMut(&str) -> io::Result<()>,
    ) -> Result<(), StayError> {
        // A signal may have arrived while the changes were made: then containerd is not restarted.
        if signals.wait(Duration::ZERO)? == WaitResult::BySignal {
            return Ok(say(BY_SIGNAL)?);
        }
        match self.until_loaded(signals, &mut say) {
            Ok(WaitResult::ByTime) => {}
            Ok(WaitResult::BySignal) | Err(StayError::Host(HostError::BySignal(_))) => return Ok(()),
            Err(error) => return Err(error),
        }
        notes::remove_all(&self.daemon.root);
        say("containerd has podshim's runtime")?;
        let mut last = None;
        loop {
            let ready = match self.daemon.loaded() {
                Ok(Loaded::Yes) => Some(Ready::Yes),
                Ok(Loaded::No) => Some(Ready::No),
                // It is being restarted; the node's state is the kubelet's to tell.
                Err(_) => None,
            };
            let mut next = LATER;
            if let Some(ready) = ready {
                let (labelled, line) = self.label(ready);
                if last.as_ref() != Some(&line) {
                    say(&line)?;
                    last = Some(line);
                }
                if labelled == Labelled::Failed {
                    // The proxy may have been started after this container.
                    next = SOON;
                }
            }
            if signals.wait(next)? == WaitResult::BySignal {
                return Ok(say(BY_SIGNAL)?);
            }
        }
    }

    /// Labels the node, if it shall be, and returns what there is to say of that.
    fn label(&self, ready: Ready) -> (Labelled, String) {
        let state = match ready {
            Ready::Yes => "pods can run on podshim here",
            Ready::No => "containerd has lost podshim's runtime: pods cannot run on podshim here",
        };
        match self.labels.as_ref().map(|labels| labels.set(ready)) {
            Some(Ok(())) => (Labelled::AsWanted, format!("{state}; the node is labelled")),
            Some(Err(error)) => (Labelled::Failed, format!("{state}; the node is not labelled: {error}")),
            None => (Labelled::AsWanted, state.to_owned()),
        }
    }

    /// Whether containerd runs with the configuration that is in its files.
    fn is_loaded(&self) -> bool {
        self.undo.configuration == Configuration::AsBefore && self.daemon.has_taken(&self.files)
    }

    #[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
    fn until_loaded(
        &self,
        signals: &Signals,
        say: &mut impl FnMut(&str) -> io::Result<()>,
    ) -> Result<WaitResult, StayError> {
        let distribution = self.daemon.found.distribution;
        let (state, name, begin) = (self.daemon.loaded(), distribution.name(), Instant::now());
        let restarted = match self.step(&state) {
            Step::None => return Ok(WaitResult::ByTime),
            Step::Restart => {
                // Before the restart: after one that failed the unit is not active.
                let unit = self.daemon.unit(signals)?;
                say(&match distribution.restart() {
                    Restart::Units(_) => {
                        format!("restarting the containerd of {name}: its configuration has changed")
                    }
                    Restart::ByItself => format!("{name} restarts its containerd by itself"),
                })?;
                notes::put_restarted(&self.daemon.root, unit, &self.undo.before, &self.undo.texts)
                    .map_err(StayError::Note)?;
                match self.daemon.restart(unit, signals) {
                    Ok(()) => Some(unit),
                    Err(error @ HostError::BySignal(_)) => return Err(error.into()),
                    Err(error) => return Err(self.revert(unit, error.to_string(), signals)),
                }
            }
            Step::Answer => {
                say(&format!(
                    "the containerd of {name} was restarted with this configuration before: waiting for its answer"
                ))?;
                Some(self.daemon.unit(signals)?)
            }
            Step::ByPerson => {
                if self.undo.configuration == Configuration::Changed || state.is_ok() {
                    say(&format!(
                        "the containerd of {name} must be restarted on the node: it reads its configuration only then"
                    ))?;
                }
                None
            }
        };
        let limit = self.daemon.restart_limit;
        loop {
            let state = match self.daemon.loaded() {
                Ok(Loaded::Yes) => return Ok(WaitResult::ByTime),
                Ok(Loaded::No) => "it runs without it".to_owned(),
                Err(error) => error.to_string(),
            };
            if let Some(unit) = restarted
                && begin.elapsed() >= limit
            {
                return Err(self.revert(unit, format!("{state} for {} s", limit.as_secs()), signals));
            }
            if signals.wait(SOON)? == WaitResult::BySignal {
                return Ok(WaitResult::BySignal);
            }
        }
    }

    /// Gives containerd back the configuration that it had, and restarts it.
    fn revert(&self, unit: Option<&str>, state: String, signals: &Signals) -> StayError {
        let reverted = self.undo.give_back(&self.daemon, unit, signals);
        self.label_as_without();
        let socket = self.daemon.found.distribution.socket().to_owned();
        StayError::NotLoaded { socket, state, reverted }
    }

    /// After a give-back: takes the label from a node that had it, unless containerd has an earlier runtime again.
    fn label_as_without(&self) {
        if !matches!(self.daemon.loaded(), Ok(Loaded::Yes)) {
            // The failure itself is what there is to report.
            let _ = self.label(Ready::No);
        }
    }

    /// containerd reads its configuration only when it starts. So an installer that was killed between the change and the restart, or
    /// whose restart hung, finds by the times that the restart is still due: a containerd that answers may still have the runtime of an
    /// earlier release. And a containerd that does not take the runtime is not restarted again and again.
    fn step(&self, state: &Result<Loaded, CriError>) -> Step {
        let is_older = || self.daemon.is_older_than(&self.files);
        let is_restarted = || self.undo.is_restarted(&self.daemon.root);
        let is_due = || self.permission == Permission::Given && is_restarted() && is_older();
        match (self.undo.configuration, state) {
            (Configuration::AsBefore, Ok(Loaded::Yes)) if !is_due() => Step::None,
            _ if self.permission == Permission::Withheld => Step::ByPerson,
            (Configuration::Changed, _) | (_, Ok(Loaded::Yes)) => Step::Restart,
            (_, Ok(Loaded::No)) if is_older() => Step::Restart,
            _ if is_restarted() => Step::Answer,
            _ => Step::ByPerson,
        }
    }
}
