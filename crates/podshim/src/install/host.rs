//! systemd on the node, by the node's own systemctl.
//!
//! Owns running that program, also from a container that has the node's root below a directory: with that directory as its
//! root, systemctl finds its libraries and systemd's socket as on the node. That takes CAP_SYS_CHROOT, which containers
//! have by default; entering the node's namespaces would take a privileged container and the node's pids.

use std::fs::File;
use std::io;
use std::process::{Command, Stdio};
use std::thread;

use nix::sched::{CloneFlags, unshare};

use super::place::Restart;
use super::root::Root;

const SYSTEMCTL: &str = "/usr/bin/systemctl";
/// What a service manager gives to its units.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
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
}

/// How a call of systemctl ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Success,
    Failure,
}

/// Lets systemd read its units again, and starts the drain's, which does nothing until the node goes down.
///
/// # Errors
/// systemd did not.
pub fn take_units(root: &Root) -> Result<(), HostError> {
    need(root, &["daemon-reload"])?;
    need(root, &["start", DRAIN])
}

/// Restarts the node's containerd.
///
/// # Errors
/// systemd did not.
pub fn restart(root: &Root, how: Restart) -> Result<(), HostError> {
    let Restart::Units(units) = how else { return Ok(()) };
    for unit in units {
        if systemctl(root, &["is-active", "--quiet", unit])? == End::Success {
            return need(root, &["restart", unit]);
        }
    }
    Err(HostError::Inactive(units.join(", ")))
}

/// Lets systemd forget units that are gone.
///
/// # Errors
/// systemd did not.
pub fn forget_units(root: &Root) -> Result<(), HostError> {
    need(root, &["daemon-reload"])
}

fn need(root: &Root, arguments: &[&str]) -> Result<(), HostError> {
    match systemctl(root, arguments)? {
        End::Success => Ok(()),
        End::Failure => Err(HostError::Failed(arguments.join(" "))),
    }
}

/// Runs systemctl in a thread of its own, whose root alone changes; the program inherits it.
fn systemctl(root: &Root, arguments: &[&str]) -> io::Result<End> {
    let run = || {
        // Of this root: the other one may have no devices.
        let null = || File::options().read(true).write(true).open("/dev/null");
        let (input, output) = (null()?, null()?);
        if !root.is_own() {
            unshare(CloneFlags::CLONE_FS)?;
            nix::unistd::chroot(root.directory())?;
            nix::unistd::chdir("/")?;
        }
        #[allow(
            clippy::disallowed_methods,
            reason = "the reaper is the shim's; this command has no other children"
        )]
        let status = Command::new(SYSTEMCTL)
            .args(["--no-ask-password", "--no-pager"])
            .args(arguments)
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::from(input))
            .stdout(Stdio::from(output))
            .status()?;
        Ok(if status.success() { End::Success } else { End::Failure })
    };
    thread::scope(|scope| scope.spawn(run).join().unwrap_or_else(|_| Err(io::Error::other("it panicked"))))
}
