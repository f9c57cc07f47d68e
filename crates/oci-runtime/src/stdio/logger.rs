//! The logging program of a `binary://` or `binary-v2://` address (CONTRACT §7).
//!
//! Owns its process from the start to the end: it is started once for all incarnations of a container, ended when
//! the streams are drained, and killed if they are dropped before. The pipes it reads from belong to the process
//! that writes and to it; the shim does not see the data.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio as ProcessStdio},
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    unistd::pipe2,
};
use thiserror::Error;
use tokio::{
    io::Interest,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};
use tracing::{info, warn};

use super::uri::Uri;
use crate::{
    async_file,
    process::{Process, SignalNumber},
    reaper::{Child, Exit, Reaper},
};

/// The program's descriptors: its input from stdout and stderr, and where it says that it is ready.
const STDOUT: RawFd = 3;
const STDERR: RawFd = 4;
const READY: RawFd = 5;

/// How long the program gets to be ready. containerd's shim waits for ever; its caller does not.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// What the program gets to write down the rest once its input has ended, before SIGTERM cuts that short.
const END_OF_INPUT: Duration = Duration::from_secs(1);
/// SIGKILL needs no time of the program's own.
const KILL_LIMIT: Duration = Duration::from_secs(1);

/// Why a logging program does not serve.
#[derive(Debug, Error)]
pub enum LoggerError {
    /// It could not be started.
    #[error("cannot run logging program {}: {source}", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// It closed descriptor 5 without a word (`binary-v2` only).
    #[error("logging program {} did not say that it is ready: it closed descriptor 5, or has ended", program.display())]
    NotReady {
        /// The program.
        program: PathBuf,
    },
    /// It neither closed descriptor 5 nor wrote to it.
    #[error(
        "logging program {} was not ready within {} s: it has to close descriptor 5",
        program.display(), limit.as_secs()
    )]
    TimedOut {
        /// The program.
        program: PathBuf,
        /// How long we waited.
        limit: Duration,
    },
}

/// For whom a logging program works.
#[derive(Debug, Clone, Copy)]
pub struct LoggerIdentity<'a> {
    /// `CONTAINER_ID`: the container, or for an exec the exec's id, as containerd's shim has it.
    pub id: &'a str,
    /// `CONTAINER_NAMESPACE`: containerd's namespace.
    pub namespace: &'a str,
}

/// How the program says that it is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Readiness {
    /// `binary`: closing descriptor 5 is enough, so that its early end counts too.
    Close,
    /// `binary-v2` (containerd 2.2): it writes a byte first.
    Byte,
}

/// A program and how it is called.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoggerCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
    readiness: Readiness,
}

impl LoggerCommand {
    pub(super) fn new(uri: Uri, readiness: Readiness) -> Self {
        let arguments = uri.query.into_iter().flat_map(|(key, value)| [key, value]).collect();
        Self { program: uri.path, arguments, readiness }
    }
}

/// The program in its life.
#[derive(Debug)]
pub(super) struct Logger {
    command: LoggerCommand,
    state: State,
}

#[derive(Debug)]
enum State {
    Prepared { stdout: File, stderr: File },
    Running(Running),
    Over,
}

impl Logger {
    /// Makes the pipes; gives the write ends, which are non-blocking.
    pub(super) fn prepare(command: LoggerCommand) -> io::Result<(Self, [File; 2])> {
        let (stdout, stdout_writer) = pipe_to_logger()?;
        let (stderr, stderr_writer) = pipe_to_logger()?;
        let logger = Self { command, state: State::Prepared { stdout, stderr } };
        Ok((logger, [stdout_writer, stderr_writer]))
    }

