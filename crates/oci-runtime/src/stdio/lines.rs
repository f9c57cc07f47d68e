//! Looking at the lines of a stream while they pass.
//!
//! Owns the cutting into lines, bounded in memory, and the second view of a pipe for it. The stream itself goes its
//! way as if nobody looked: nothing here can hold it up, change it, or fail it.

use std::{cell::RefCell, fs::File, io, io::Read, os::fd::AsRawFd, rc::Rc};

use nix::fcntl::{SpliceFFlags, tee};

use super::{
    Stdio, StdioPaths, StreamMode,
    endpoint::{Address, Addresses, OutputAddresses},
    nonblocking_pipe,
};

/// Longest piece of a line that is looked at, in bytes; what follows it in the line is not.
pub const LINE_LONGEST: usize = 16 * 1024;
/// Read from the second view at a time.
const CHUNK: usize = 4096;

/// Whether somebody who looks at lines wants more of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watching {
    /// More.
    GoesOn,
    /// No more: from now on nothing is looked at.
    Ends,
}

/// Is given each line without its end, and with U+FFFD for what is no UTF-8.
pub type LineWatch = Rc<RefCell<dyn FnMut(&str) -> Watching>>;

impl StdioPaths {
    /// Whether output will pass through here, where its lines can be seen. A terminal's does, through its console; a
    /// file is the process's own, a logging program reads the process's pipe, and no stream is none.
    pub fn pass_output(&self) -> bool {
        match Addresses::parse(self).map(|addresses| addresses.output) {
            _ if self.mode == StreamMode::Terminal => true,
            Ok(OutputAddresses::Apart { stdout, stderr }) => {
                [stdout, stderr].iter().flatten().any(|address| matches!(address, Address::Fifo { .. }))
            }
            Ok(OutputAddresses::Logger(_)) => false,
            // Opening them says what is wrong.
            Err(_) => true,
        }
    }
}

impl Stdio {
    /// Shows `watch` the lines of stdout and stderr that are written from now on, until it has seen enough; who
    /// looked before does no more. A terminal's are the [`Console`](crate::console::Console)'s.
    ///
    /// # Errors
    /// No more descriptors.
    pub fn watch_lines(&self, watch: &LineWatch) -> io::Result<()> {
        [&self.stdout, &self.stderr]
            .into_iter()
            .flatten()
            .filter_map(|output| output.pipe.as_ref())
            .try_for_each(|pipe| pipe.movement.watch(watch))
    }
}

/// Cuts a stream into lines.
pub(crate) struct Lines {
    watch: LineWatch,
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    state: Watching,
}

impl Lines {
    pub(crate) fn new(watch: LineWatch) -> Self {
        Self { watch, begun: Vec::new(), state: Watching::GoesOn }
    }

    /// Looks at what comes next in the stream.
    pub(crate) fn feed(&mut self, data: &[u8]) -> Watching {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            if self.state == Watching::Ends {
                break;
            }
            let room = LINE_LONGEST - self.begun.len();
            self.begun.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                // A terminal ends its lines with both.
                let end =
                    self.begun.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
                let line = String::from_utf8_lossy(&self.begun[..end]);
                self.state = (self.watch.borrow_mut())(&line);
                self.begun.clear();
            }
        }
        self.state
    }
}

impl std::fmt::Debug for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").field("begun", &self.begun.len()).finish_non_exhaustive()
    }
}

/// A second view of what is in a pipe: tee(2) doubles it without taking anything out.
#[derive(Debug)]
pub(super) struct Tap {
    lines: Lines,
    reader: File,
    writer: File,
    /// What was there before somebody looked: an earlier incarnation's, which says nothing of this one (U4).
    stale: usize,
    /// Bytes that were looked at and have not been moved yet.
    ahead: usize,
}

impl Tap {
    /// Begins behind what is in `source` now.
    pub(super) fn new(source: &File, watch: LineWatch) -> io::Result<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        let mut stale: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int, which outlives the call.
        if unsafe { libc::ioctl(source.as_raw_fd(), libc::FIONREAD, &mut stale) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { lines: Lines::new(watch), reader, writer, stale: stale.unsigned_abs() as usize, ahead: 0 })
    }

    /// Looks at what `source` holds, unless it did so already. Returns how many bytes have been looked at: as many
    /// may be moved; 0 is the end of the stream.
    pub(super) fn look(&mut self, source: &File, most: usize) -> nix::Result<(usize, Watching)> {
        if self.ahead > 0 {
            return Ok((self.ahead, self.lines.state));
        }
        self.ahead = tee(source, &self.writer, most, SpliceFFlags::SPLICE_F_NONBLOCK)?;
        let mut rest = self.ahead;
        let mut chunk = [0; CHUNK];
        while rest > 0 {
            let wanted = rest.min(CHUNK);
            // What was just put there. A look that fails all the same must not hold up the stream: the last one.
            let Ok(length @ 1..) = self.reader.read(&mut chunk[..wanted]) else {
                self.lines.state = Watching::Ends;
                break;
            };
            let old = self.stale.min(length);
            self.stale -= old;
            self.lines.feed(&chunk[old..length]);
            rest -= length;
        }
        Ok((self.ahead, self.lines.state))
    }

    /// So many bytes are out of the source.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.ahead = self.ahead.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_however_they_come() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let watch = {
            let seen = seen.clone();
            Rc::new(RefCell::new(move |line: &str| {
                seen.borrow_mut().push(line.to_owned());
                if line == "end" { Watching::Ends } else { Watching::GoesOn }
            }))
        };
        let mut lines = Lines::new(watch);
        for piece in [&b"one\ntw"[..], b"o\n\nth", b"re", b"e\r", b"\n\xff!\nno end"] {
            assert_eq!(lines.feed(piece), Watching::GoesOn);
        }
        assert_eq!(*seen.borrow(), ["one", "two", "", "three", "\u{fffd}!"]);
        assert_eq!(lines.feed(b"\nend\nafter\n"), Watching::Ends);
        assert_eq!(lines.feed(b"after\n"), Watching::Ends);
        assert_eq!(seen.borrow()[5..], ["no end", "end"]);
    }

    /// DESIGN §6: a line without an end costs no memory, and the next one is whole again.
    #[test]
    fn a_line_is_looked_at_up_to_its_bound() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let watch = {
            let seen = seen.clone();
            Rc::new(RefCell::new(move |line: &str| {
                seen.borrow_mut().push(line.len());
                Watching::GoesOn
            }))
        };
        let mut lines = Lines::new(watch);
        for _ in 0..100 {
            lines.feed(&[b'x'; 1000]);
        }
        assert!(lines.begun.capacity() <= 2 * LINE_LONGEST);
        lines.feed(b"\nshort\n");
        assert_eq!(*seen.borrow(), [LINE_LONGEST, 5]);
    }
}
