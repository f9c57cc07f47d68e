//! Terminals: receives a pty from the runtime and copies between it and containerd's fifos.
//!
//! Owns the pty master of one incarnation of a process. [`Stdio`](crate::stdio::Stdio) owns the fifos: after a restart
//! in place a new console uses the same ones.

use std::{
    cell::{Cell, RefCell},
    fs::File,
    io::{self, IoSliceMut, Read, Write},
    ops::ControlFlow,
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::fs::PermissionsExt,
    },
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use nix::{
    cmsg_space,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::socket::{ControlMessageOwned, MsgFlags, recvmsg},
};
use thiserror::Error;
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::UnixListener,
    task::JoinHandle,
};
use tracing::debug;

use crate::{
    async_file,
    stdio::{ConsoleStreams, LineWatch, Lines},
};

#[cfg(test)]
mod tests;

/// Longest path of a unix socket (`sun_path` without its closing zero).
const SOCKET_PATH_LONGEST: usize = 107;
const COPY_BUFFER: usize = 8 * 1024;

/// How a console can fail.
#[derive(Debug, Error)]
pub enum ConsoleError {
    /// The socket cannot be made.
    #[error("cannot make a console socket in {}: {source}", directory.display())]
    Socket {
        /// The directory asked for.
        directory: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The runtime did not send a terminal.
    #[error("the OCI runtime sent no terminal: {0}")]
    Receive(#[source] io::Error),
    /// The terminal cannot be set up.
    #[error("cannot set up the terminal: {0}")]
    Setup(#[source] io::Error),
}

/// Size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Columns.
    pub columns: u16,
    /// Rows.
    pub rows: u16,
}

/// The socket over which the runtime hands out the pty master (`--console-socket`).
///
/// It is in a directory of its own that only root can enter. Dropping this removes both, and dropping the last one
/// removes `base`.
#[derive(Debug)]
pub struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
    directory: PathBuf,
    base: PathBuf,
}

impl ConsoleSocket {
    /// Makes a socket below `base`, which is created if needed. No other process may use the same `base`: it is
    /// removed with its last socket.
    ///
    /// `base` must be short: bundle paths of CRI containers exceed the 107 bytes a socket address holds.
    pub fn bind(base: &Path) -> Result<Self, ConsoleError> {
        let bind = || {
            std::fs::create_dir_all(base)?;
            let directory = nix::unistd::mkdtemp(&base.join("pty-XXXXXX"))?;
            let path = directory.join("s");
            let listen = || {
                if path.as_os_str().len() > SOCKET_PATH_LONGEST {
                    let reason = format!("the path exceeds {SOCKET_PATH_LONGEST} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
                }
                let listener = UnixListener::bind(&path)?;
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
                Ok(listener)
            };
            match listen() {
                Ok(listener) => Ok(Self { listener, path: path.clone(), directory, base: base.to_owned() }),
                Err(error) => {
                    let _ = std::fs::remove_dir_all(&directory);
                    let _ = std::fs::remove_dir(base);
                    Err(error)
                }
            }
        };
        bind().map_err(|source| ConsoleError::Socket { directory: base.to_owned(), source })
    }

    /// The path to give to the runtime.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Receives the pty master, waiting at most `limit`. Cancel-safe until the connection is accepted.
    ///
    /// Call it after the runtime's command succeeded: the descriptor is in the socket's queue by then.
    pub async fn receive(&self, limit: Duration) -> Result<OwnedFd, ConsoleError> {
        let receive = async {
            let (stream, _) = self.listener.accept().await?;
            stream.async_io(Interest::READABLE, || receive_descriptor(stream.as_raw_fd())).await
        };
        match tokio::time::timeout(limit, receive).await {
            Ok(received) => received.map_err(ConsoleError::Receive),
            Err(_) => Err(ConsoleError::Receive(io::Error::from(io::ErrorKind::TimedOut))),
        }
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.directory);
        // Fails if it is not empty: another process of the pod is being made.
        let _ = std::fs::remove_dir(&self.base);
    }
}

fn receive_descriptor(socket: RawFd) -> io::Result<OwnedFd> {
    let mut name = [0; 256];
    let mut buffers = [IoSliceMut::new(&mut name)];
    let mut control = cmsg_space!([RawFd; 4]);
    let message = recvmsg::<()>(socket, &mut buffers, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut received = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the kernel made these descriptors for this call alone.
            received.extend(descriptors.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    // The runtime spec's console protocol says exactly one; all others are closed here.
    match (received.pop(), received.is_empty()) {
        (Some(master), true) => Ok(master),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "expected one file descriptor")),
    }
}

/// The terminal of one incarnation of a process.
#[derive(Debug)]
pub struct Console {
    master: Rc<AsyncFd<File>>,
    input: Option<JoinHandle<()>>,
    output: Option<JoinHandle<()>>,
    size: Cell<Option<TerminalSize>>,
    lines: WatchedLines,
}

/// The watch that reads the output's lines, if any.
type WatchedLines = Rc<RefCell<Option<Lines>>>;

impl Console {
    /// Takes the master and starts copying on the current `LocalSet`.
    pub fn start(master: OwnedFd, streams: ConsoleStreams) -> Result<Self, ConsoleError> {
        Self::set_up(master, streams).map_err(ConsoleError::Setup)
    }

