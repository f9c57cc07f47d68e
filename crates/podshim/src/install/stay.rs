//! `podshim install --stay`: what follows the installation on a node where a DaemonSet's pod does it.
//!
//! Owns when containerd is restarted, when the node is labelled, and the wait in between. It ends at SIGTERM, and then
//! removes nothing: a roll-out, a drain and a reboot end it too.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cri::{self, CriError, Loaded, Sandbox};
use super::files::{self, Change, Content};
use super::host::{self, HostError};
use super::label::{Labels, Ready};
use super::place::{Found, Restart};
use super::root::Root;

/// How often to ask a containerd that does not have podshim's runtime yet.
const SOON: Duration = Duration::from_secs(2);
/// How long a restarted containerd may take, unless another time is given.
pub const RESTART_LIMIT: Duration = Duration::from_secs(120);
/// The configuration that containerd did not take. Without it an installer that is started again would restart containerd again
/// and again. A reboot removes it.
const REFUSED: &str = "/run/podshim-refused-configuration";
/// How often to look whether all is as it was: a node that was removed and came back has no label.
const LATER: Duration = Duration::from_secs(60);

/// Whether containerd may be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// It may, if its configuration has changed.
    Given,
    /// People do that.
    Withheld,
}

/// Whether this installation has changed containerd's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// It has.
    Changed,
    /// It was right already.
    AsBefore,
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
}

/// What is known after the installation.
#[derive(Debug)]
pub struct Stay {
    /// The node's file system.
    pub root: Root,
    /// The node's containerd.
    pub found: Found,
    /// The files that containerd reads podshim's runtime from.
    pub files: Vec<PathBuf>,
    /// Whether the installation changed them.
    pub configuration: Configuration,
    /// What gives containerd back the configuration that it had, and as what it is known then.
    pub undo: Undo,
    /// Whether containerd may be restarted.
    pub permission: Permission,
    /// How long it may take then.
    pub restart_limit: Duration,
    /// Where the node is labelled, if it shall be.
    pub labels: Option<Labels>,
}

/// How containerd gets back the configuration that it had.
#[derive(Debug)]
pub struct Undo {
    /// The changes that do so.
    pub changes: Vec<Change>,
    /// The texts with podshim's runtime.
    pub texts: String,
}

impl Undo {
    /// Of the changes that an installation makes to these files, or, where it makes none, of those that take the runtime out.
    pub fn new(changes: &[Change], files: &[PathBuf], without_runtime: Vec<Change>) -> Self {
        // A backup is beside its file, and goes with it.
        let is_of = |change: &&Change| {
            let mut of = files.iter().map(PathBuf::as_path);
            of.any(|file| {
                change.path() == file || matches!(&change.after, Content::Copy { of, .. } if of == file)
            })
        };
        let made: Vec<_> = changes.iter().filter(is_of).collect();
        match made.is_empty() {
            true => Self {
                texts: texts(without_runtime.iter().map(|change| &change.before)),
                changes: without_runtime,
            },
            false => Self {
                changes: made.iter().rev().map(|change| change.reversed()).collect(),
                texts: texts(made.iter().map(|change| &change.after)),
            },
        }
    }

    /// Whether containerd did not take these texts at its last restart. Then the file that says so.
    pub fn refused(&self, root: &Root) -> Option<PathBuf> {
        let refused = root.read(Path::new(REFUSED)).ok()?;
        (refused == self.texts.as_bytes()).then(|| root.shown(Path::new(REFUSED)))
    }
}

