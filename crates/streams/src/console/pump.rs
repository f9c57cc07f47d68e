//! Copies between a terminal and containerd's fifos.
//!
//! Owns its descriptors, the buffer and how a batch of output is made. Knows no process and no container, so that any thread with a
//! reactor can run it.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::pause::Pause;
use crate::stdio::{Lines, OpenLine};

/// What a client types is short.
const INPUT_BUFFER: usize = 4 * 1024;
/// The kernel hands out at most 4 KiB of a terminal's output at a time; several of them go to the fifo together.
const OUTPUT_BUFFER: usize = 16 * 1024;
/// A program that writes little at a time, as most do on a terminal, would wake the shim, and the shim the client, for each write,
/// and all three would take the processors from each other. So while such output flows, the next look comes a moment later and finds
/// more: a pty holds what a fast program writes in this time. Nothing waits that comes after a silence, such as an echo.
const GATHERING: Duration = Duration::from_micros(300);
/// Output that comes within this time of the last one flows.
const FLOW: Duration = Duration::from_millis(2);
/// What the kernel hands out at once when there is much.
const MUCH: usize = 4 * 1024 - 1;
/// More than a pty holds. So much is read of a terminal at its end, although another process goes on writing to it.
const LAST_BYTES: usize = 128 * 1024;

/// The watch that reads the output's lines, if any.
pub(super) type WatchedLines = Rc<RefCell<Option<Lines>>>;

/// When the output ends although the terminal is still open.
#[derive(Debug, Default)]
pub(super) struct OutputEnd {
    deadline: Cell<Option<Instant>>,
    changed: Notify,
}

impl OutputEnd {
    /// An earlier deadline stays.
    pub(super) fn set(&self, deadline: Instant) {
        if self.deadline.get().is_none_or(|earlier| deadline < earlier) {
            self.deadline.set(Some(deadline));
            self.changed.notify_one();
        }
    }

    fn has_passed(&self) -> bool {
        self.deadline.get().is_some_and(|deadline| deadline <= Instant::now())
    }

    /// Resolves when the deadline has passed, or has changed.
    async fn wait(&self) {
        let passed = async {
            match self.deadline.get() {
                Some(deadline) => tokio::time::sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = passed => {}
            () = self.changed.notified() => {}
        }
    }
}

/// What one look at a terminal has found.
enum Batch {
    /// So many bytes.
    Bytes(usize),
    /// Nothing is there now.
    Nothing,
    /// Its last process has closed it.
    End,
}

/// Where a terminal's output goes.
#[derive(Debug)]
pub(super) struct Sink {
    fifo: AsyncFd<File>,
    line: Arc<OpenLine>,
    is_first: bool,
}

impl Sink {
    pub(super) fn new(fifo: AsyncFd<File>, line: Arc<OpenLine>) -> Self {
        Self { fifo, line, is_first: true }
    }

    async fn write(&mut self, data: &[u8]) -> io::Result<()> {
        // R6: an earlier incarnation may have left a line open.
        if std::mem::take(&mut self.is_first) && self.line.is_open() {
            write_all(&self.fifo, b"\r\n").await?;
        }
        write_all(&self.fifo, data).await?;
        self.line.wrote(data);
        Ok(())
    }
}

/// Copies the output of a terminal to a fifo. Without one it reads the output and drops it: otherwise the process would block on a
/// full pty.
#[derive(Debug)]
pub(super) struct OutputPump {
    master: Rc<AsyncFd<File>>,
    sink: Option<Sink>,
    lines: WatchedLines,
    end: Rc<OutputEnd>,
    last_bytes: usize,
    buffer: Box<[u8]>,
    pause: Pause,
}

impl OutputPump {
    pub(super) fn new(
        master: Rc<AsyncFd<File>>,
        sink: Option<Sink>,
        lines: WatchedLines,
        end: Rc<OutputEnd>,
    ) -> Self {
        let buffer = vec![0; OUTPUT_BUFFER].into_boxed_slice();
        Self { master, sink, lines, end, last_bytes: LAST_BYTES, buffer, pause: Pause::default() }
    }

    /// Copies until the terminal is closed, or until its end and all that it holds then.
    pub(super) async fn run(mut self) -> io::Result<()> {
        let mut flows_until = Instant::now();
        loop {
            let length = self.next().await?;
            if length == 0 {
                return Ok(());
            }
            self.inspect(length).await;
            if let Some(sink) = &mut self.sink {
                sink.write(&self.buffer[..length]).await?;
            }
            // A fast program with a fast reader must not occupy the thread.
            tokio::task::coop::consume_budget().await;
            let now = Instant::now();
            if length < MUCH && now < flows_until {
                // Without descriptors it goes on without pauses.
                let _ = self.pause.wait(GATHERING).await;
            }
            flows_until = now + FLOW;
        }
    }

    /// Fills the buffer with the next output, and returns its length; 0 is the end.
    async fn next(&mut self) -> io::Result<usize> {
        loop {
            if self.end.has_passed() {
                let most = self.last_bytes.min(self.buffer.len());
                let Batch::Bytes(length) = read_batch(self.master.get_ref(), &mut self.buffer[..most])?
                else {
                    return Ok(0);
                };
                self.last_bytes -= length;
                return Ok(length);
            }
            tokio::select! {
                readable = self.master.readable() => {
                    let mut readable = readable?;
                    match read_batch(self.master.get_ref(), &mut self.buffer)? {
                        Batch::Bytes(length) => return Ok(length),
                        Batch::Nothing => readable.clear_ready(),
                        Batch::End => return Ok(0),
                    }
                }
                () = self.end.wait() => {}
            }
        }
    }

    async fn inspect(&self, length: usize) {
        // Take it out of its place: a new watch may be put there meanwhile.
        let Some(mut watched) = self.lines.take() else { return };
        if watched.feed(&self.buffer[..length]).await == ControlFlow::Continue(()) {
            self.lines.borrow_mut().get_or_insert(watched);
        }
    }
}

/// Reads until nothing is there or the buffer is full.
fn read_batch(mut master: &File, buffer: &mut [u8]) -> io::Result<Batch> {
    let mut length = 0;
    while length < buffer.len() {
        match master.read(&mut buffer[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && length == 0 => {
                return Ok(Batch::Nothing);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // Linux reports with EIO that the last process has closed the other side of a pty. The next read says it again.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(if length == 0 { Batch::End } else { Batch::Bytes(length) })
}

/// Copies what a client types until it ends its input.
pub(super) async fn copy_input(source: &AsyncFd<File>, master: &AsyncFd<File>) -> io::Result<()> {
    let mut buffer = [0; INPUT_BUFFER];
    loop {
        match source.async_io(Interest::READABLE, |mut source| source.read(&mut buffer)).await? {
            0 => return Ok(()),
            length => write_all(master, &buffer[..length]).await?,
        }
    }
}

async fn write_all(sink: &AsyncFd<File>, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        let written = sink.async_io(Interest::WRITABLE, |mut sink| sink.write(data)).await?;
        data = &data[written..];
    }
    Ok(())
}
