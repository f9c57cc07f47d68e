//! Starts the program that becomes a process of a container, and hears what has become of it.
//!
//! Owns one start, from the orders to the process, or to an error behind which no process is left. Never waits for what a container can
//! delay: the program does, and says so.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cgroups::Entrance;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl, open};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, pipe2};
use processes::reaper::{Child, ExitSubscription, ExitWatch, Reaper};
use processes::{Process, SignalNumber, thread_processor_time};
use thiserror::Error;
use threads::async_file;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::orders::{Files, Note, encode, notes};
use super::request::ExecRequest;
use crate::program::{self, EXEC};

/// It takes a few milliseconds. A container can stop a process in it before that has executed its program, or make its directory one that
/// does not answer.
const LIMIT: Duration = Duration::from_secs(30);
/// How long killed processes may take to end.
const LAST_WORDS: Duration = Duration::from_millis(200);
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
    /// The container's init has ended meanwhile.
    #[error("the container has ended")]
    Ended,
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
/// The kernel's, with the step that it refused. Every process that has been named has SIGKILL then; one that was made by a process that
/// was killed before it could name it is the caller's to find.
pub async fn start(
    reaper: &Reaper,
    request: &ExecRequest<'_>,
    target: Target<'_>,
    streams: [Stdio; 3],
) -> Result<Started, ExecError> {
    // Before the first process: the last one may end before its pid is read.
    let subscription = reaper.subscribe();
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK).map_err(io::Error::from)?;
    let mut notes_reader = NotesReader::on(reader.into())?;
    let permit = reaper.spawn_permit().await;
    // The fork is a good part of what it costs: a pod with many gates pays for that too.
    let used = thread_processor_time();
    let child = spawn(reaper, request, target, streams, writer)?;
    reaper.spend(thread_processor_time().saturating_sub(used));
    drop(permit);
    let result = tokio::select! {
        complete = notes_reader.complete() => complete.map_err(ExecError::from),
        () = target.init.until_exit() => Err(ExecError::Ended),
        () = tokio::time::sleep(LIMIT) => Err(ExecError::TimedOut { command: request.name(), limit: LIMIT }),
    };
    let result = result.and_then(|()| match child.report.failure() {
        Some(error) => Err(error.into()),
        None => outcome(&notes_reader.notes(), request),
    });
    match result {
        Ok(pid) => {
            let (process, exit) = reaper.adopt_exec(&subscription, pid)?;
            Ok(Started { process, exit })
        }
        Err(error) => {
            let _ = child.process.signal(SignalNumber::KILL);
            notes_reader.end_all(reaper, &subscription).await;
            Err(error)
        }
    }
}

/// The process that executes its program. A failure counts more, also of that process: it has ended then. Two of them are the word of a
/// process of the container that has got hold of the pipe.
fn outcome(notes: &[Note], request: &ExecRequest<'_>) -> Result<Pid, ExecError> {
    let mut made = None;
    for note in notes {
        match note {
            Note::Failed(step, number) => {
                let step = match *step {
                    "execute" => format!("execute {:?}", request.name()),
                    step => step.to_owned(),
                };
                return Err(ExecError::Step { step, source: io::Error::from_raw_os_error(*number) });
            }
            Note::Made(pid) if made.replace(*pid).is_none() => {}
            Note::Made(_) => return Err(ExecError::Killed(request.name())),
            Note::Moved(_) => {}
        }
    }
    made.ok_or_else(|| ExecError::Killed(request.name()))
}

/// What the processes of a start have said so far.
struct NotesReader {
    reader: AsyncFd<File>,
    text: Vec<u8>,
}

impl NotesReader {
    fn on(reader: File) -> io::Result<Self> {
        Ok(Self { reader: async_file::register(reader, Interest::READABLE)?, text: Vec::new() })
    }

    /// Until all who could say more have executed their program, or ended.
    async fn complete(&mut self) -> io::Result<()> {
        loop {
            let mut readable = self.reader.readable().await?;
            let room = NOTES_LONGEST.saturating_sub(self.text.len() as u64);
            match self.reader.get_ref().take(room).read_to_end(&mut self.text) {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable.clear_ready(),
                Err(error) => return Err(error),
            }
        }
    }

    fn notes(&self) -> Vec<Note> {
        notes(&self.text).collect()
    }

    /// Kills each process that has been named, and those that these still name.
    async fn end_all(&mut self, reaper: &Reaper, subscription: &ExitSubscription) {
        for _ in 0..2 {
            for note in self.notes() {
                if let Note::Moved(pid) | Note::Made(pid) = note
                    // A pid that is not the shim's child is refused.
                    && let Ok((process, _)) = reaper.adopt(subscription, pid)
                {
                    let _ = process.signal(SignalNumber::KILL);
                }
            }
            // Who is killed between its fork and its word for that leaves a process without a name; the caller looks for such.
            let _ = tokio::time::timeout(LAST_WORDS, self.complete()).await;
        }
    }
}

/// The first process. It and its children say into `writer` what becomes of them.
fn spawn(
    reaper: &Reaper,
    request: &ExecRequest<'_>,
    target: Target<'_>,
    [stdin, stdout, stderr]: [Stdio; 3],
    writer: OwnedFd,
) -> io::Result<Child> {
    let gone = || io::Error::from(io::ErrorKind::NotFound);
    let init = target.init.pidfd().ok_or_else(gone)?;
    let program = target.program.file()?;
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
    reaper.spawn(&mut command)
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
