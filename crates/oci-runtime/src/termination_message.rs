//! The file from which the kubelet reads a container's termination message (rule J9).
//!
//! Owns one write into it. The file is behind a mount of the container. If a volume is mounted there, the container
//! chooses its file system, so a helper opens the file, and podshim waits for the helper only as long as a usual write
//! takes.

use std::{
    ffi::{CStr, CString},
    io,
    path::Path,
    time::Duration,
};

use nix::errno::Errno;
use tracing::warn;

use crate::{helper_process, reaper::Reaper};

/// Most writes take a millisecond, fork included. The kubelet reads the file when the exit has been reported, so
/// podshim waits for the write first; it blocks the shim's thread for no longer than this.
const USUAL: Duration = Duration::from_millis(20);
/// When a helper that still waits is killed.
const LIMIT: Duration = Duration::from_secs(10);

/// Writes one line that the kubelet shows in the container's status. The kubelet owns the file: podshim does not create
/// it, does not follow a link in its place, and does not wait for a fifo in its place. Failures of the write are
/// logged.
///
/// # Errors
/// The system has no process or descriptor left for it, or the path contains a NUL.
pub fn write(reaper: &Reaper, path: &Path, line: &str) -> io::Result<()> {
    let (shown, path) = (path.display().to_string(), CString::new(path.as_os_str().as_encoded_bytes())?);
    let text = format!("podshim: {line}\n");
    let job = || match write_now(&path, text.as_bytes()) {
        Ok(()) => 0,
        // invariant: the kernel's error numbers end at 133.
        Err(error) => error as i32 as u8,
    };
    // SAFETY: the job only makes system calls, on texts that outlive it.
    let (helper, exit) = unsafe { helper_process::run(reaper, c"podshim-message", &[], job) }?;
    helper.wait_briefly(USUAL);
    tokio::task::spawn_local(async move {
        let reason = match tokio::time::timeout(LIMIT, exit).await {
            Ok(exit) if exit.code == 0 => return,
            Ok(exit) => io::Error::from_raw_os_error(exit.code.into()).to_string(),
            Err(_) => format!("its file system has not answered within {LIMIT:?}"),
        };
        warn!(path = shown, reason, "cannot write the termination message");
        drop(helper);
    });
    Ok(())
}

/// Runs in the helper: makes only system calls.
fn write_now(path: &CStr, text: &[u8]) -> nix::Result<()> {
    let flags = libc::O_WRONLY | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path ends with a NUL, and the text has the length given. The process's end closes the descriptor.
    unsafe {
        let file = Errno::result(libc::open(path.as_ptr(), flags))?;
        Errno::result(libc::write(file, text.as_ptr().cast(), text.len())).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{run, until};

    /// J9, DESIGN §6: the container may have put something else in the file's place.
    #[test]
    fn j9_a_termination_message_goes_into_a_file_and_nowhere_else() {
        run(async {
            let reaper = Reaper::start().unwrap();
            let directory = tempfile::tempdir().unwrap();
            let at = |name: &str| directory.path().join(name);
            std::fs::write(at("log"), "of the program itself, and longer than ours").unwrap();
            write(&reaper, &at("log"), "not started").unwrap();
            until(|| std::fs::read_to_string(at("log")).unwrap() == "podshim: not started\n").await;
            std::fs::write(at("of-the-node"), "untouched").unwrap();
            std::os::unix::fs::symlink(at("of-the-node"), at("link")).unwrap();
            nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
            let c_path = |name: &str| CString::new(at(name).into_os_string().into_encoded_bytes()).unwrap();
            for (name, error) in [
                ("link", Errno::ELOOP),
                ("fifo", Errno::ENXIO),
                ("missing", Errno::ENOENT),
                (".", Errno::EISDIR),
            ] {
                assert_eq!(write_now(&c_path(name), b"not started"), Err(error), "{name}");
            }
            assert_eq!(std::fs::read_to_string(at("of-the-node")).unwrap(), "untouched");
            assert!(!at("missing").exists());
        });
    }
}
