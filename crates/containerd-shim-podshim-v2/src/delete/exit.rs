//! The exit of a container that no shim has seen.

use std::time::SystemTime;

use nix::unistd::Pid;
use oci_runtime::bundle::ExitRecord;

/// The exit status that containerd's own shim reports if it did not see a container's end: as if killed (128 +
/// SIGKILL).
const UNSEEN_EXIT: u32 = 137;

/// The exit of a container whose end no shim has seen; `at` is when it ended, as far as is known.
pub(super) fn unseen_exit(pid: Pid, at: SystemTime) -> ExitRecord {
    ExitRecord { pid, exit_status: UNSEEN_EXIT, real_exit_status: UNSEEN_EXIT, exited_at: at }
}

/// When a container ended whose end was not watched.
#[expect(clippy::disallowed_methods, reason = "an exit that no process saw happened now, as far as is known")]
pub(super) fn now() -> SystemTime {
    SystemTime::now()
}
