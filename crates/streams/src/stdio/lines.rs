//! Reads the lines of a stream while they pass.
//!
//! Owns the cutting into lines, which is bounded in memory and in processor time, and the second view of a pipe for it.
//! Nothing here can change the stream or make it fail. While a watch reads, the stream moves no faster than the watch.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use nix::fcntl::{SpliceFFlags, tee};
use processes::thread_processor_time;
use tokio::time::Instant;

use super::pipe::{nonblocking_pipe, unread};

/// Longest part of a line that is read, in bytes; the rest of the line is skipped.
pub const LINE_LONGEST: usize = 16 * 1024;
/// Bytes that are read from the second view at a time.
const CHUNK: usize = 4096;

/// A line without its end, piece by piece, with U+FFFD for invalid UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'text> {
    /// The next part of the line.
    Part(&'text str),
    /// The line is over.
    End,
}

/// Steps between two pauses: half a millisecond of processor time to three, as the machine is.
const TURN_STEPS: usize = 100_000;
/// Reading lines takes at most a fifth of a processor, for all streams of the pod together: it happens outside of the
/// container's limits, and the container decides how much it writes. A pause is at least this long.
const PAUSE: Duration = Duration::from_millis(4);
/// A pause is so many times the processor time of its turn. Not of the time that has passed: a turn takes longer when other threads are
/// busy too, and that must not make the pause longer.
const PAUSES_OF_TURN: u32 = 4;
/// At the most: between two parts of a turn the thread may do other work, which its processor time includes.
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// How fast the lines of a pod are read; one for all its streams. It is no lock: a stream that has one and does not go on, because its
/// container delays another hand, would keep the others waiting.
#[derive(Debug, Clone, Default)]
pub struct LinePace(Rc<Cell<Option<Instant>>>);

thread_local! {
    static OF_THREAD: LinePace = LinePace::default();
}

impl LinePace {
    /// The one of all streams of this thread.
    pub fn of_this_thread() -> Self {
        OF_THREAD.with(Self::clone)
    }

    /// Pauses after a turn that took that much of a processor. A stream that comes during the pause waits for its end before it starts its
    /// own.
    async fn rest(&self, used: Duration) {
        let now = Instant::now();
        let pause = (used * PAUSES_OF_TURN).clamp(PAUSE, LONGEST_PAUSE);
        let end = self.0.get().map_or(now, |earlier| earlier.max(now)) + pause;
        self.0.set(Some(end));
        tokio::time::sleep_until(end).await;
    }
}

type LineCallback = dyn FnMut(Piece<'_>) -> ControlFlow<()>;

/// A reader of lines.
#[derive(Clone)]
pub struct LineWatch {
    callback: Rc<RefCell<LineCallback>>,
    /// Bytes between two pauses.
    turn: usize,
    pace: LinePace,
}

impl LineWatch {
    /// `callback` gets each line, until it breaks; one byte costs it at most `steps_per_letter` steps.
    pub(crate) fn new(
        steps_per_letter: usize,
        pace: LinePace,
        callback: impl FnMut(Piece<'_>) -> ControlFlow<()> + 'static,
    ) -> Self {
        // A character is never cut in two.
        let turn = (TURN_STEPS / steps_per_letter.max(1)).max(char::MAX.len_utf8());
        Self { callback: Rc::new(RefCell::new(callback)), turn, pace }
    }
}

impl std::fmt::Debug for LineWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LineWatch").field("turn", &self.turn).finish_non_exhaustive()
    }
}

/// Cuts a stream into lines.
#[derive(Debug)]
pub(crate) struct Lines {
    watch: LineWatch,
    /// The start of a line whose end has not come yet.
    begun: Vec<u8>,
    state: ControlFlow<()>,
    /// Bytes until the next pause.
    left: usize,
    /// What the thread had used of a processor when the turn began. Another hand that goes on with a stream has used something else: then a
    /// pause has its least or its greatest length.
    turn_began: Duration,
}

