//! The release of dead processes of containers, on a thread of its own (H3): the kernel drops all that it keeps below /proc/PID then,
//! which is as much as a container has looked at, seconds of work.
//!
//! Owns that thread, which ends when there has been nothing to release for a moment. It only works, and never waits.

use std::{cell::RefCell, io, sync::mpsc, time::Duration};

use nix::{sys::signal::SigSet, unistd::Pid};
use tokio::sync::oneshot;

/// How long the thread stays after the last release.
const IDLE: Duration = Duration::from_millis(100);
const STACK: usize = 64 * 1024;

type Job = (Vec<Pid>, oneshot::Sender<io::Result<()>>);

/// The thread, while there is one.
#[derive(Debug, Default)]
pub(super) struct Releases(RefCell<Option<mpsc::Sender<Job>>>);

impl Releases {
    /// Frees the pids on the thread. Where there can be none, here.
    pub(super) async fn release(&self, pids: Vec<Pid>) -> io::Result<()> {
        loop {
            let (done, released) = oneshot::channel();
            if self.send((pids.clone(), done)).is_err() {
                return all(&pids);
            }
            // Otherwise the thread was just ending: the next one does it.
            if let Ok(result) = released.await {
                return result;
            }
        }
    }

    fn send(&self, job: Job) -> io::Result<()> {
        let mut thread = self.0.borrow_mut();
        let job = match thread.take() {
            None => job,
            Some(jobs) => match jobs.send(job) {
                Ok(()) => {
                    *thread = Some(jobs);
                    return Ok(());
                }
                // It has ended.
                Err(mpsc::SendError(job)) => job,
            },
        };
        let (jobs, theirs) = mpsc::channel::<Job>();
        std::thread::Builder::new().name("release".to_owned()).stack_size(STACK).spawn(move || {
            // The reaper's thread must have all of them, also while it does not listen.
            let _ = SigSet::all().thread_block();
            while let Ok((pids, done)) = theirs.recv_timeout(IDLE) {
                // The reaper may have been dropped.
                let _ = done.send(all(&pids));
            }
        })?;
        // The thread has just started, and waits for it.
        let _ = jobs.send(job);
        *thread = Some(jobs);
        Ok(())
    }
}

/// All of them, or the first error.
fn all(pids: &[Pid]) -> io::Result<()> {
    let results: Vec<_> = pids.iter().map(|pid| now(*pid)).collect();
    results.into_iter().collect()
}

/// Frees the pid.
pub(super) fn now(pid: Pid) -> io::Result<()> {
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG;
    // SAFETY: `info` is a valid siginfo_t for the kernel to fill.
    match unsafe { libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, &mut info, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
