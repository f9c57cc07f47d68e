//! Where one line of a stream ends and the next one begins (R6): the program of a restart in place, a hook and podshim's own lines
//! each begin on a line of their own, also if what came before had no line feed at its end.
//!
//! Owns how the last byte of a stream becomes known, without a copy of the stream. Moves nothing by itself.

use std::{
    cell::RefCell,
    fs::{File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::FileExt,
    sync::atomic::{AtomicBool, Ordering},
};

use nix::fcntl::{SpliceFFlags, splice, tee};

use super::endpoint::open_to_read_again;
use super::pipe::nonblocking_pipe;

/// Whether the last that a reader got of a stream is the beginning of a line.
#[derive(Debug, Default)]
pub(crate) struct OpenLine(AtomicBool);

impl OpenLine {
    /// This was written.
    pub(crate) fn wrote(&self, data: &[u8]) {
        if let Some(last) = data.last() {
            self.0.store(*last != b'\n', Ordering::Relaxed);
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A line feed at the end of a regular file that ends in the middle of a line. The process writes to such a file itself, so the file
/// alone shows where it ends.
pub(super) fn end_line_of_file(mut file: &File) {
    let ends_with_line = || {
        let length = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
        let mut last = [0];
        open_to_read_again(file).ok()?.read_exact_at(&mut last, length.checked_sub(1)?).ok()?;
        Some(last == *b"\n")
    };
    if ends_with_line() == Some(false) {
        // It is opened to append. If the disk is full, the next line is lost too.
        let _ = file.write_all(b"\n");
    }
}

/// Moves what `source` has, at most `most` bytes, and says with which byte it ends; that is unknown only where no descriptors are
/// left. 0 bytes are the end of the stream.
///
/// tee(2) shows the same pages a second time, and the byte is read from those: the stream is moved by the kernel as ever.
pub(super) fn move_and_inspect(source: &File, sink: &File, most: usize) -> nix::Result<(usize, Option<u8>)> {
    VIEW.with_borrow_mut(|place| {
        let Some(view) = place.take().or_else(|| View::open().ok()) else {
            return Ok((splice(source, None, sink, None, most, SpliceFFlags::SPLICE_F_NONBLOCK)?, None));
        };
        let seen = match tee(source, &view.writer, most, SpliceFFlags::SPLICE_F_NONBLOCK) {
            Ok(seen @ 1..) => seen,
            nothing => {
                *place = Some(view);
                return nothing.map(|end| (end, None));
            }
        };
        // No more than was seen: the process may have written more meanwhile.
        let moved = splice(source, None, sink, None, seen, SpliceFFlags::SPLICE_F_NONBLOCK);
        let last = view.take(seen, *moved.as_ref().unwrap_or(&0));
        // A view that is not empty would show bytes of another stream: it is closed.
        if let Ok(last) = last {
            *place = Some(view);
            return moved.map(|moved| (moved, last));
        }
        moved.map(|moved| (moved, None))
    })
}

thread_local! {
    /// One for all streams of a thread: it is empty between two uses.
    static VIEW: RefCell<Option<View>> = const { RefCell::new(None) };
}

/// A pipe for the second view of what is moved, and a place for what nothing needs.
#[derive(Debug)]
struct View {
    reader: File,
    writer: File,
    null: File,
}

impl View {
    fn open() -> io::Result<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        Ok(Self { reader, writer, null: OpenOptions::new().write(true).open("/dev/null")? })
    }

    /// Takes the `seen` bytes out, and returns the last of the first `moved` ones.
    fn take(&self, seen: usize, moved: usize) -> io::Result<Option<u8>> {
        let Some(before) = moved.checked_sub(1) else {
            self.drop_bytes(seen)?;
            return Ok(None);
        };
        self.drop_bytes(before)?;
        let mut last = [0];
        (&self.reader).read_exact(&mut last)?;
        self.drop_bytes(seen - moved)?;
        Ok(Some(last[0]))
    }

    fn drop_bytes(&self, mut count: usize) -> io::Result<()> {
        while count > 0 {
            match splice(&self.reader, None, &self.null, None, count, SpliceFFlags::empty())? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                dropped => count -= dropped,
            }
        }
        Ok(())
    }
}
