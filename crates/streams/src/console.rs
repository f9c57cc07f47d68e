//! Terminals: what one incarnation of a process has beside containerd's fifos when it runs on a pty.
//!
//! Owns the two tasks that copy (`pump`), and when each ends. The tasks own the pty and their ends of the fifos, so the terminal
//! hangs up when both have ended. [`Stdio`](crate::stdio::Stdio) owns the fifos: after a restart in place a new console uses the
//! same ones.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use threads::async_file;
use threads::hand::tenant;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::debug;

use self::pump::{OutputEnd, OutputPump, Sink, WatchedLines};
use crate::stdio::{ConsoleStreams, LineWatch, Lines};

mod error;
mod pause;
mod pump;
mod socket;

pub use self::error::ConsoleError;
pub use self::socket::ConsoleSocket;

#[cfg(test)]
mod tests;

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// The terminal of one incarnation of a process.
#[derive(Debug)]
pub struct Console {
    master: Weak<AsyncFd<File>>,
    input: Option<JoinHandle<()>>,
    output: Option<JoinHandle<()>>,
    output_end: Rc<OutputEnd>,
    size: Cell<Option<TerminalSize>>,
    lines: WatchedLines,
}

impl Console {
    /// Takes the master and starts copying on the current `LocalSet`.
    ///
    /// # Errors
    /// The master cannot be watched or copied.
    pub fn start(master: OwnedFd, streams: ConsoleStreams) -> Result<Self, ConsoleError> {
        Self::set_up(master, streams).map_err(ConsoleError::Setup)
    }

    fn set_up(master: OwnedFd, streams: ConsoleStreams) -> io::Result<Self> {
        // The shim alone has this open file description: the runtime has closed its copy.
        let flags = OFlag::from_bits_truncate(fcntl(&master, FcntlArg::F_GETFL)?);
        fcntl(&master, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let master =
            Rc::new(async_file::register(File::from(master), Interest::READABLE | Interest::WRITABLE)?);
        let sink = streams.stdout.map(|file| async_file::register(file, Interest::WRITABLE)).transpose()?;
        let source = streams.stdin.map(|file| async_file::register(file, Interest::READABLE)).transpose()?;
        let (lines, output_end) = (WatchedLines::default(), Rc::new(OutputEnd::default()));
        let weak = Rc::downgrade(&master);
        let sink = sink.map(|fifo| Sink::new(fifo, streams.line));
        let pump = OutputPump::new(master.clone(), sink, lines.clone(), output_end.clone());
        let output = tenant::spawn(async move {
            let ended = pump.run().await;
            debug!(?ended, "the terminal's output ended");
        });
        let hang_up = output.abort_handle();
        let input = source.map(|source| {
            tenant::spawn(async move {
                let ended = pump::copy_input(&source, &master).await;
                debug!(?ended, "the terminal's input ended");
                if ended.is_ok() {
                    // CloseIO hangs up the terminal: containerd's shim closes the console at the end of stdin.
                    hang_up.abort();
                }
            })
        });
        Ok(Self { master: weak, input, output: Some(output), output_end, size: Cell::new(None), lines })
    }

    /// Shows `watch` the lines of the output that are written from now on, until it has seen enough.
    pub fn watch_lines(&self, watch: &LineWatch) {
        self.lines.replace(Some(Lines::new(watch.clone())));
    }

    /// Sets the size; the foreground process gets SIGWINCH. A terminal that has hung up has no size to set.
    ///
    /// # Errors
    /// The kernel's.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let winsize = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        if let Some(master) = self.master.upgrade() {
            // SAFETY: TIOCSWINSZ reads one winsize, which outlives the call.
            if unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSWINSZ, &winsize) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        self.size.set(Some(size));
        Ok(())
    }

    /// The size last set, for the console of the next incarnation (rule R6).
    pub fn size(&self) -> Option<TerminalSize> {
        self.size.get()
    }

    /// The process has exited: it reads nothing any more. Call this before [`Stdio::finish_output`], which ends stdin: an end of
    /// stdin would hang up the terminal, and the last output would be lost. What a client types from now on stays in the fifo, for
    /// the next incarnation (R6).
    ///
    /// [`Stdio::finish_output`]: crate::stdio::Stdio::finish_output
    pub fn end_input(&mut self) {
        if let Some(input) = self.input.take() {
            // Its code does not run again, whatever it was woken for.
            input.abort();
        }
    }

    /// The process has exited: the terminal hangs up when all of its output has been copied. Another process that still has
    /// the terminal open delays that for at most `limit`. A client that reads slowly still gets all of it.
    pub fn end_output_within(&self, limit: Duration) {
        self.output_end.set(Instant::now() + limit);
    }

    /// After the exit: copies what is left in the pty, for at most `limit`, then closes the pty and the console's ends
    /// of the fifos. So containerd sees EOF even if a background process holds the terminal.
    ///
    /// The limit also applies if containerd does not read. Cancel-safe: dropping a console closes everything too, as
    /// soon as its aborted tasks have been polled.
    pub async fn shutdown(mut self, limit: Duration) {
        self.end_output_within(limit);
        let input = self.input.take().inspect(JoinHandle::abort);
        // The handle stays in place during the wait; otherwise a dropped future would leave the task running.
        if let Some(output) = &mut self.output
            && tokio::time::timeout(limit, &mut *output).await.is_ok()
        {
            // A closed pty has ended the copy by itself (EIO).
            self.output = None;
        }
        if let Some(output) = &mut self.output {
            output.abort();
            // What the task holds is closed when the task has been dropped, not before.
            let _ = output.await;
        }
        if let Some(input) = input {
            let _ = input.await;
        }
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        // The tasks hold the master and the fifos: without the abort, neither would ever be closed.
        for task in [self.input.take(), self.output.take()].into_iter().flatten() {
            task.abort();
        }
    }
}
