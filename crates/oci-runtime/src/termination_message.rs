//! The file from which the kubelet reads a container's termination message (rule J9).
//!
//! Owns what podshim writes into it, and that a restart in place begins with an empty one (R6): to a kubelet, what an earlier program
//! has written there would be the message of the next one's end. The file is behind a mount of the container. If a volume is
//! mounted there, the container chooses its file system, so a helper opens the file, and podshim waits for the helper only as
//! long as a usual write takes.

use std::ffi::{CStr, CString};
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use processes::helper_process::{self, HelperProcess};
use processes::reaper::{ExitWatch, Reaper};
use tracing::warn;

/// Most writes take a millisecond, fork included. The kubelet reads the file when the exit has been reported, so
/// podshim waits for the write first; it blocks the shim's thread for no longer than this.
const USUAL: Duration = Duration::from_millis(20);
/// When a helper that still waits is killed.
const LIMIT: Duration = Duration::from_secs(10);

/// How long a restart waits for a file system that does not answer. The program then starts all the same.
const CLEAR_LIMIT: Duration = Duration::from_secs(2);

/// Writes one line that the kubelet shows in the container's status. The kubelet owns the file: podshim does not create
/// it, does not follow a link in its place, and does not wait for a fifo in its place. Failures of the write are
/// logged.
///
/// # Errors
/// The system has no process or descriptor left for it, or the path contains a NUL.
pub fn write(reaper: &Reaper, path: &Path, line: &str) -> io::Result<()> {
    let shown = path.display().to_string();
    let (helper, exit) = replace(reaper, path, format!("podshim: {line}\n").as_bytes())?;
    helper.wait_briefly(USUAL);
    tokio::task::spawn_local(async move {
        if let Err(error) = end_of(exit, LIMIT).await {
            warn!(path = shown, %error, "cannot write the termination message");
        }
        drop(helper);
    });
    Ok(())
}

/// Empties it, in the same way. Returns when that has been done or cannot be; failures are logged.
pub async fn clear(reaper: &Reaper, path: &Path) {
    let cleared = match replace(reaper, path, b"") {
        Ok((helper, exit)) => {
            let end = end_of(exit, CLEAR_LIMIT).await;
            drop(helper);
            end
        }
        Err(error) => Err(error),
    };
    if let Err(error) = cleared {
        warn!(path = %path.display(), %error, "cannot empty the termination message: a kubelet may show that of the program before");
    }
}

fn replace(reaper: &Reaper, path: &Path, text: &[u8]) -> io::Result<(HelperProcess, ExitWatch)> {
    let path = CString::new(path.as_os_str().as_encoded_bytes())?;
    let job = || match write_now(&path, text) {
        Ok(()) => 0,
        // invariant: the kernel's error numbers end at 133.
        Err(error) => error as i32 as u8,
    };
    // SAFETY: the job only makes system calls, on texts that outlive it.
    unsafe { helper_process::run(reaper, c"podshim-message", &[], job) }
}

async fn end_of(exit: ExitWatch, limit: Duration) -> io::Result<()> {
    let late = || format!("its file system has not answered within {limit:?}");
    match tokio::time::timeout(limit, exit).await {
        Ok(exit) if exit.code == 0 => Ok(()),
        Ok(exit) => Err(io::Error::from_raw_os_error(exit.code.into())),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, late())),
    }
}

/// Runs in the helper: makes only system calls.
fn write_now(path: &CStr, text: &[u8]) -> nix::Result<()> {
    let flags = libc::O_WRONLY | libc::O_TRUNC | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: the path ends with a NUL, and the text has the length given. The process's end closes the descriptor.
    unsafe {
        let file = Errno::result(libc::open(path.as_ptr(), flags))?;
        if !text.is_empty() {
            Errno::result(libc::write(file, text.as_ptr().cast(), text.len()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::{run, until};

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

    /// D12, R6: empty when this returns, and nothing else is.
    #[test]
    fn d12_a_termination_message_of_an_earlier_run_is_emptied_and_no_other_file() {
        run(async {
            let reaper = Reaper::start().unwrap();
            let directory = tempfile::tempdir().unwrap();
            let at = |name: &str| directory.path().join(name);
            std::fs::write(at("log"), "of the run before").unwrap();
            clear(&reaper, &at("log")).await;
            assert_eq!(std::fs::read_to_string(at("log")).unwrap(), "");
            std::fs::write(at("of-the-node"), "untouched").unwrap();
            std::os::unix::fs::symlink(at("of-the-node"), at("link")).unwrap();
            nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
            for name in ["link", "fifo", "missing"] {
                clear(&reaper, &at(name)).await;
            }
            assert_eq!(std::fs::read_to_string(at("of-the-node")).unwrap(), "untouched");
            assert!(!at("missing").exists());
        });
    }
}
