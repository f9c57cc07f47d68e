//! A one-way line between two threads that have different tables of descriptors.
//!
//! Owns the queue and its bell, an event descriptor. Tokio's own channels wake a task of the other thread's runtime by a descriptor of
//! that runtime's, whose number means something else in this thread's table. A bell has the same number in both: it is opened before
//! the tables part.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::async_file;

/// A line, as both threads have it.
pub struct Line<M> {
    queue: Mutex<Queue<M>>,
    bell: RawFd,
}

struct Queue<M> {
    waiting: VecDeque<M>,
    is_closed: bool,
}

impl<M> std::fmt::Debug for Line<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Line").field("bell", &self.bell).finish_non_exhaustive()
    }
}

/// One thread's own descriptor of a bell.
#[derive(Debug)]
pub struct Bell(OwnedFd);

impl<M> Line<M> {
    /// A line, and the bell in this thread's table.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn open() -> io::Result<(Arc<Self>, Bell)> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let bell: OwnedFd = bell.into();
        let queue = Mutex::new(Queue { waiting: VecDeque::new(), is_closed: false });
        Ok((Arc::new(Self { queue, bell: bell.as_raw_fd() }), Bell(bell)))
    }

    /// The number of its bell, the same in both tables.
    pub fn bell(&self) -> RawFd {
        self.bell
    }

    /// The bell in the table of a thread that has just got a table of its own.
    ///
    /// # Safety
    /// It has kept the number open, and nothing owns it there.
    pub(crate) unsafe fn bell_of_this_table(&self) -> Bell {
        // SAFETY: the caller's.
        Bell(unsafe { OwnedFd::from_raw_fd(self.bell) })
    }

    /// Sends, unless the line is closed: then the message is dropped.
    pub fn send(&self, message: M) {
        let mut queue = self.queue();
        if queue.is_closed {
            drop(queue);
            drop(message);
            return;
        }
        queue.waiting.push_back(message);
        if queue.waiting.len() == 1 {
            // SAFETY: a line is closed, under this lock, before a thread closes its bell.
            let bell = unsafe { BorrowedFd::borrow_raw(self.bell) };
            // It cannot be full: the reader resets it.
            let _ = nix::unistd::write(bell, &1u64.to_ne_bytes());
        }
    }

    /// No message comes any more. Those that wait are dropped.
    pub fn close(&self) {
        let mut queue = self.queue();
        queue.is_closed = true;
        let waiting = std::mem::take(&mut queue.waiting);
        drop(queue);
        drop(waiting);
    }

    fn take(&self) -> VecDeque<M> {
        std::mem::take(&mut self.queue().waiting)
    }

    fn queue(&self) -> MutexGuard<'_, Queue<M>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads a line.
#[derive(Debug)]
pub struct Reader<M> {
    line: Arc<Line<M>>,
    bell: AsyncFd<File>,
}

impl<M> Reader<M> {
    /// Reads `line`, whose bell in this thread's table is `bell`.
    ///
    /// # Errors
    /// No descriptor is left, or the reactor takes none.
    pub fn new(line: Arc<Line<M>>, bell: &Bell) -> io::Result<Self> {
        let bell = File::from(bell.0.as_fd().try_clone_to_owned()?);
        Ok(Self { line, bell: async_file::register(bell, Interest::READABLE)? })
    }

    /// The next messages, in their order.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn next(&self) -> io::Result<VecDeque<M>> {
        self.bell.async_io(Interest::READABLE, |mut bell| bell.read(&mut [0; size_of::<u64>()])).await?;
        Ok(self.line.take())
    }
}
