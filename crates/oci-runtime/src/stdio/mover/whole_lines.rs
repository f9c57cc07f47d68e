//! What a process beside the program writes, in whole lines (D3).
//!
//! Owns the beginning of a line until its end has come. The program writes to the same pipe at any time: what it writes behind half a
//! line would be the rest of that line. A hook writes little, so its bytes may pass through user space.

use std::{
    cell::RefCell,
    io::{self, Read, Write},
};

use super::Mover;

/// The beginning of a line. With a line feed it is never longer than what one write puts into a pipe in one piece.
pub(in super::super) type HalfLine = RefCell<Vec<u8>>;

const LONGEST: usize = libc::PIPE_BUF - 1;

impl Mover {
    /// Moves until every writer of the source is gone and all they wrote has been moved.
    pub(super) async fn run_in_lines(&self, half: &HalfLine) -> io::Result<()> {
        loop {
            let mut readable = self.source.readable().await?;
            match self.read_more(half) {
                Ok(0) => break,
                Ok(_) => self.write_in_one_piece(&take_lines(half)).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable.clear_ready(),
                Err(error) => return Err(error),
            }
            tokio::task::coop::consume_budget().await;
        }
        let rest = self.take_rest(half);
        self.write_in_one_piece(&rest).await
    }

    /// What was written before a cut, as far as it fits.
    pub(super) fn cut_in_lines(&self, half: &HalfLine) {
        while let Ok(1..) = self.read_more(half) {
            let lines = take_lines(half);
            if self.try_write(&lines).is_err() {
                return;
            }
        }
        // A full or broken pipe takes no more.
        let _ = self.try_write(&self.take_rest(half));
    }

    fn read_more(&self, half: &HalfLine) -> io::Result<usize> {
        let mut half = half.borrow_mut();
        let begun = half.len();
        half.resize(LONGEST, 0);
        let read = self.source.get_ref().read(&mut half[begun..]);
        half.truncate(begun + read.as_ref().unwrap_or(&0));
        read
    }

    /// What is left at the end of the stream, with the end of its line.
    fn take_rest(&self, half: &HalfLine) -> Vec<u8> {
        let mut rest = half.take();
        if !rest.is_empty() || self.lines.open.as_ref().is_some_and(|open| open.is_open()) {
            rest.push(b'\n');
        }
        rest
    }

    async fn write_in_one_piece(&self, data: &[u8]) -> io::Result<()> {
        loop {
            match self.try_write(data) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_room().await?,
                done => return done,
            }
        }
    }

    /// A pipe takes up to PIPE_BUF bytes as a whole, or none.
    fn try_write(&self, data: &[u8]) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        self.end_shared_line();
        self.sink.get_ref().write_all(data)?;
        if let Some(open) = &self.lines.open {
            open.wrote(data);
        }
        Ok(())
    }
}

/// All whole lines; without one, a beginning that is too long to be kept.
fn take_lines(half: &HalfLine) -> Vec<u8> {
    let mut half = half.borrow_mut();
    let end = match half.iter().rposition(|byte| *byte == b'\n') {
        Some(line_feed) => line_feed + 1,
        None if half.len() == LONGEST => LONGEST,
        None => 0,
    };
    let rest = half.split_off(end);
    std::mem::replace(&mut *half, rest)
}