    /// Starts the program, once, and waits until it is ready. If it does not get ready it is killed.
    pub(super) async fn start(
        &mut self,
        reaper: &Reaper,
        identity: LoggerIdentity<'_>,
    ) -> Result<(), LoggerError> {
        let State::Prepared { stdout, stderr } = &self.state else { return Ok(()) };
        let program = || self.command.program.clone();
        let spawn = || {
            let (ready, writer) = pipe2(OFlag::O_CLOEXEC)?;
            fcntl(&ready, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            let child = spawn(reaper, &self.command, identity, [stdout, stderr, &writer.into()])?;
            // Now the program alone has the write end.
            Ok((Running::watch(child, program()), async_file::register(ready.into(), Interest::READABLE)?))
        };
        let (running, ready) = spawn().map_err(|source| LoggerError::Spawn { program: program(), source })?;
        let read = ready.async_io(Interest::READABLE, |mut ready| ready.read(&mut [0]));
        let failure = match timeout(READY_LIMIT, read).await {
            Ok(Ok(0)) if self.command.readiness == Readiness::Byte => {
                LoggerError::NotReady { program: program() }
            }
            Ok(Ok(_)) => {
                self.state = State::Running(running);
                return Ok(());
            }
            Ok(Err(source)) => LoggerError::Spawn { program: program(), source },
            Err(_) => LoggerError::TimedOut { program: program(), limit: READY_LIMIT },
        };
        running.kill().await;
        self.state = State::Over;
        Err(failure)
    }

    /// Waits for the program to end by itself now that its input has ended, or will not end; then SIGTERM, and at
    /// `deadline` SIGKILL. The write ends must be closed before.
    pub(super) async fn end_by(&mut self, deadline: Instant) {
        let State::Running(running) = &mut self.state else {
            self.state = State::Over;
            return;
        };
        let ends_itself = (Instant::now() + END_OF_INPUT).min(deadline);
        if running.ended_by(ends_itself).await == Ended::No {
            running.signal(SignalNumber::TERM);
            if running.ended_by(deadline).await == Ended::No {
                warn!(program = %self.command.program.display(), "killed: it did not end at SIGTERM");
                running.signal(SignalNumber::KILL);
                running.ended_by(Instant::now() + KILL_LIMIT).await;
            }
        }
        self.state = State::Over;
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Yes,
    No,
}

/// A started program; killed when this is dropped.
#[derive(Debug)]
struct Running {
    process: Process,
    exit: JoinHandle<Exit>,
}

impl Running {
    fn watch(child: Child, program: PathBuf) -> Self {
        let Child { process, exit } = child;
        let pid = process.pid();
        let exit = tokio::task::spawn_local(async move {
            let exit = exit.await;
            // Without its reader the next write of the container fails: whoever looks for the reason looks here.
            info!(program = %program.display(), %pid, code = exit.code, "the logging program has ended");
            exit
        });
        Self { process, exit }
    }

    fn signal(&self, signal: SignalNumber) {
        if let Err(error) = self.process.signal(signal) {
            warn!(pid = %self.process.pid(), %error, "cannot signal a logging program");
        }
    }

    async fn ended_by(&mut self, deadline: Instant) -> Ended {
        if self.exit.is_finished() || timeout_at(deadline, &mut self.exit).await.is_ok() {
            Ended::Yes
        } else {
            Ended::No
        }
    }

    async fn kill(mut self) {
        self.signal(SignalNumber::KILL);
        self.ended_by(Instant::now() + KILL_LIMIT).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.exit.is_finished() {
            self.signal(SignalNumber::KILL);
        }
    }
}

/// The reader blocks, as programs expect of their input; the writer does not, since the shim writes too.
fn pipe_to_logger() -> io::Result<(File, File)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((reader.into(), writer.into()))
}

fn spawn(
    reaper: &Reaper,
    command: &LoggerCommand,
    identity: LoggerIdentity<'_>,
    descriptors: [&File; 3],
) -> io::Result<Child> {
    // Above the numbers they will get, so that no dup2 overwrites what another one needs.
    let [stdout, stderr, ready] = descriptors.map(dup_above);
    let (stdout, stderr, ready) = (stdout?, stderr?, ready?);
    // `spawn` opens a pipe to report a failed exec: with these numbers taken it cannot get one of them.
    let _taken = take_low_numbers()?;
    let mut process = Command::new(&command.program);
    process
        .args(&command.arguments)
        .env_clear()
        .env("CONTAINER_ID", identity.id)
        .env("CONTAINER_NAMESPACE", identity.namespace)
        .stdin(ProcessStdio::null())
        .stdout(ProcessStdio::null())
        .stderr(ProcessStdio::null());
    let places = [(stdout.as_raw_fd(), STDOUT), (stderr.as_raw_fd(), STDERR), (ready.as_raw_fd(), READY)];
    // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls.
    unsafe {
        process.pre_exec(move || {
            for (from, to) in places {
                // dup2's copy is not closed at exec.
                if libc::dup2(from, to) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    reaper.spawn(&mut process)
}

fn dup_above(file: &File) -> io::Result<OwnedFd> {
    let copy = fcntl(file, FcntlArg::F_DUPFD_CLOEXEC(READY + 1))?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Fills the numbers the program's descriptors will have, as far as they are free.
fn take_low_numbers() -> io::Result<Vec<File>> {
    let mut taken = Vec::new();
    loop {
        let file = File::open(Path::new("/dev/null"))?;
        if file.as_raw_fd() > READY {
            return Ok(taken);
        }
        taken.push(file);
    }
}
