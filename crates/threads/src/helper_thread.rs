//! Runs one blocking job on a thread of its own that ends with the job.
//!
//! For system calls that change the calling thread (`setns`, `unshare`, `chdir`) or may block for long (mounts). A pool
//! thread would carry the changed state into its next job, and an idle pool costs memory in every pod. So neither
//! `spawn_blocking` nor the owner's thread may be used for them.

use std::io;

use nix::sys::signal::{SigSet, Signal};
use tokio::sync::oneshot;

/// Runs `job` on a new thread and returns its result.
///
/// Dropping the future does not stop the job: a system call cannot be interrupted half way.
///
/// # Errors
/// The job's, or the kernel's if no thread can be made.
pub async fn run<T, F>(name: &str, job: F) -> io::Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> io::Result<T> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // The reaper's.
        let _ = SigSet::from(Signal::SIGCHLD).thread_block();
        // If the caller was cancelled, the receiver is gone: the result is not needed.
        let _ = sender.send(job());
    })?;
    receiver.await.unwrap_or_else(|_| Err(io::Error::other("the helper thread ended without a result")))
}
