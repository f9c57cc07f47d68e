//! The streams of one container or exec as the head has them: a key to what lives on the hand, and verbs.
//!
//! Owns the order of what is sent, the limits of what is waited for, and the logging program, which is a process. May never hold a
//! pipe, a fifo or a terminal of a container longer than it takes to start the OCI runtime with it: the head must not wait for the
//! lock of one, nor be the last to close it.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use processes::reaper::Reaper;
use threads::hand::{AT_ONCE, HandError, Held, LATE, Promise, Reply};
use tokio::time::Instant;
use tracing::warn;

use crate::stdio::{
    self, LinePace, LineWatch, Logger, LoggerIdentity, Piece, READER_LIMIT, Stdio, StdioError, StdioPaths,
    StreamMode, StreamOwner,
};

mod attempt;
mod hands;
mod terminal;
#[cfg(test)]
mod tests;

pub use self::attempt::{Attempt, HeldBack, PendingAttempt};
pub use self::hands::{Hands, HandsAttention, Whose};
pub use self::terminal::{EndsOfTerminal, Terminal, TerminalSocket};

/// The open streams of one container or exec, kept from Create to Delete.
///
/// Dropping it cuts everything that still moves, and kills a logging program.
#[derive(Debug)]
pub struct Streams {
    stdio: Rc<Held<Stdio>>,
    mode: StreamMode,
    logger: Option<Logger>,
}

impl Streams {
    /// Opens the files that `paths` names and makes the process's ends, which it gives to `owner`. `whose` processes have the other
    /// ends. Fifos are only checked here; [`Self::connect`] opens them.
    ///
    /// # Errors
    /// What is wrong with an address, or that the hand is away.
    pub async fn open(
        hands: &Hands,
        whose: Whose<'_>,
        paths: &StdioPaths,
        owner: StreamOwner,
    ) -> Result<Self, StdioError> {
        let logger = paths.logger()?;
        let (mode, paths, tenant) = (paths.mode, paths.clone(), hands.tenant(whose));
        let made = move || async move { Stdio::open(&paths, owner) };
        let stdio = hands.free().await?.place(AT_ONCE, Some(&tenant), made).await?;
        Ok(Self { stdio: Rc::new(stdio), mode, logger })
    }

    /// Opens containerd's fifos. Call it before [`Self::accept`]; later calls do nothing.
    ///
    /// Waits up to [`READER_LIMIT`] for containerd's side of the output fifos. Cancel-safe: the set can be dropped.
    ///
    /// # Errors
    /// A fifo cannot be opened, containerd has not opened its side, or the hand is away.
    pub async fn connect(&self) -> Result<(), StdioError> {
        let limit = READER_LIMIT + AT_ONCE;
        self.stdio.ask_within(limit, |mut stdio| async move { stdio.connect().await }).await?
    }

    /// Starts the logging program, if there is one, and waits until it is ready, at most 30 s. Call it before the first
    /// create or exec. The started program serves every incarnation.
    ///
    /// Cancel-safe: dropping the future kills the program.
    ///
    /// # Errors
    /// The program cannot be started, is not ready in time, or the hand is away.
    pub async fn start_logger(
        &mut self,
        reaper: &Reaper,
        identity: LoggerIdentity<'_>,
    ) -> Result<(), StdioError> {
        let Some(logger) = &mut self.logger else { return Ok(()) };
        // Kept by the hand until the program has its copies.
        let lent: Held<Vec<OwnedFd>> = self.stdio.reserve();
        let key = lent.key();
        let lend = self.stdio.ask_within(AT_ONCE, move |mut stdio| async move {
            let Some(input) = stdio.take_loggers_input() else { return Ok(None) };
            stdio.lend(key, input.map(OwnedFd::from).into()).map(Some)
        });
        let Some(()) = lend.await?.map_err(StdioError::Process)? else { return Ok(()) };
        let borrowed = self.stdio.hand().borrowed(key).map_err(StdioError::Process)?;
        let Ok(input) = borrowed.try_into() else { return Err(HandError::Closed.into()) };
        let started = logger.start(reaper, identity, input).await;
        drop(lent);
        Ok(started?)
    }

    /// Streams for the next incarnation of the process. With a terminal they are `/dev/null`: the process gets its pty
    /// through the console socket.
    pub fn attempt(&self) -> PendingAttempt {
        PendingAttempt::of(&self.stdio, Stdio::attempt)
    }

    /// Streams for a process beside the program, such as a hook: it writes to the container's output and has no input.
    /// Call [`HeldBack::begin`] instead of [`Self::accept`].
    pub fn attempt_beside(&self) -> PendingAttempt {
        PendingAttempt::of(&self.stdio, Stdio::attempt_beside)
    }

