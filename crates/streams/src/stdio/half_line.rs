//! The beginning of a line of a process beside the program, until its end has come (D3).
//!
//! Owns how much of what was read may go on. The program writes to the same pipe at any time: what it writes behind half a line would
//! be the rest of that line. A hook writes little, so its bytes may pass through user space.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::io::Read;

/// With a line feed it is never longer than what one write puts into a pipe in one piece.
const LONGEST: usize = libc::PIPE_BUF - 1;

/// What has been read and is no whole line.
#[derive(Debug, Default)]
pub(super) struct HalfLine(RefCell<Vec<u8>>);

impl HalfLine {
    /// Reads what there is and fits. 0 bytes are the end of the stream.
    pub(super) fn read_more(&self, mut source: &File) -> io::Result<usize> {
        let mut half = self.0.borrow_mut();
        let begun = half.len();
        half.resize(LONGEST, 0);
        let read = source.read(&mut half[begun..]);
        half.truncate(begun + read.as_ref().unwrap_or(&0));
        read
    }

    /// All whole lines; without one, a beginning that is too long to be kept.
    pub(super) fn take_lines(&self) -> Vec<u8> {
        let mut half = self.0.borrow_mut();
        let end = match half.iter().rposition(|byte| *byte == b'\n') {
            Some(line_feed) => line_feed + 1,
            None if half.len() == LONGEST => LONGEST,
            None => 0,
        };
        let rest = half.split_off(end);
        std::mem::replace(&mut *half, rest)
    }

    /// What is left at the end of the stream.
    pub(super) fn take_rest(&self) -> Vec<u8> {
        self.0.take()
    }
}