    fn set_up(master: OwnedFd, streams: ConsoleStreams) -> io::Result<Self> {
        // The shim alone has this open file description: the runtime has closed its copy.
        let flags = OFlag::from_bits_truncate(fcntl(&master, FcntlArg::F_GETFL)?);
        fcntl(&master, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
        let master =
            Rc::new(async_file::register(File::from(master), Interest::READABLE | Interest::WRITABLE)?);
        let lines = WatchedLines::default();
        let output = {
            let lines = lines.clone();
            let sink =
                streams.stdout.map(|file| async_file::register(file, Interest::WRITABLE)).transpose()?;
            let master = master.clone();
            tokio::task::spawn_local(async move {
                let ended = copy_output(&master, sink.as_ref(), &lines).await;
                debug!(?ended, "the terminal's output ended");
            })
        };
        let input = match streams.stdin {
            None => None,
            Some(stdin) => {
                let source = async_file::register(stdin, Interest::READABLE)?;
                let (master, output) = (master.clone(), output.abort_handle());
                Some(tokio::task::spawn_local(async move {
                    let ended = copy(&source, &master, async |_: &[u8]| {}).await;
                    debug!(?ended, "the terminal's input ended");
                    if ended.is_ok() {
                        // CloseIO hangs up the terminal: containerd's shim closes the console at the end of stdin.
                        output.abort();
                    }
                }))
            }
        };
        Ok(Self { master, input, output: Some(output), size: Cell::new(None), lines })
    }

    /// Shows `watch` the lines of the output that are written from now on, until it has seen enough.
    pub fn watch_lines(&self, watch: &LineWatch) {
        self.lines.replace(Some(Lines::new(watch.clone())));
    }

    /// Sets the size; the foreground process gets SIGWINCH.
    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let winsize = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize, which outlives the call.
        if unsafe { libc::ioctl(self.master.as_raw_fd(), libc::TIOCSWINSZ, &winsize) } < 0 {
            return Err(io::Error::last_os_error());
        }
        self.size.set(Some(size));
        Ok(())
    }

    /// The size last set, for the console of the next incarnation (rule R6).
    pub fn size(&self) -> Option<TerminalSize> {
        self.size.get()
    }

    /// After the exit: copies what is left in the pty, for at most `limit`, then closes the pty and the console's ends
    /// of the fifos. So containerd sees EOF even if a background process holds the terminal.
    ///
    /// The limit also applies if containerd does not read. Cancel-safe: dropping a console closes everything too, as
    /// soon as its aborted tasks have been polled.
    pub async fn shutdown(mut self, limit: Duration) {
        // The handles stay in place during the wait; otherwise a dropped future would leave the tasks running.
        if let Some(output) = &mut self.output
            && tokio::time::timeout(limit, &mut *output).await.is_ok()
        {
            // A closed pty has ended the copy by itself (EIO).
            self.output = None;
        }
        for task in [&mut self.output, &mut self.input] {
            if let Some(task) = task {
                task.abort();
                // What the task holds is closed when the task has been dropped, not before.
                let _ = task.await;
            }
            *task = None;
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

/// Copies pty output. Without a sink the output is read and dropped: otherwise the process would block on a full pty.
async fn copy_output(
    master: &AsyncFd<File>,
    sink: Option<&AsyncFd<File>>,
    lines: &WatchedLines,
) -> io::Result<()> {
    let inspect = async |data: &[u8]| {
        // Take it out of its place: a new watch may be put there meanwhile.
        let Some(mut watched) = lines.take() else { return };
        if watched.feed(data).await == ControlFlow::Continue(()) {
            lines.borrow_mut().get_or_insert(watched);
        }
    };
    match sink {
        Some(sink) => copy(master, sink, inspect).await,
        None => {
            let mut buffer = [0; COPY_BUFFER];
            loop {
                match read(master, &mut buffer).await? {
                    0 => return Ok(()),
                    length => inspect(&buffer[..length]).await,
                }
            }
        }
    }
}

async fn copy(source: &AsyncFd<File>, sink: &AsyncFd<File>, inspect: impl AsyncFn(&[u8])) -> io::Result<()> {
    let mut buffer = [0; COPY_BUFFER];
    loop {
        let length = read(source, &mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        inspect(&buffer[..length]).await;
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let written = sink.async_io(Interest::WRITABLE, |mut sink| sink.write(rest)).await?;
            rest = &rest[written..];
        }
    }
}

async fn read(source: &AsyncFd<File>, buffer: &mut [u8]) -> io::Result<usize> {
    match source.async_io(Interest::READABLE, |mut source| source.read(buffer)).await {
        // Linux reports with EIO that the last process has closed the other side of a pty.
        Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(0),
        result => result,
    }
}