    /// The incarnation exists: what is written from now on is its own. Starts moving data between the process's pipes
    /// and containerd's fifos.
    pub fn accept(&self, held_back: HeldBack) {
        self.stdio.give(held_back.into_held(), Stdio::accept);
    }

    /// CloseIO: the process sees EOF on stdin once containerd has closed its side too. Idempotent.
    pub fn close_stdin(&self) {
        self.stdio.tell(Stdio::close_stdin);
    }

    /// The final exit: drops the shim's write ends and stdin, so that containerd sees EOF when the last process that
    /// holds the stream is gone, or at once if nothing was ever moved. Unread output stays readable until the set is
    /// dropped. Idempotent.
    pub fn finish_output(&self) {
        self.stdio.tell(Stdio::finish_output);
    }

    /// After [`Self::finish_output`]: closes everything as soon as containerd has read what was written, also if the set is never
    /// dropped.
    pub fn close_when_read(&self) {
        self.stdio.tell(Stdio::close_when_read);
    }

    /// Finishes the output and waits until containerd has got all of it, for at most `limit`; then cuts it. Afterwards
    /// containerd sees EOF even if a background process still holds a stream (CONTRACT §7).
    ///
    /// Ends a logging program that does not end with its input: SIGTERM after a second, SIGKILL at the limit.
    ///
    /// Only bytes that containerd did not read in time and that do not fit into its fifo are lost. A file and the
    /// output of a console are not waited for. Nor is a hand that is away: it ends the streams when it comes back.
    pub async fn drain(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let drained =
            self.stdio.ask_within(limit + LATE, move |mut stdio| async move { stdio.drain(limit).await });
        if let Err(error) = drained.await {
            warn!(%error, "a container's streams are not waited for any more");
        }
        if let Some(logger) = &mut self.logger {
            logger.end_by(deadline).await;
        }
    }

    /// Writes one `podshim: ` line to the container's own stderr, or to stdout if that is its only stream (rules U7,
    /// J9). It begins on a line of its own (R6). It is dropped if the stream is full, finished or absent.
    pub fn write_line(&self, text: &str) {
        let text = text.to_owned();
        self.stdio.tell(move |stdio| stdio.write_line(&text));
    }

    /// Shows the lines of stdout and stderr that are written from now on to a reader of each, until it wants no more.
    /// They replace earlier readers. The [`Terminal`] shows the lines of a terminal. One byte costs a reader at most
    /// `steps_per_letter` steps. `container` is for the log, if no descriptors are left.
    pub fn watch_lines<R>(
        &self,
        container: String,
        steps_per_letter: usize,
        reader: impl Fn() -> R + Send + 'static,
    ) where
        R: FnMut(Piece<'_>) -> ControlFlow<()> + 'static,
    {
        self.stdio.tell(move |stdio| {
            let watch = || LineWatch::new(steps_per_letter, LinePace::of_this_thread(), reader());
            if let Err(error) = stdio.watch_lines(watch) {
                warn!(container, %error, "cannot watch the container's output: its log gate stays closed");
            }
        });
    }

    /// Waits until all that was sent before has been done, such as the beginning of a watch.
    ///
    /// # Errors
    /// The hand is away.
    pub fn settled(&self) -> impl Future<Output = Result<(), HandError>> + use<> {
        let reply = self.stdio.ask(|_| async {});
        async move { reply?.within(AT_ONCE).await }
    }

    /// A promise that a reader of lines keeps.
    ///
    /// # Errors
    /// The hand has ended.
    pub fn promise<R>(&self) -> Result<(Promise<R>, Reply<R>), HandError> {
        self.stdio.hand().promise()
    }

    /// Where the terminal of a process copies from and to.
    pub fn ends_of_terminal(&self) -> Option<EndsOfTerminal> {
        (self.mode == StreamMode::Terminal).then(|| EndsOfTerminal::of(&self.stdio))
    }

    /// Gives up everything except the fifos.
    pub fn into_unused_fifos(self) -> UnusedFifos {
        let Self { stdio, .. } = self;
        UnusedFifos(Rc::into_inner(stdio).map(|stdio| stdio.turned_into(Stdio::into_unused_fifos)))
    }
}

/// containerd's fifos, when no process was made that would have used them.
///
/// Their readers have seen them opened; they would take a close for the end and go. A second create with the same
/// fifos, which containerd's shim supports, would then wait for readers in vain. Dropping this closes the fifos.
#[derive(Debug, Default)]
pub struct UnusedFifos(
    // Only kept open.
    #[expect(dead_code, reason = "dropping it drops what is on the hand")] Option<Held<stdio::UnusedFifos>>,
);
