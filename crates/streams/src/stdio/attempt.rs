//! The streams of one incarnation that is about to be made and may still fail.
//!
//! Owns the handling of the OCI runtime's own messages: the runtime has the container's streams while it creates or
//! executes, and writes its errors to that stderr. Until the runtime has succeeded, none of that may reach a reader.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio as ProcessStdio;
use std::rc::Weak;
use std::sync::Arc;

use threads::hand::Held;
use tokio::time::Instant;

use super::endpoint::{open_both_ends, reopen};
use super::error::StreamName;
use super::half_line::HalfLine;
use super::line_end::end_line_of_file;
use super::movement::Movement;
use super::mover::LineEnds;
use super::paths::StreamMode;
use super::pipe::{give_to, nonblocking_pipe};
use super::relief::{Excess, Relief, ReliefTask, Relieved};
use super::stream::{Input, Output};
use super::streams::Stdio;

/// One descriptor with which a process is started.
#[derive(Debug, Default)]
pub struct ChildEnd(Option<OwnedFd>);

impl ChildEnd {
    /// `/dev/null`.
    #[must_use]
    pub fn null() -> Self {
        Self::default()
    }

    /// A descriptor; without one `/dev/null`.
    pub fn of(end: Option<OwnedFd>) -> Self {
        Self(end)
    }

    /// The descriptor, if it has one.
    pub fn into_inner(self) -> Option<OwnedFd> {
        self.0
    }
}

impl From<ChildEnd> for ProcessStdio {
    fn from(end: ChildEnd) -> Self {
        end.0.map_or_else(Self::null, Self::from)
    }
}

/// The three descriptors with which one incarnation of the process is started.
#[derive(Debug, Default)]
pub struct ChildStdio {
    /// Standard input.
    pub stdin: ChildEnd,
    /// Standard output.
    pub stdout: ChildEnd,
    /// Standard error.
    pub stderr: ChildEnd,
    /// For what the OCI runtime writes without end to stderr.
    pub excess: Option<Excess>,
    /// What the hand keeps of them. Drop it last: then no close of this thread's is the last one of a container's pipe.
    pub lent: Option<Held<Vec<OwnedFd>>>,
}

impl ChildStdio {
    /// `/dev/null` three times.
    pub fn null() -> Self {
        Self::default()
    }
}

/// Streams for an incarnation that is about to be made.
#[derive(Debug)]
pub struct Attempt {
    /// The streams with which the OCI runtime is started.
    pub child: ChildStdio,
    /// For [`Stdio::accept`] when the runtime has succeeded. Dropping it discards what the runtime wrote.
    pub held_back: HeldBack,
}

/// Streams of a process whose container's pipe is already in use: pipes of their own that lead into the shared ones once the
/// process exists. stderr of an incarnation, as runtimes write their errors only there; both of a process beside the program, whose
/// lines may not be mixed with the program's.
///
/// They lead into the shared pipe and not past it, so that the order of lines is kept and lines stay whole.
#[derive(Debug, Default)]
pub struct HeldBack {
    stdout: Option<Movement>,
    stderr: Option<Movement>,
    /// A regular file, which a process beside the program writes to itself.
    file: Option<File>,
    /// Until the process exists.
    relief: Option<ReliefTask>,
}

impl HeldBack {
    /// The process exists: starts moving what it writes, on the current `LocalSet`.
    pub fn begin(&mut self) {
        self.relief = None;
        for (movement, stream) in
            [(&mut self.stdout, StreamName::Stdout), (&mut self.stderr, StreamName::Stderr)]
        {
            if let Some(movement) = movement {
                movement.start(stream);
            }
        }
    }

    /// Waits until everything written has been moved, at most until `deadline`; then cuts it.
    pub async fn end_by(&mut self, deadline: Instant) {
        for movement in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            movement.end_by(deadline).await;
        }
        if let Some(file) = self.file.take() {
            end_line_of_file(&file);
        }
    }
}

/// containerd's fifos, when no process was made that would have used them.
///
/// Their readers have seen them opened; they would take a close for the end and go. A second create with the same
/// fifos, which containerd's shim supports, would then wait for readers in vain. Dropping this closes the fifos.
#[derive(Debug, Default)]
pub struct UnusedFifos {
    // Only kept open, for both reading and writing.
    _ends: Vec<File>,
}

impl Stdio {
    /// Gives up everything except the fifos.
    pub fn into_unused_fifos(self) -> UnusedFifos {
        let input = self.stdin.as_ref().and_then(|input| input.writer.as_ref());
        let outputs = [&self.stdout, &self.stderr].into_iter().flatten();
        let outputs = outputs.filter(|output| output.keep_alive.is_some()).filter_map(|o| o.writer.as_ref());
        // A fifo that cannot be kept open is closed, as it would be without this.
        let ends = input.into_iter().chain(outputs).filter_map(|fifo| open_both_ends(fifo).ok());
        UnusedFifos { _ends: ends.collect() }
    }

    /// Streams for the next incarnation of the process. With a terminal they are `/dev/null`: the process gets its pty
    /// through the console socket.
    ///
    /// # Errors
    /// Its ends cannot be made.
    pub fn attempt(&self) -> io::Result<Attempt> {
        if self.mode == StreamMode::Terminal {
            return Ok(Attempt { child: ChildStdio::null(), held_back: HeldBack::default() });
        }
        // What an earlier incarnation has left behind is not the beginning of this one's first line.
        for output in [&self.stdout, &self.stderr].into_iter().flatten() {
            output.begin_line();
        }
        self.attempt_of_pipes(|| None)
    }

