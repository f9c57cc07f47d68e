//! Moves one stream between a pipe and a fifo inside the kernel.
//!
//! Owns both ends of the movement, and its seams: the places where another writer begins, on a line of its own (`line_end`).
//! It never copies the data through user space on its way and never wakes up while nothing can move. A gate that reads lines sees a
//! tee(2) copy (`lines`).

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::rc::Weak;
use std::sync::{self, Arc};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags};
use threads::async_file;
use threads::async_file::poll_now;
use threads::hand::{Tenant, stock};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use super::carry::{Wanted, carry};
use super::flow::{Flow, Progress};
use super::half_line::HalfLine;
use super::line_end::OpenLine;
use super::lines::{LineReader, LineWatch};
use super::pipe::unread;
use super::relief::Relieved;

/// More than any pipe holds. splice(2) cuts a buffer only at its length limit, and an uncut buffer keeps a write of up
/// to PIPE_BUF bytes in one piece.
const EVERYTHING: usize = 1 << 30;

/// Until the next look at a stream whose lines its own hand reads.
const WATCHED: Duration = Duration::from_millis(50);

/// A move takes microseconds. A container can make it longer: the kernel wakes all that wait for its pipe, a million watches of its own.
const LONG: Duration = Duration::from_millis(1);

/// What a movement has to do with the lines that it moves.
#[derive(Debug, Default)]
pub(super) struct LineEnds {
    /// Whether it leaves its sink in the middle of a line; none for stdin, whose lines are one writer's.
    pub(super) open: Option<Arc<OpenLine>>,
    /// The movement that its sink leads into, if others write to that too.
    pub(super) shared: Weak<Mover>,
    /// What was taken out of the source before.
    pub(super) relieved: Relieved,
    /// For a process whose lines the program's may come between.
    pub(super) half: Option<HalfLine>,
}

/// A read end, a write end, and the copy between them that a watch reads.
#[derive(Debug)]
pub(super) struct Mover {
    source: AsyncFd<File>,
    sink: AsyncFd<File>,
    line_reader: RefCell<Option<LineReader>>,
    lines: LineEnds,
    flow: Arc<Flow>,
    role: Role,
}

/// For whom a mover moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// For its own hand.
    Own,
    /// For another hand, which is away.
    StandsIn,
}

impl Mover {
    /// Both ends must be pipes or fifos.
    pub(super) fn new(source: File, sink: File, lines: LineEnds) -> io::Result<Self> {
        let shared = lines.shared.upgrade().map_or_else(sync::Weak::new, |mover| Arc::downgrade(&mover.flow));
        let flow = Flow::new(lines.open.clone(), shared);
        Self::of(source, sink, lines, flow, Role::Own)
    }

    /// Goes on with a flow whose own hand is away. `shared` is the one that goes on with the flow that it leads into.
    pub(super) fn standing_in(
        source: File,
        sink: File,
        flow: Arc<Flow>,
        shared: Weak<Self>,
    ) -> io::Result<Self> {
        let lines = LineEnds { open: flow.open.clone(), shared, ..LineEnds::default() };
        Self::of(source, sink, lines, flow, Role::StandsIn)
    }

    fn of(source: File, sink: File, lines: LineEnds, flow: Arc<Flow>, role: Role) -> io::Result<Self> {
        Ok(Self {
            source: async_file::register(source, Interest::READABLE)?,
            sink: async_file::register(sink, Interest::WRITABLE)?,
            line_reader: RefCell::new(None),
            lines,
            flow,
            role,
        })
    }

    /// The read end.
    pub(super) fn source(&self) -> &File {
        self.source.get_ref()
    }

    /// Whose turns it moves in.
    pub(super) fn tenant(&self) -> Option<Tenant> {
        self.flow.tenant.clone()
    }

    /// Shows `watch` the lines that come from now on, instead of an earlier watch.
    pub(super) fn watch(&self, watch: &LineWatch) -> io::Result<()> {
        self.flow.set_watched();
        // What another hand moves now is stale, and what comes after it is not that hand's.
        let _held = self.flow.hold();
        let line_reader = LineReader::new(self.source.get_ref(), watch.clone())?;
        self.line_reader.replace(Some(line_reader));
        Ok(())
    }

