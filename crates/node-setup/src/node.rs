//! Facts about this node that no file has. Owns running the few programs that report them.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Command, Stdio};
use std::str::FromStr;

use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::bounded::{self, Bound, WaitEnd};

/// The standard output of a program; `None` if it cannot be run, fails, or does not end.
pub fn output(program: &OsStr, arguments: &[&str]) -> Option<String> {
    // A file, as a pipe that is not read would stop the program.
    let mut written = File::from(memfd_create(c"output", MFdFlags::MFD_CLOEXEC).ok()?);
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(written.try_clone().ok()?).stderr(Stdio::null());
    let WaitEnd::Ended(status) = bounded::run(&mut command, Bound::usual(None)).ok()? else { return None };
    let mut output = Vec::new();
    written.rewind().ok()?;
    written.read_to_end(&mut output).ok()?;
    status.success().then(|| String::from_utf8_lossy(&output).into_owned())
}

/// systemd's search path, as containerd's unit sets no other.
pub(crate) const PATH_OF_UNITS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// A release of containerd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
}

/// The first containerd with which podshim serves the Sandbox API: an older one panics when a pod of the node's network is
/// created (containerd#12983).
pub const FIRST_WITH_SHIM: Release = Release { major: 2, minor: 3 };

impl Release {
    /// Parses a version as people write it: `1.7`, `v2.1.4`, `1.6.20~ds1`.
    pub fn parse(version: &str) -> Option<Self> {
        let mut numbers = version.strip_prefix('v').unwrap_or(version).split(|c: char| !c.is_ascii_digit());
        Some(Self { major: numbers.next()?.parse().ok()?, minor: numbers.next()?.parse().ok()? })
    }

    /// Parses the output of `containerd --version`: program, source, version.
    pub fn of_output(output: &str) -> Option<Self> {
        Self::parse(output.split_whitespace().nth(2)?)
    }

    /// The release of the containerd in the PATH.
    pub fn installed() -> Option<Self> {
        Self::of_output(&output(OsStr::new("containerd"), &["--version"])?)
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// A text is not a version.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("not a version such as 1.7 or 2.1")]
pub struct ReleaseError;

impl FromStr for Release {
    type Err = ReleaseError;

    fn from_str(version: &str) -> Result<Self, ReleaseError> {
        Self::parse(version).ok_or(ReleaseError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read_as_each_builder_writes_them() {
        for (output, wanted) in [
            ("containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3", Some((1, 6))),
            ("containerd containerd.io 1.7.27 05044ec0a9a75232cad458027ca83437aae3f4da", Some((1, 7))),
            ("containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7193e4", Some((2, 1))),
            ("containerd github.com/containerd/containerd/v2 2.1.9+unknown ", Some((2, 1))),
            ("containerd", None),
            ("containerd of unknown version", None),
        ] {
            let release = Release::of_output(output).map(|release| (release.major, release.minor));
            assert_eq!(release, wanted, "{output}");
        }
    }
}
