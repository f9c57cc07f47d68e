//! systemd on the node, by the node's own systemctl.
//!
//! Owns running that program, also from a container that has the node's root below a directory: with that directory as its
//! root, systemctl finds its libraries and systemd's socket as on the node. That takes CAP_SYS_CHROOT, which containers
//! have by default; entering the node's namespaces would take a privileged container and the node's pids. This program
//! calls itself for that, as a root is a whole process's: the usual seccomp profile forbids a thread one of its own.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use super::place::Restart;
use super::root::Root;
use crate::bounded::{self, Bound, WaitEnd};
use crate::signals::Signals;

const SYSTEMCTL: &str = "/usr/bin/systemctl";
/// The hidden command that runs it with another root.
pub const ON_HOST: &str = "on-host";
/// What a service manager gives to its units.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// It is there where systemd is process 1 (sd_booted(3)).
const RUNS: &str = "/run/systemd/system";
/// The unit that keeps the order when the node goes down.
const DRAIN: &str = "podshim-drain.service";

/// Why systemd did not do it.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// systemctl cannot be run.
    #[error("cannot run the node's {SYSTEMCTL}: {0}")]
    Run(#[from] io::Error),
    /// systemctl failed; its own message is in the log.
    #[error("systemctl {0} failed on the node")]
    Failed(String),
    /// None of the units is active.
    #[error("none of these units is active on the node: {0}")]
    Inactive(String),
    /// systemctl had not ended in time.
    #[error("`systemctl {call}` had not ended after {} s on the node", .limit.as_secs())]
    Late {
        /// Its words.
        call: String,
        /// How long it had.
        limit: Duration,
    },
    /// A signal arrived before systemctl had ended.
    #[error("a signal ended the wait for `systemctl {0}`")]
    BySignal(String),
}

/// Whether systemd must read its units again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// It must.
    Changed,
    /// It has read them.
    AsBefore,
}

/// How a call of systemctl ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallEnd {
    Success,
    Failure,
}

impl CallEnd {
    fn of(status: ExitStatus) -> Self {
        if status.success() { Self::Success } else { Self::Failure }
    }
}

/// Whether the unit of the drain is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// It was.
    WasActive,
    /// It was not, and is now.
    Started,
    /// systemd does not run on the node.
    NoSystemd,
}

/// Lets systemd read its units again if they have changed, and starts the drain's if it is not active. It does nothing until the
/// node goes down; a unit that is only enabled would not be stopped then, so the first power-off would have no order.
///
/// # Errors
/// systemd did not, or not in time.
pub fn start_drain(root: &Root, units: Units, signals: Option<&Signals>) -> Result<Drain, HostError> {
    if !root.exists(Path::new(RUNS)) {
        return Ok(Drain::NoSystemd);
    }
    let is_active = is_active(root, DRAIN, signals)?;
    if units == Units::Changed || !is_active {
        need(root, &["daemon-reload"], Bound::usual(signals))?;
    }
    if is_active {
        return Ok(Drain::WasActive);
    }
    need(root, &["start", DRAIN], Bound::usual(signals))?;
    Ok(Drain::Started)
}

/// The unit with which the node's containerd is restarted; `None` where its supervisor does that.
///
/// # Errors
/// systemctl cannot be run or is late, or none of the units is active.
pub fn active_unit(
    root: &Root,
    how: Restart,
    signals: Option<&Signals>,
) -> Result<Option<&'static str>, HostError> {
    let Restart::Units(units) = how else { return Ok(None) };
    for unit in units {
        if is_active(root, unit, signals)? {
            return Ok(Some(unit));
        }
    }
    Err(HostError::Inactive(units.join(", ")))
}

/// Restarts the unit of the node's containerd, whatever state it is in, and waits until it has started. systemctl waits for a unit
/// that does not start, or does not stop; without systemctl systemd goes on with what it has begun.
///
/// # Errors
/// systemd did not, or not in time.
pub fn restart(root: &Root, unit: Option<&str>, bound: Bound<'_>) -> Result<(), HostError> {
    unit.map_or(Ok(()), |unit| need(root, &["restart", unit], bound))
}

/// Lets systemd forget units that are gone.
///
/// # Errors
/// systemd did not, or not in time.
pub fn forget_units(root: &Root) -> Result<(), HostError> {
    need(root, &["daemon-reload"], Bound::usual(None))
}

fn is_active(root: &Root, unit: &str, signals: Option<&Signals>) -> Result<bool, HostError> {
    Ok(systemctl(root, &["is-active", "--quiet", unit], Bound::usual(signals))? == CallEnd::Success)
}

fn need(root: &Root, arguments: &[&str], bound: Bound<'_>) -> Result<(), HostError> {
    match systemctl(root, arguments, bound)? {
        CallEnd::Success => Ok(()),
        CallEnd::Failure => Err(HostError::Failed(arguments.join(" "))),
    }
}

fn systemctl(root: &Root, arguments: &[&str], bound: Bound<'_>) -> Result<CallEnd, HostError> {
    match bounded::run(&mut call(root, arguments), bound)? {
        WaitEnd::Ended(status) => Ok(CallEnd::of(status)),
        WaitEnd::Late => Err(HostError::Late { call: arguments.join(" "), limit: bound.limit }),
        WaitEnd::BySignal => Err(HostError::BySignal(arguments.join(" "))),
    }
}

fn call(root: &Root, arguments: &[&str]) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(ON_HOST).arg(root.directory()).args(arguments);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Becomes systemctl with this directory as its root. Returns only if that fails.
pub fn become_systemctl(root: &Path, arguments: &[String]) -> io::Error {
    let entered = match root == Path::new("/") {
        true => Ok(()),
        false => nix::unistd::chroot(root).and_then(|()| nix::unistd::chdir("/")),
    };
    if let Err(error) = entered {
        return io::Error::other(format!("cannot make {} the root: {error}", root.display()));
    }
    let options = ["--no-ask-password", "--no-pager"];
    Command::new(SYSTEMCTL).args(options).args(arguments).env_clear().env("PATH", PATH).exec()
}
