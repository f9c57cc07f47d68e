//! The logging program of a `binary://` or `binary-v2://` address (CONTRACT §7).
//!
//! Owns its process from start to end: it is started once for all incarnations of a container, ended when the streams
//! are drained, and killed if they are dropped before. Its pipes connect it directly with the process that writes; the
//! shim does not see the data. Runs on the head, which owns all processes; the pipes are the hand's ([`LoggerPipes`]).

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as ProcessStdio};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use processes::reaper::{Child, Exit, ExitWatch, Reaper};
use processes::{Process, SignalNumber};
use thiserror::Error;
use threads::async_file;
use tokio::io::Interest;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::uri::Uri;

/// The program's descriptors: its input from stdout and stderr, and the one on which it reports that it is ready.
const STDOUT: RawFd = 3;
const STDERR: RawFd = 4;
const READY: RawFd = 5;

/// How long the program may take to be ready. containerd's shim waits without a limit; its caller does not.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// How long the program may write the rest after its input has ended, before it gets SIGTERM.
const END_OF_INPUT: Duration = Duration::from_secs(1);
/// How long podshim waits after SIGKILL, which gives the program itself no time.
const KILL_LIMIT: Duration = Duration::from_secs(1);

/// Why a logging program cannot be used.
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
    /// It closed descriptor 5 without writing to it (`binary-v2` only).
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
        /// How long podshim waited.
        limit: Duration,
    },
}

/// The container for which a logging program works.
#[derive(Debug, Clone, Copy)]
pub struct LoggerIdentity<'a> {
    /// `CONTAINER_ID`: the container's id, or for an exec the exec's id, as in containerd's shim.
    pub id: &'a str,
    /// `CONTAINER_NAMESPACE`: containerd's namespace.
    pub namespace: &'a str,
}

/// How the program reports that it is ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadinessSignal {
    /// `binary`: closing descriptor 5 is enough, so an early end of the program counts too.
    Close,
    /// `binary-v2` (containerd 2.2): it writes a byte first.
    Byte,
}

/// A program and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LoggerCommand {
    program: PathBuf,
    arguments: Vec<OsString>,
    readiness: ReadinessSignal,
}

impl LoggerCommand {
    pub(super) fn new(uri: Uri, readiness: ReadinessSignal) -> Self {
        let arguments = uri.query.into_iter().flat_map(|(key, value)| [key, value]).collect();
        Self { program: uri.path, arguments, readiness }
    }
}

/// The pipes between a process and its logging program.
#[derive(Debug)]
pub(super) struct LoggerPipes {
    /// The program's input from stdout and stderr, until it has it.
    input: Option<[File; 2]>,
}

impl LoggerPipes {
    /// Makes the pipes and returns the write ends, which are non-blocking.
    pub(super) fn make() -> io::Result<(Self, [File; 2])> {
        let (stdout, stdout_writer) = pipe_to_logger()?;
        let (stderr, stderr_writer) = pipe_to_logger()?;
        Ok((Self { input: Some([stdout, stderr]) }, [stdout_writer, stderr_writer]))
    }

    /// For [`Logger::start`]. `None` once it has been taken.
    pub(super) fn take_input(&mut self) -> Option<[File; 2]> {
        self.input.take()
    }
}

/// A logging program, before, during and after its run.
#[derive(Debug)]
pub(crate) struct Logger {
    command: LoggerCommand,
    state: State,
}

#[derive(Debug)]
enum State {
    Prepared,
    Running(Running),
    Over,
}

impl Logger {
    pub(super) fn new(command: LoggerCommand) -> Self {
        Self { command, state: State::Prepared }
    }

    /// Starts the program, once, and waits until it is ready. A program that does not get ready is killed.
    ///
    /// Cancel-safe: dropping the future kills the program.
    ///
    /// # Errors
    /// The program cannot be started, or does not get ready in time.
    pub async fn start(
        &mut self,
        reaper: &Reaper,
        identity: LoggerIdentity<'_>,
        input: [OwnedFd; 2],
    ) -> Result<(), LoggerError> {
        if !matches!(self.state, State::Prepared) {
            return Ok(());
        }
        let [stdout, stderr] = &input;
        let program = || self.command.program.clone();
        let spawn = || {
            let (ready, writer) = pipe2(OFlag::O_CLOEXEC)?;
            fcntl(&ready, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            let child = spawn(reaper, &self.command, identity, [stdout, stderr, &writer])?;
            // From here on only the program has the write end.
            let Child { process, exit, report } = child;
            let ready = async_file::register(ready.into(), Interest::READABLE)?;
            Ok((Running::watch(process, exit, program()), ready, report))
        };
        let (running, ready, report) =
            spawn().map_err(|source| LoggerError::Spawn { program: program(), source })?;
        let read = ready.async_io(Interest::READABLE, |mut ready| ready.read(&mut [0]));
        let read = timeout(READY_LIMIT, read).await;
        // What could not begin has closed it too.
        let failure = match read.map(|read| report.failure().map_or(read, Err)) {
            Ok(Ok(0)) if self.command.readiness == ReadinessSignal::Byte => {
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

    /// Waits until the program ends by itself, now that its input has ended or never will; then sends SIGTERM, and
    /// SIGKILL at `deadline`. The write ends must be closed before.
    pub async fn end_by(&mut self, deadline: Instant) {
        let State::Running(running) = &mut self.state else {
            self.state = State::Over;
            return;
        };
        let ends_itself = (Instant::now() + END_OF_INPUT).min(deadline);
        if !running.ended_by(ends_itself).await {
            running.signal(SignalNumber::TERM);
            if !running.ended_by(deadline).await {
                warn!(program = %self.command.program.display(), "the logging program did not end after SIGTERM: the shim kills it");
                running.signal(SignalNumber::KILL);
                running.ended_by(Instant::now() + KILL_LIMIT).await;
            }
        }
        self.state = State::Over;
    }
}

/// A started program; dropping this kills it.
#[derive(Debug)]
struct Running {
    process: Process,
    exit: JoinHandle<Exit>,
}

impl Running {
    fn watch(process: Process, exit: ExitWatch, program: PathBuf) -> Self {
        let pid = process.pid();
        let exit = tokio::task::spawn_local(async move {
            let exit = exit.await;
            // Without its reader the container's next write fails. This line tells the operator why.
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

    async fn ended_by(&mut self, deadline: Instant) -> bool {
        self.exit.is_finished() || timeout_at(deadline, &mut self.exit).await.is_ok()
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

/// The reader blocks, as programs expect of their input. The writer does not, because the shim writes to it too.
fn pipe_to_logger() -> io::Result<(File, File)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC)?;
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok((reader.into(), writer.into()))
}

fn spawn(
    reaper: &Reaper,
    command: &LoggerCommand,
    identity: LoggerIdentity<'_>,
    descriptors: [&OwnedFd; 3],
) -> io::Result<Child> {
    // Copy them above the numbers they will get, so that no dup2 overwrites a descriptor that is still needed.
    let [stdout, stderr, ready] = descriptors.map(dup_above);
    let (stdout, stderr, ready) = (stdout?, stderr?, ready?);
    // `spawn` opens a pipe to report a failed exec: with these numbers taken, that pipe cannot get one of them.
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
                // exec does not close the copy that dup2 makes.
                if libc::dup2(from, to) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    reaper.spawn(&mut process)
}

fn dup_above(file: &OwnedFd) -> io::Result<OwnedFd> {
    let copy = fcntl(file, FcntlArg::F_DUPFD_CLOEXEC(READY + 1))?;
    // SAFETY: the kernel has just made this descriptor for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Opens files on all numbers up to READY that are still free.
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