    /// `half` is for the lines of a process beside the program.
    fn attempt_of_pipes(&self, half: fn() -> Option<HalfLine>) -> io::Result<Attempt> {
        let stdin = self.stdin.as_ref().and_then(Input::process_end);
        let [stdout, stderr] =
            [&self.stdout, &self.stderr].map(|output| output.as_ref().and_then(Output::process_end));
        let mut held_back = HeldBack::default();
        let excess = Excess::default();
        let (stderr, relief) = match (&self.stderr, stderr) {
            (Some(output), Some(pipe)) if self.is_read(output) => {
                let OwnPipe { process_end, movement, relieved } = self.own_pipe_into(output, pipe, half())?;
                let relief = Relief::of(
                    movement.unstarted_source().ok_or(io::ErrorKind::NotFound)?,
                    &relieved,
                    &excess,
                )?;
                held_back.stderr = Some(movement);
                (process_end, Some(relief))
            }
            (output, stderr) => {
                let pipe = output.as_ref().and_then(|output| output.pipe.as_ref());
                (own(stderr)?, pipe.map(|pipe| pipe.relief(&excess)).transpose()?.flatten())
            }
        };
        held_back.relief = relief.map(Relief::begin);
        let excess = held_back.relief.is_some().then_some(excess);
        let child = ChildStdio { stdin: own(stdin)?, stdout: own(stdout)?, stderr, excess, lent: None };
        Ok(Attempt { child, held_back })
    }

    /// Streams for a process beside the program, such as a hook: it writes to the container's output and has no input.
    /// Call [`HeldBack::begin`] instead of [`Self::accept`].
    ///
    /// # Errors
    /// Its ends cannot be made.
    pub fn attempt_beside(&self) -> io::Result<Attempt> {
        if self.mode == StreamMode::Terminal {
            // The program owns the terminal; the terminal's destination also takes other lines.
            self.end_terminals_line();
            let writer = self.stdout.as_ref().and_then(|output| output.writer.as_ref());
            let child = ChildStdio { stdout: own(writer)?, stderr: own(writer)?, ..ChildStdio::null() };
            return Ok(Attempt { child, held_back: HeldBack::default() });
        }
        let half = || Some(HalfLine::default());
        let mut attempt = self.attempt_of_pipes(half)?;
        attempt.child.stdin = ChildEnd::null();
        match &self.stdout {
            Some(output) if output.pipe.is_some() && self.is_read(output) => {
                if let Some(pipe) = output.process_end() {
                    let OwnPipe { process_end, movement, .. } = self.own_pipe_into(output, pipe, half())?;
                    attempt.child.stdout = process_end;
                    attempt.held_back.stdout = Some(movement);
                }
            }
            // It writes to a file itself: whether it will write at all is not known.
            Some(output) if self.logger.is_none() => {
                output.begin_line();
                attempt.held_back.file = output.writer.as_ref().map(File::try_clone).transpose()?;
            }
            _ => {}
        }
        Ok(attempt)
    }

    /// A new pipe for a process, which leads into the one that its container's processes share.
    fn own_pipe_into(&self, output: &Output, shared: &File, half: Option<HalfLine>) -> io::Result<OwnPipe> {
        let (reader, writer) = nonblocking_pipe()?;
        give_to(&writer, self.owner)?;
        let relieved = Relieved::default();
        let lines = LineEnds {
            open: Some(Arc::default()),
            shared: output.pipe.as_ref().map_or_else(Weak::new, |pipe| pipe.movement.started_mover()),
            relieved: relieved.clone(),
            half,
        };
        let movement = Movement::prepare(reader, shared.try_clone()?, lines)?;
        Ok(OwnPipe { process_end: own(Some(&writer))?, movement, relieved })
    }

    /// The incarnation exists: what is written from now on is its own. Starts moving data between the process's pipes
    /// and containerd's fifos, on the current `LocalSet`.
    pub fn accept(&mut self, mut held_back: HeldBack) {
        held_back.relief = None;
        if let Some(Input { pipe: Some(pipe), .. }) = &mut self.stdin {
            pipe.movement.start(StreamName::Stdin);
        }
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            if let Some(pipe) = &mut output.pipe {
                pipe.movement.start(output.stream);
            }
        }
        if let (Some(stderr), Some(mut movement)) = (&mut self.stderr, held_back.stderr) {
            movement.start(StreamName::Stderr);
            // The movement of an incarnation ends when the last of its processes is gone.
            stderr.held_back.retain(|earlier| !earlier.is_over());
            stderr.held_back.push(movement);
        }
    }

    /// Whether what is written to its pipe is read at once. A file is no pipe: a runtime's messages stay in it.
    fn is_read(&self, output: &Output) -> bool {
        self.logger.is_some() || output.pipe.as_ref().is_some_and(|pipe| pipe.movement.has_started())
    }
}

/// One stream of a process, apart from the pipe that it leads into.
struct OwnPipe {
    process_end: ChildEnd,
    movement: Movement,
    relieved: Relieved,
}

fn own(end: Option<&File>) -> io::Result<ChildEnd> {
    Ok(ChildEnd(end.map(reopen).transpose()?.map(OwnedFd::from)))
}