fn texts<'a>(contents: impl Iterator<Item = &'a Content>) -> String {
    let texts = contents.filter_map(|content| match content {
        Content::Text(text) => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// Whether the node has the label that it shall have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Labelled {
    AsWanted,
    Failed,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    ByTime,
    BySignal,
}

/// SIGTERM and SIGINT, from here on without their usual effect. As process 1 of a container it would not get them else.
#[derive(Debug)]
pub struct Signals {
    arrived: SignalFd,
}

impl Signals {
    /// Takes the signals.
    ///
    /// # Errors
    /// The system's error.
    pub fn take() -> io::Result<Self> {
        let set: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        set.thread_block()?;
        Ok(Self { arrived: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)? })
    }

    fn wait(&self, time: Duration) -> io::Result<Woken> {
        let descriptor = self.arrived.as_fd();
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        let time = Timespec { tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX), tv_nsec: 0 };
        match poll(&mut descriptors, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(Woken::ByTime),
            Ok(_) => Ok(Woken::BySignal),
            Err(error) => Err(error.into()),
        }
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

impl Stay {
    /// Brings podshim's runtime into the running containerd, labels the node, and stays until a signal.
    ///
    /// # Errors
    /// containerd does not take the runtime: it has its configuration of before again.
    pub fn run(
        &self,
        signals: &Signals,
        mut say: impl FnMut(&str) -> io::Result<()>,
    ) -> Result<(), StayError> {
        if self.until_loaded(signals, &mut say)? == Woken::BySignal {
            return Ok(());
        }
        // A file that cannot be removed is there until the next boot.
        let _ = self.root.remove(Path::new(REFUSED));
        say("containerd has podshim's runtime")?;
        let mut last = None;
        loop {
            let ready = match loaded(&self.root, &self.found) {
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
            if signals.wait(next)? == Woken::BySignal {
                say("ended by a signal: what is installed stays")?;
                return Ok(());
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

    #[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
    fn until_loaded(
        &self,
        signals: &Signals,
        say: &mut impl FnMut(&str) -> io::Result<()>,
    ) -> Result<Woken, StayError> {
        let mut state = loaded(&self.root, &self.found);
        let restarts = match (self.permission, self.needs_restart(&state)) {
            (_, false) if matches!(state, Ok(Loaded::Yes)) => return Ok(Woken::ByTime),
            (permission, needs_restart) => needs_restart && permission == Permission::Given,
        };
        let name = self.found.distribution.name();
        let mut unit = None;
        if restarts {
            // Before the restart: after one that failed the unit is not active.
            unit = host::active_unit(&self.root, self.found.distribution.restart())?;
            say(&match self.found.distribution.restart() {
                Restart::Units(_) => {
                    format!("restarting the containerd of {name}: its configuration has changed")
                }
                Restart::ByItself => format!("{name} restarts its containerd by itself"),
            })?;
            if let Err(error) = host::restart(&self.root, unit) {
                return Err(self.revert(unit, error.to_string(), signals));
            }
        } else if self.configuration == Configuration::Changed || matches!(state, Ok(Loaded::No)) {
            say(&format!(
                "the containerd of {name} must be restarted on the node: it reads its configuration only then"
            ))?;
        }
        let begin = Instant::now();
        loop {
            state = loaded(&self.root, &self.found);
            if matches!(state, Ok(Loaded::Yes)) {
                return Ok(Woken::ByTime);
            }
            if restarts && begin.elapsed() >= self.restart_limit {
                let state = match state {
                    Ok(_) => "it runs without it".to_owned(),
                    Err(error) => error.to_string(),
                };
                let seconds = self.restart_limit.as_secs();
                return Err(self.revert(unit, format!("{state} for {seconds} s"), signals));
            }
            if signals.wait(SOON)? == Woken::BySignal {
                return Ok(Woken::BySignal);
            }
        }
    }

    /// Gives containerd back the configuration that it had, and restarts it.
    fn revert(&self, unit: Option<&str>, state: String, signals: &Signals) -> StayError {
        let reverted = match self.give_back(unit, signals) {
            Ok(Loaded::Yes) => {
                "its configuration is as before, with which it has the runtime again".to_owned()
            }
            Ok(Loaded::No) => "its configuration is as before, with which it answers again".to_owned(),
            Err(error) => error,
        };
        if !matches!(loaded(&self.root, &self.found), Ok(Loaded::Yes)) {
            // Of a node that had it before. The failure itself is what there is to report.
            let _ = self.label(Ready::No);
        }
        StayError::NotLoaded { socket: self.found.distribution.socket().to_owned(), state, reverted }
    }

    #[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
    fn give_back(&self, unit: Option<&str>, signals: &Signals) -> Result<Loaded, String> {
        // First: an installer that is killed meanwhile must not try the same again.
        let path = Path::new(REFUSED);
        let marked = self.root.put_file(path, self.undo.texts.as_bytes(), path, 0o600);
        marked
            .map_err(|error| format!("its configuration stays, as {REFUSED} cannot be written: {error}"))?;
        files::apply(&self.undo.changes)
            .map_err(|error| format!("its configuration cannot be given back: {error}"))?;
        host::restart(&self.root, unit)
            .map_err(|error| format!("its configuration is as before, but it was not restarted: {error}"))?;
        let begin = Instant::now();
        loop {
            match loaded(&self.root, &self.found) {
                Ok(state) => return Ok(state),
                Err(error) if begin.elapsed() >= self.restart_limit => {
                    return Err(format!("its configuration is as before, but it does not answer: {error}"));
                }
                Err(_) => {}
            }
            if !matches!(signals.wait(SOON), Ok(Woken::ByTime)) {
                return Err("its configuration is as before, and it is being restarted".to_owned());
            }
        }
    }

    /// containerd reads its configuration when it starts, and makes its socket then. So an installer that was killed
    /// between the change and the restart finds by the times that the restart is still due; and a containerd that does not
    /// take the runtime is not restarted again and again.
    fn needs_restart(&self, state: &Result<Loaded, CriError>) -> bool {
        let started = self.root.changed_at(self.found.distribution.socket());
        let is_newer = |file: &PathBuf| match (self.root.changed_at(file), started) {
            (Some(changed), Some(started)) => changed > started,
            _ => false,
        };
        self.configuration == Configuration::Changed
            || matches!(state, Ok(Loaded::No)) && self.files.iter().any(is_newer)
    }
}
