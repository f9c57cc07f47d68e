//! The terminal of one incarnation of a process, as the head has it.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use threads::hand::{AT_ONCE, Guard, Held, LATE};
use tracing::{debug, warn};

use crate::console::{Console, ConsoleError, ConsoleSocket, TerminalSize};
use crate::stdio::{LinePace, LineWatch, Piece, Stdio};

/// containerd's fifos, as a terminal of the next process uses them.
#[derive(Clone, Debug)]
pub struct EndsOfTerminal(Rc<Held<Stdio>>);

impl EndsOfTerminal {
    pub(super) fn of(stdio: &Rc<Held<Stdio>>) -> Self {
        Self(stdio.clone())
    }
}

/// The socket over which the OCI runtime hands out a terminal.
#[derive(Debug)]
pub struct TerminalSocket {
    socket: Held<ConsoleSocket>,
    path: PathBuf,
}

impl TerminalSocket {
    /// Makes a socket below `base` for a terminal with these ends; see [`ConsoleSocket::bind`].
    ///
    /// # Errors
    /// It cannot be made, or the hand is away.
    pub async fn bind(ends: &EndsOfTerminal, base: &Path) -> Result<Self, ConsoleError> {
        let base = base.to_owned();
        let socket = ends
            .0
            .hand()
            .place(AT_ONCE, ends.0.tenant(), move || async move { ConsoleSocket::bind(&base) })
            .await?;
        let path = socket.ask_within(AT_ONCE, |socket| async move { socket.path().to_owned() }).await?;
        Ok(Self { socket, path })
    }

    /// The path to give to the runtime.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Receives the terminal, waiting at most `limit`, and connects it with containerd's side. Call it after the runtime's command
    /// succeeded.
    ///
    /// # Errors
    /// The runtime has not sent a terminal, it cannot be set up, or the hand is away.
    pub async fn attach(
        self,
        ends: &EndsOfTerminal,
        size: Option<TerminalSize>,
        limit: Duration,
    ) -> Result<Terminal, ConsoleError> {
        let console: Held<Console> = self.socket.reserve();
        let (key, stdio) = (console.key(), ends.0.key());
        let attached = self.socket.ask_within(limit + AT_ONCE, move |socket| async move {
            let console = receive(&socket, stdio, size, limit).await?;
            socket.place(key, console);
            Ok::<(), ConsoleError>(())
        });
        attached.await??;
        Ok(Terminal(console))
    }
}

async fn receive(
    socket: &Guard<ConsoleSocket>,
    stdio: u64,
    size: Option<TerminalSize>,
    limit: Duration,
) -> Result<Console, ConsoleError> {
    let master = socket.receive(limit).await?;
    let streams = match socket.other::<Stdio>(stdio) {
        Some(stdio) => stdio.console_streams(),
        None => Err(std::io::ErrorKind::NotConnected.into()),
    };
    let console = Console::start(master, streams.map_err(ConsoleError::Setup)?)?;
    if let Some(size) = size {
        console.resize(size).map_err(ConsoleError::Setup)?;
    }
    Ok(console)
}

/// The terminal of one incarnation of a process. Dropping this closes it.
#[derive(Debug)]
pub struct Terminal(Held<Console>);

impl Terminal {
    /// Sets the size; the foreground process gets SIGWINCH.
    pub fn resize(&self, size: TerminalSize) {
        self.0.tell(move |console| {
            if let Err(error) = console.resize(size) {
                warn!(%error, ?size, "cannot set the size of a terminal");
            }
        });
    }

    /// Shows the lines of the output that are written from now on to a reader, until it has seen enough.
    pub fn watch_lines<R>(&self, steps_per_letter: usize, reader: impl FnOnce() -> R + Send + 'static)
    where
        R: FnMut(Piece<'_>) -> ControlFlow<()> + 'static,
    {
        self.0.tell(move |console| {
            console.watch_lines(&LineWatch::new(steps_per_letter, LinePace::of_this_thread(), reader()));
        });
    }

    /// The process has exited: it reads nothing any more. Call this before
    /// [`Streams::finish_output`](super::Streams::finish_output).
    pub fn end_input(&self) {
        self.0.tell(Console::end_input);
    }

    /// The process has exited: the terminal hangs up when all of its output has been copied. Another process that still has
    /// the terminal open delays that for at most `limit`. A client that reads slowly still gets all of it.
    pub fn end_output_within(&self, limit: Duration) {
        self.0.tell(move |console| console.end_output_within(limit));
    }

    /// After the exit: copies what is left in the pty, for at most `limit`, then closes the pty and its ends of the fifos. A hand that
    /// is away is not waited for: it closes them when it comes back.
    pub async fn shutdown(self, limit: Duration) {
        let closed = self.0.ask_within(limit + LATE, move |console| async move {
            console.into_inner().shutdown(limit).await
        });
        if let Err(error) = closed.await {
            debug!(%error, "a terminal is not waited for any more");
        }
    }
}