impl Lines {
    pub(crate) fn new(watch: LineWatch) -> Self {
        let left = watch.turn;
        let (begun, state) = (Vec::new(), ControlFlow::Continue(()));
        Self { watch, begun, state, left, turn_began: thread_processor_time() }
    }

    /// Reads the next bytes of the stream. Yields the thread meanwhile, even in the middle of a line.
    pub(crate) async fn feed(&mut self, data: &[u8]) -> ControlFlow<()> {
        for piece in data.split_inclusive(|byte| *byte == b'\n') {
            if self.state == ControlFlow::Break(()) {
                break;
            }
            let room = LINE_LONGEST - self.begun.len();
            self.begun.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.begun);
                // A terminal ends its lines with both characters.
                let end = line.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |at| at + 1);
                self.inspect_line(&String::from_utf8_lossy(&line[..end])).await;
                self.begun = line;
                self.begun.clear();
            }
        }
        self.state
    }

    async fn inspect_line(&mut self, line: &str) {
        let mut rest = line;
        while !rest.is_empty() && self.state == ControlFlow::Continue(()) {
            let (now, later) = rest.split_at(rest.floor_char_boundary(self.left.max(char::MAX.len_utf8())));
            self.inspect(Piece::Part(now), now.len()).await;
            rest = later;
        }
        if self.state == ControlFlow::Continue(()) {
            // An empty line costs as much as one byte.
            self.inspect(Piece::End, 1).await;
        }
    }

    async fn inspect(&mut self, piece: Piece<'_>, letters: usize) {
        self.state = (self.watch.callback.borrow_mut())(piece);
        self.left = self.left.saturating_sub(letters);
        if self.left == 0 {
            self.left = self.watch.turn;
            self.watch.pace.rest(thread_processor_time().saturating_sub(self.turn_began)).await;
            self.turn_began = thread_processor_time();
        }
    }
}

/// A second view of what is in a pipe: tee(2) copies it without taking anything out.
#[derive(Debug)]
pub(super) struct LineReader {
    lines: Lines,
    reader: File,
    writer: File,
    /// Bytes that were there before the watch began: an earlier incarnation wrote them, so they say nothing of this one
    /// (U4).
    stale: usize,
    /// Bytes that were read and have not been moved yet.
    ahead: usize,
}

impl LineReader {
    /// Starts behind what is in `source` now.
    pub(super) fn new(source: &File, watch: LineWatch) -> io::Result<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        let stale = usize::try_from(unread(source)?).unwrap_or(usize::MAX);
        Ok(Self { lines: Lines::new(watch), reader, writer, stale, ahead: 0 })
    }

    /// Reads what `source` holds, unless that was read already. Returns how many bytes were read: so many may be moved;
    /// 0 is the end of the stream. If the future is dropped half way, the reader can no longer be used.
    pub(super) async fn inspect(
        &mut self,
        source: &File,
        most: usize,
    ) -> nix::Result<(usize, ControlFlow<()>)> {
        if self.ahead > 0 {
            return Ok((self.ahead, self.lines.state));
        }
        self.ahead = tee(source, &self.writer, most, SpliceFFlags::SPLICE_F_NONBLOCK)?;
        let mut rest = self.ahead;
        let mut chunk = [0; CHUNK];
        while rest > 0 {
            let wanted = rest.min(CHUNK);
            // tee just put these bytes there. If the read fails all the same, end the watch: it must not block the
            // stream.
            let Ok(length @ 1..) = self.reader.read(&mut chunk[..wanted]) else {
                self.lines.state = ControlFlow::Break(());
                break;
            };
            let old = self.stale.min(length);
            self.stale -= old;
            let _ = self.lines.feed(&chunk[old..length]).await;
            rest -= length;
        }
        Ok((self.ahead, self.lines.state))
    }

    /// So many bytes have left the source.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.ahead = self.ahead.saturating_sub(bytes);
    }
}

#[cfg(test)]
mod tests;
