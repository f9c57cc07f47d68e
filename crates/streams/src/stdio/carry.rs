//! Moves what one pipe has into another one, and never holds the locks of both.
//!
//! Owns the pipe in between, which is this thread's alone. splice(2) from a pipe to a pipe takes both locks, in the order of their
//! addresses, and waits for the second one with the first one held (`pipe_double_lock` in the kernel's fs/splice.c). A container can hold
//! the lock of its own pipe for as long as it likes: containerd or a client would then wait in the kernel for that of its fifo.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};

use nix::fcntl::{SpliceFFlags, splice, tee};

use super::pipe::nonblocking_pipe;

/// What a caller wants to know of what was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Length,
    LastByte,
}

/// So much was moved. No bytes are the end of the stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) bytes: usize,
    /// If it was wanted, and the process has not read its own output meanwhile.
    pub(super) last: Option<u8>,
}

thread_local! {
    /// One for all streams of a thread: it is empty between two uses.
    static BETWEEN: RefCell<Option<Between>> = const { RefCell::new(None) };
}

/// Moves what `source` has and fits, at most `most` bytes.
///
/// tee(2) shows the pages of `source` a second time, in the pipe in between; from there they go to `sink`; and only what has arrived is
/// taken out of `source`. So what has not arrived is in `source` at each moment, whichever thread goes on.
///
/// # Errors
/// EAGAIN: nothing is there, or does not fit. EMFILE, ENFILE: no descriptors are left for the pipe in between.
pub(super) fn carry(source: &File, sink: &File, most: usize, wanted: Wanted) -> nix::Result<Moved> {
    BETWEEN.with_borrow_mut(|place| {
        let between = place.take().map_or_else(Between::open, Ok)?;
        let (moved, between) = between.carry(source, sink, most, wanted);
        *place = between;
        moved
    })
}

/// A pipe, and a place for what nothing needs.
#[derive(Debug)]
struct Between {
    reader: File,
    writer: File,
    null: File,
}

impl Between {
    fn open() -> nix::Result<Self> {
        let open = || {
            let (reader, writer) = nonblocking_pipe()?;
            Ok(Self { reader, writer, null: OpenOptions::new().write(true).open("/dev/null")? })
        };
        open().map_err(|error: io::Error| nix::Error::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
    }

    /// Gives itself back if it is empty: what is left in it would come in another stream.
    fn carry(
        self,
        source: &File,
        sink: &File,
        most: usize,
        wanted: Wanted,
    ) -> (nix::Result<Moved>, Option<Self>) {
        let seen = match tee(source, &self.writer, most, SpliceFFlags::SPLICE_F_NONBLOCK) {
            Ok(seen @ 1..) => seen,
            nothing => return (nothing.map(|_| Moved::default()), Some(self)),
        };
        let arrived = splice(&self.reader, None, sink, None, seen, SpliceFFlags::SPLICE_F_NONBLOCK);
        let moved = arrived.map(|bytes| Moved { bytes, last: self.take_out(source, bytes, wanted) });
        let is_empty = self.drop_from(&self.reader, seen - *arrived.as_ref().unwrap_or(&0));
        (moved, is_empty.then_some(self))
    }

    /// Takes so many bytes out of `source`, and returns the last one if it is wanted.
    fn take_out(&self, source: &File, bytes: usize, wanted: Wanted) -> Option<u8> {
        let apart = usize::from(wanted == Wanted::LastByte && bytes > 0);
        if !self.drop_from(source, bytes - apart) || apart == 0 {
            return None;
        }
        let mut last = [0];
        // The end of `source` does not block.
        let mut source = source;
        source.read_exact(&mut last).ok().map(|()| last[0])
    }

    /// Whether all of it was there.
    fn drop_from(&self, pipe: &File, mut bytes: usize) -> bool {
        while bytes > 0 {
            match splice(pipe, None, &self.null, None, bytes, SpliceFFlags::SPLICE_F_NONBLOCK) {
                Ok(dropped @ 1..) => bytes -= dropped,
                Err(nix::Error::EINTR) => {}
                // Its process has read its own output, or opened its own input a second time.
                Ok(_) | Err(_) => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests;