    /// Moves until every writer of the source is gone and all they wrote has been moved.
    pub(super) async fn run(&self) -> io::Result<()> {
        self.write_relieved().await?;
        if let Some(half) = &self.lines.half {
            return self.run_in_lines(half).await;
        }
        let ends = [self.source.get_ref().as_fd(), self.sink.get_ref().as_fd()];
        let _stocked = match self.role {
            Role::Own => stock::put(self.flow.clone(), ends),
            Role::StandsIn => None,
        };
        loop {
            // Taken before the attempt: clearing it does not clear a readiness that arrives during the attempt.
            let mut readable = self.source.readable().await?;
            let (began, moved) = (Instant::now(), self.move_inspected().await);
            match moved {
                Ok(0) => break,
                // Looking at lines takes time; with a flood of them it would take all of the thread's.
                Ok(_) if self.line_reader.borrow().is_some() => tokio::task::yield_now().await,
                Ok(_) if began.elapsed() >= LONG => tokio::task::yield_now().await,
                // A fast writer with a fast reader must not occupy the only thread.
                Ok(_) => tokio::task::coop::consume_budget().await,
                Err(nix::Error::EINTR) => {}
                // Either side may be the reason; waiting for the wrong one would spin or hang.
                Err(nix::Error::EAGAIN) if is_ready(self.source.get_ref(), PollFlags::POLLIN)? => {
                    self.wait_for_room().await?;
                }
                Err(nix::Error::EAGAIN) => readable.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
        // It will not end its line any more, and another writer may go on.
        if let (Some(open), Some(shared)) = (&self.lines.open, self.lines.shared.upgrade())
            && open.is_open()
        {
            shared.begin_line();
        }
        Ok(())
    }

    /// The same of whole lines.
    async fn run_in_lines(&self, half: &HalfLine) -> io::Result<()> {
        loop {
            let mut readable = self.source.readable().await?;
            match half.read_more(self.source.get_ref()) {
                Ok(0) => break,
                Ok(_) => self.write_in_one_piece(&half.take_lines()).await?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable.clear_ready(),
                Err(error) => return Err(error),
            }
            tokio::task::coop::consume_budget().await;
        }
        self.write_in_one_piece(&self.last_line(half)).await
    }

    /// What is left at the end of the stream, with the end of its line.
    fn last_line(&self, half: &HalfLine) -> Vec<u8> {
        let mut rest = half.take_rest();
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
        let shared = self.flow.shared.upgrade();
        let mut shared = shared.as_ref().map(|shared| shared.hold());
        self.end_shared_line(shared.as_deref_mut());
        self.sink.get_ref().write_all(data)?;
        if let Some(open) = &self.lines.open {
            open.wrote(data);
        }
        Ok(())
    }

    /// Moves what was written just before a cut and fits; a full or broken fifo takes no more.
    pub(super) fn cut(&self) {
        match &self.lines.half {
            None => {
                let _ = self.try_move(EVERYTHING);
            }
            Some(half) => {
                while let Ok(1..) = half.read_more(self.source.get_ref())
                    && self.try_write(&half.take_lines()).is_ok()
                {}
                let _ = self.try_write(&self.last_line(half));
            }
        }
    }

    /// First what the OCI runtime's call could not leave in the pipe.
    async fn write_relieved(&self) -> io::Result<()> {
        let data = self.lines.relieved.take();
        let mut rest = &data[..];
        let shared = self.flow.shared.upgrade();
        if !rest.is_empty() {
            self.end_shared_line(shared.as_ref().map(|shared| shared.hold()).as_deref_mut());
        }
        while !rest.is_empty() {
            let written = {
                let _held = shared.as_ref().map(|shared| shared.hold());
                self.sink.get_ref().write(rest)
            };
            match written {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_for_room().await?,
                Err(error) => return Err(error),
            }
        }
        if let Some(open) = &self.lines.open {
            open.wrote(&data);
        }
        Ok(())
    }

    /// What is written to the source from now on begins on a new line.
    pub(super) fn begin_line(&self) {
        self.begin_line_in(&mut self.flow.hold());
    }

    fn begin_line_in(&self, progress: &mut Progress) {
        let seam = progress.moved + self.waiting();
        if progress.seams.back() != Some(&seam) {
            progress.seams.push_back(seam);
        }
    }

    /// Bytes in the source.
    fn waiting(&self) -> u64 {
        unread(self.source.get_ref()).unwrap_or(0)
    }

    /// Before its first byte, and after each line: another writer of the same pipe may have begun one.
    fn end_shared_line(&self, progress: Option<&mut Progress>) {
        if let (Some(open), Some(shared), Some(progress)) =
            (&self.lines.open, self.lines.shared.upgrade(), progress)
            && !open.is_open()
        {
            shared.begin_line_in(progress);
        }
    }

    /// How many bytes come before the next seam. Ends an open line at a seam that is reached, once something follows.
    fn up_to_seam(&self, progress: &mut Progress) -> nix::Result<usize> {
        while let Some(seam) = progress.seams.front() {
            let left = seam.saturating_sub(progress.moved);
            if left > 0 {
                return Ok(usize::try_from(left).unwrap_or(EVERYTHING));
            }
            if let Some(open) = self.lines.open.as_deref().filter(|open| open.is_open()) {
                if self.waiting() == 0 {
                    break;
                }
                nix::unistd::write(self.sink.get_ref(), b"\n")?;
                open.wrote(b"\n");
            }
            progress.seams.pop_front();
        }
        Ok(EVERYTHING)
    }

    /// Waits until the sink takes data again, for as long as containerd does not read.
    async fn wait_for_room(&self) -> io::Result<()> {
        loop {
            let mut writable = self.sink.writable().await?;
            if is_ready(self.sink.get_ref(), PollFlags::POLLOUT)? {
                return Ok(());
            }
            writable.clear_ready();
        }
    }

    /// How many bytes may be moved: all, or those that have been looked at. 0 is the end of the stream.
    async fn inspect(&self) -> nix::Result<usize> {
        loop {
            // Take it out of its place: a new reader may be put there meanwhile.
            let Some(mut line_reader) = self.line_reader.take() else { return Ok(EVERYTHING) };
            // On the heap: it has 4 kB, twice, which each stream's task would hold for as long as its container lives, watched or not.
            let inspected = Box::pin(line_reader.inspect(self.source.get_ref(), EVERYTHING)).await;
            let mut place = self.line_reader.borrow_mut();
            match inspected {
                // The new reader of a later incarnation starts behind the data that is there now, and counts that for
                // itself.
                _ if place.is_some() => continue,
                Ok((_, ControlFlow::Break(()))) => {
                    self.flow.watch_is_over();
                    return Ok(EVERYTHING);
                }
                inspected => {
                    *place = Some(line_reader);
                    return inspected.map(|(bytes, _)| bytes);
                }
            }
        }
    }

    /// Moves what may be moved and fits. Returns its length in bytes; 0 is the end of the stream.
    async fn move_inspected(&self) -> nix::Result<usize> {
        match self.inspect().await? {
            0 => Ok(0),
            limit => loop {
                if let Some(moved) = self.try_move(limit) {
                    return moved;
                }
                // On the heap: it is rare, and would be a part of each stream's task.
                Box::pin(tokio::time::sleep(WATCHED)).await;
            },
        }
    }

    /// None if only its own hand may move it.
    fn try_move(&self, limit: usize) -> Option<nix::Result<usize>> {
        let mut progress = self.flow.hold();
        if self.role == Role::StandsIn && self.flow.is_watched() {
            return None;
        }
        let shared = self.flow.shared.upgrade();
        let mut shared = shared.as_ref().map(|shared| shared.hold());
        Some(self.move_available(&mut progress, shared.as_deref_mut(), limit))
    }

    fn move_available(
        &self,
        progress: &mut Progress,
        shared: Option<&mut Progress>,
        limit: usize,
    ) -> nix::Result<usize> {
        let (source, sink) = (self.source.get_ref(), self.sink.get_ref());
        let moved = match &self.lines.open {
            None => carry(source, sink, limit, Wanted::Length)?.bytes,
            Some(open) => {
                let limit = limit.min(self.up_to_seam(progress)?);
                if self.lines.shared.strong_count() > 0 && self.waiting() > 0 {
                    self.end_shared_line(shared);
                }
                let moved = carry(source, sink, limit, Wanted::LastByte)?;
                open.wrote(moved.last.as_slice());
                moved.bytes
            }
        };
        progress.moved += moved as u64;
        if let Some(line_reader) = self.line_reader.borrow_mut().as_mut() {
            line_reader.moved(moved);
        }
        Ok(moved)
    }
}

/// Whether the file has one of the `wanted` events now. A hang-up or error counts too: it must be handled as well.
pub(super) fn is_ready(file: &File, wanted: PollFlags) -> io::Result<bool> {
    poll_now(PollFd::new(file.as_fd(), wanted))
}
