//! The streams of one incarnation that is about to be made and may still fail.
//!
//! Owns the handling of the OCI runtime's own messages: the runtime has the container's streams while it creates or
//! executes, and writes its errors to that stderr. Until the runtime has succeeded, none of that may reach a reader.

use std::{fs::File, io, process::Stdio as ProcessStdio};

use tokio::time::Instant;

use super::endpoint::{open_both_ends, reopen};
use super::error::StreamName;
use super::mover::Movement;
use super::paths::StreamMode;
use super::pipe::{give_to, nonblocking_pipe};
use super::stream::{Input, Output};
use super::streams::Stdio;

/// The three descriptors with which one incarnation of the process is started.
#[derive(Debug)]
pub struct ChildStdio {
    /// Standard input.
    pub stdin: ProcessStdio,
    /// Standard output.
    pub stdout: ProcessStdio,
    /// Standard error.
    pub stderr: ProcessStdio,
}

impl ChildStdio {
    /// `/dev/null` three times.
    pub fn null() -> Self {
        Self { stdin: ProcessStdio::null(), stdout: ProcessStdio::null(), stderr: ProcessStdio::null() }
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

/// stderr of an incarnation whose pipe is already in use: a pipe of its own that leads into the shared pipe once the
/// incarnation exists.
///
/// It leads into the shared pipe and not past it, so that the order of lines is kept and lines stay whole. Runtimes
/// write their errors only to stderr, so stdout needs none of this.
#[derive(Debug)]
pub struct HeldBack(Option<Movement>);

impl HeldBack {
    /// The process exists: starts moving what it writes, on the current `LocalSet`.
    pub fn begin(&mut self) {
        if let Some(movement) = &mut self.0 {
            movement.start(StreamName::Stderr);
        }
    }

    /// Waits until everything written has been moved, at most until `deadline`; then cuts it.
    pub async fn end_by(&mut self, deadline: Instant) {
        if let Some(movement) = &mut self.0 {
            movement.end_by(deadline).await;
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
    pub fn attempt(&self) -> io::Result<Attempt> {
        if self.mode == StreamMode::Terminal {
            return Ok(Attempt { child: ChildStdio::null(), held_back: HeldBack(None) });
        }
        let stdin = self.stdin.as_ref().and_then(Input::process_end);
        let [stdout, stderr] =
            [&self.stdout, &self.stderr].map(|output| output.as_ref().and_then(Output::process_end));
        let (stderr, held_back) = match stderr {
            Some(pipe) if self.stderr_is_read() => {
                let (reader, writer) = nonblocking_pipe()?;
                give_to(&writer, self.owner)?;
                (own(Some(&writer))?, Some(Movement::prepare(reader, pipe.try_clone()?)?))
            }
            _ => (own(stderr)?, None),
        };
        let child = ChildStdio { stdin: own(stdin)?, stdout: own(stdout)?, stderr };
        Ok(Attempt { child, held_back: HeldBack(held_back) })
    }

    /// Streams for a process beside the program, such as a hook: it writes to the container's output and has no input.
    /// Call [`HeldBack::begin`] instead of [`Self::accept`].
    pub fn attempt_beside(&self) -> io::Result<Attempt> {
        let mut attempt = self.attempt()?;
        attempt.child.stdin = ProcessStdio::null();
        if self.mode == StreamMode::Terminal {
            // The program owns the terminal; the terminal's destination also takes other lines.
            let writer = self.stdout.as_ref().and_then(|output| output.writer.as_ref());
            attempt.child.stdout = own(writer)?;
            attempt.child.stderr = own(writer)?;
        }
        Ok(attempt)
    }

    /// The incarnation exists: what is written from now on is its own. Starts moving data between the process's pipes
    /// and containerd's fifos, on the current `LocalSet`.
    pub fn accept(&mut self, held_back: HeldBack) {
        if let Some(Input { pipe: Some(pipe), .. }) = &mut self.stdin {
            pipe.movement.start(StreamName::Stdin);
        }
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            if let Some(pipe) = &mut output.pipe {
                pipe.movement.start(output.stream);
            }
        }
        if let (Some(stderr), Some(mut movement)) = (&mut self.stderr, held_back.0) {
            movement.start(StreamName::Stderr);
            // The movement of an incarnation ends when the last of its processes is gone.
            stderr.held_back.retain(|earlier| !earlier.is_over());
            stderr.held_back.push(movement);
        }
    }

    /// Whether what is written to the stderr pipe is read at once. A file is no pipe: a runtime's messages stay in it.
    fn stderr_is_read(&self) -> bool {
        self.logger.is_some()
            || self.stderr.iter().flat_map(|output| &output.pipe).any(|pipe| pipe.movement.has_started())
    }
}

fn own(end: Option<&File>) -> io::Result<ProcessStdio> {
    match end {
        Some(end) => reopen(end).map(ProcessStdio::from),
        None => Ok(ProcessStdio::null()),
    }
}
