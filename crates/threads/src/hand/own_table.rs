//! A thread leaves the head's descriptors: from then on it has a table of its own.

use std::io;
use std::os::fd::RawFd;

use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::SigSet;

/// The head's descriptors in the table of a thread that has left them. They are closed there when this is dropped.
#[derive(Debug)]
pub struct HeadsDescriptors(Vec<RawFd>);

impl HeadsDescriptors {
    /// This thread has a table of its own from here on. What stays open in it are the three standard ones and `keeps`.
    ///
    /// # Errors
    /// The kernel's. The thread may have the head's table then.
    pub fn left_behind(keeps: &[RawFd]) -> io::Result<Self> {
        // The handlers of the head's signals write to descriptors of the head's.
        SigSet::all().thread_block()?;
        unshare(CloneFlags::CLONE_FILES)?;
        let is_the_heads = |number: &RawFd| *number > libc::STDERR_FILENO && !keeps.contains(number);
        Ok(Self(own_descriptors()?.into_iter().filter(is_the_heads).collect()))
    }

    /// Their numbers.
    pub fn numbers(&self) -> &[RawFd] {
        &self.0
    }
}

impl Drop for HeadsDescriptors {
    fn drop(&mut self) {
        for number in &self.0 {
            // SAFETY: the table is this thread's alone since the unshare, and no object of this thread owns the number.
            unsafe { libc::close(*number) };
        }
    }
}

/// The numbers of this thread's table.
fn own_descriptors() -> io::Result<Vec<RawFd>> {
    let entries = std::fs::read_dir("/proc/thread-self/fd")?;
    let listed = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let mut numbers: Vec<RawFd> = listed.collect();
    // The directory's own descriptor is in the list, and is closed only now: each entry keeps it open.
    numbers.retain(is_open);
    Ok(numbers)
}

fn is_open(number: &RawFd) -> bool {
    // SAFETY: it only queries the number.
    unsafe { libc::fcntl(*number, libc::F_GETFD) >= 0 }
}
