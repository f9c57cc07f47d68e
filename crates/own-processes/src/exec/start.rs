//! Starts the program that becomes a process of a container, and hears what has become of it.
//!
//! Owns one start, from the orders to the process, or to an error behind which no process is left. Never waits for what a container can
//! delay: the program does, and says so.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cgroups::Entrance;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, pipe2};
use processes::reaper::{Child, ExitWatch, Reaper};
use processes::{Process, SignalNumber, thread_processor_time};
use thiserror::Error;
use threads::async_file;
use tokio::io::Interest;

use super::orders::{Files, Note, encode, notes};
use super::request::ExecRequest;
use crate::program::{self, EXEC};

/// As long as a call of the OCI runtime may take.
const LIMIT: Duration = Duration::from_secs(120);
/// More than all notes of one start.
const NOTES_LONGEST: u64 = 1024;

/// podshim's program in memory, from the first start of a container's to the container's end: it is written once.
#[derive(Debug, Default)]
pub struct ExecProgram(OnceCell<File>);

impl ExecProgram {
    fn file(&self) -> io::Result<&File> {
        match self.0.get() {
            Some(file) => Ok(file),
            None => {
                let file = program::open(EXEC, c"exec", "")?;
                Ok(self.0.get_or_init(|| file))
            }
        }
    }
}

/// Which container, by its init, and where its processes go.
#[derive(Debug, Clone, Copy)]
pub struct Target<'container> {
    /// Its init, which has not been released.
    pub init: &'container Process,
    /// Its groups.
    pub entrance: &'container Entrance,
    /// Which goes there.
    pub program: &'container ExecProgram,
}

/// A process that executes its program.
#[derive(Debug)]
pub struct Started {
    /// The process, a child of the shim.
    pub process: Process,
    /// Its exit, even if it has ended already.
    pub exit: ExitWatch,
}

/// Why there is no process.
#[derive(Debug, Error)]
pub enum ExecError {
    /// The shim cannot start podshim's program.
    #[error("cannot start a process for the container: {0}")]
    Prepare(#[from] io::Error),
    /// A step failed in the container, or on the way into it.
    #[error("cannot {step}: {source}")]
    Step {
        /// What it was doing.
        step: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// It has ended before it executed its program: the kernel or a process killed it.
    #[error("it was killed before it executed {0:?}")]
    Killed(String),
    /// It is not there in time, and has been killed.
    #[error("it has not executed {command:?} within {} s", limit.as_secs())]
    TimedOut {
        /// Its program.
        command: String,
        /// The limit.
        limit: Duration,
    },
}

/// Starts a process in a container that runs, or whose init waits for its start. Its streams are stdin, stdout and stderr.
///
/// Not cancel-safe: run it with `spawn_local`, or a process goes on unwatched.
///
/// # Errors
/// The kernel's, with the step that it refused. No process is left then.
pub async fn start(
    reaper: &Reaper,
    request: &ExecRequest<'_>,
    target: Target<'_>,
    streams: [Stdio; 3],
) -> Result<Started, ExecError> {
    // Before the first process: the last one may end before its pid is read.
    let subscription = reaper.subscribe();
    let permit = reaper.spawn_permit().await;
    // The fork is a good part of what it costs: a pod with many gates pays for that too.
    let used = thread_processor_time();
    let (child, reader) = spawn(reaper, request, target, streams)?;
    reaper.spend(thread_processor_time().saturating_sub(used));
    drop(permit);
    let answer = tokio::time::timeout(LIMIT, all_notes(reader)).await;
    let command =
        || request.arguments.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let notes = match answer {
        Ok(notes) => notes?,
        Err(_) => {
            let _ = child.process.signal(SignalNumber::KILL);
            return Err(ExecError::TimedOut { command: command(), limit: LIMIT });
        }
    };
    if let Some(error) = child.report.failure() {
        return Err(ExecError::Prepare(error));
    }
    match outcome(&notes) {
        Outcome::Made(pid) => {
            let (process, exit) = reaper.adopt_exec(&subscription, pid)?;
            Ok(Started { process, exit })
        }
        Outcome::Failed(step, number) => {
            let step = if step == "execute" { format!("execute {:?}", command()) } else { step.to_owned() };
            Err(ExecError::Step { step, source: io::Error::from_raw_os_error(number) })
        }
        Outcome::Nothing => Err(ExecError::Killed(command())),
    }
}

enum Outcome {
    Made(Pid),
    Failed(&'static str, i32),
    Nothing,
}

/// A failure counts, also of a process that was made: it has ended then.
fn outcome(notes: &[Note]) -> Outcome {
    let failed = notes.iter().find_map(|note| match note {
        Note::Failed(step, number) => Some(Outcome::Failed(step, *number)),
        Note::Moved(_) | Note::Made(_) => None,
    });
    let made = notes.iter().find_map(|note| match note {
        Note::Made(pid) => Some(Outcome::Made(*pid)),
        Note::Moved(_) | Note::Failed(..) => None,
    });
    failed.or(made).unwrap_or(Outcome::Nothing)
}

/// The first process, and where it and its children say what becomes of them.
fn spawn(
    reaper: &Reaper,
    request: &ExecRequest<'_>,
    target: Target<'_>,
    [stdin, stdout, stderr]: [Stdio; 3],
) -> io::Result<(Child, File)> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let init = target.init.pidfd().ok_or_else(gone)?;
    let program = target.program.file()?;
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    let groups =
        target.entrance.groups.iter().map(|group| open_group(group)).collect::<io::Result<Vec<_>>>()?;
    let files = Files {
        notes: writer.as_raw_fd(),
        init: init.as_raw_fd(),
        groups: groups.iter().map(AsRawFd::as_raw_fd).collect(),
    };
    let orders = program::in_memory(c"orders", &encode(request, target.entrance, &files))?;
    let mut command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
    command.arg0("podshim-exec").arg(orders.as_raw_fd().to_string()).env_clear();
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    let kept: Vec<RawFd> =
        [orders.as_raw_fd(), files.notes, files.init].into_iter().chain(files.groups).collect();
    // SAFETY: the closure makes system calls alone.
    unsafe { command.pre_exec(move || kept.iter().try_for_each(|file| keep_open(*file))) };
    Ok((reaper.spawn(&mut command)?, File::from(reader)))
}

/// Of a group only its place: a container sees the files in it.
fn open_group(group: &Path) -> io::Result<File> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    Ok(open(group, flags, Mode::empty())?.into())
}

/// Runs in a child between fork and exec.
fn keep_open(file: RawFd) -> io::Result<()> {
    // SAFETY: the shim has it open, and the child its copy.
    let file = unsafe { BorrowedFd::borrow_raw(file) };
    fcntl(file.as_fd(), FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}

/// Until all who could write one have executed their program, or ended.
async fn all_notes(reader: File) -> io::Result<Vec<Note>> {
    let reader = async_file::register(reader, Interest::READABLE)?;
    let mut text = Vec::new();
    loop {
        let mut readable = reader.readable().await?;
        match reader.get_ref().take(NOTES_LONGEST).read_to_end(&mut text) {
            Ok(_) => return Ok(notes(&text).collect()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable.clear_ready(),
            Err(error) => return Err(error),
        }
    }
}
