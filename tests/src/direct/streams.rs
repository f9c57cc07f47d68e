//! The far end of a process's stdio, as containerd's clients hold it: named pipes, or a file.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::durations::pace;
use anyhow::{Context, Result};
use nix::sys::stat::Mode;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

/// Which streams a process gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Streams {
    /// Empty addresses.
    Null,
    /// stdout and stderr.
    #[default]
    Output,
    /// All three.
    All,
    /// stdin and stdout, of a terminal.
    Terminal,
    /// The same, of a client that has nothing to write and is slow: it reads only when the test asks for the rest. Its
    /// pipe holds one page.
    SlowTerminal,
    /// `file://` for stdout and stderr.
    File,
}

impl Streams {
    /// Whether a request with them says `terminal`.
    #[must_use]
    pub fn are_of_a_terminal(self) -> bool {
        matches!(self, Self::Terminal | Self::SlowTerminal)
    }
}

/// The addresses of a process's streams, as a request carries them, and the test's ends of them.
pub struct Ends {
    /// Empty if the process has no stdin; likewise the next two.
    pub stdin: String,
    /// For a terminal the only output.
    pub stdout: String,
    /// Empty for a terminal.
    pub stderr: String,
    input: Option<std::sync::mpsc::Sender<Vec<u8>>>,
    output: mpsc::UnboundedReceiver<Vec<u8>>,
    errors: mpsc::UnboundedReceiver<Vec<u8>>,
    unread: String,
    file: Option<PathBuf>,
    /// Lets a slow client begin to read.
    go: Option<std::sync::mpsc::Sender<()>>,
}

impl Ends {
    /// Makes the pipes in `directory`, their names beginning with `name`.
    ///
    /// # Errors
    /// If a pipe cannot be made.
    pub fn make(directory: &Path, name: &str, streams: Streams) -> Result<Self> {
        let (closed, receiver) = mpsc::unbounded_channel();
        drop(closed);
        let (closed, second) = mpsc::unbounded_channel();
        drop(closed);
        let mut ends = Self {
            stdin: String::new(),
            stdout: String::new(),
            stderr: String::new(),
            input: None,
            output: receiver,
            errors: second,
            unread: String::new(),
            file: None,
            go: None,
        };
        let fifo = |stream: &str| -> Result<PathBuf> {
            let path = directory.join(format!("{name}-{stream}"));
            nix::unistd::mkfifo(&path, Mode::from_bits_truncate(0o700))?;
            Ok(path)
        };
        if matches!(streams, Streams::All | Streams::Terminal) {
            let path = fifo("stdin")?;
            ends.stdin = text(&path);
            ends.input = Some(writer(path));
        }
        if streams == Streams::SlowTerminal {
            let (path, input) = (fifo("stdout")?, fifo("stdin")?);
            (ends.stdout, ends.stdin) = (text(&path), text(&input));
            // Opened and closed: it has ended.
            drop(writer(input));
            let pipe = of_one_page(&path)?;
            let (go, gate) = std::sync::mpsc::channel();
            ends.go = Some(go);
            ends.output = reader_behind(path, move || {
                // It can write, and would keep the stream from its end.
                drop(pipe);
                // Its other end is dropped, never used.
                let _ = gate.recv();
            });
        }
        if matches!(streams, Streams::Output | Streams::All | Streams::Terminal) {
            let path = fifo("stdout")?;
            ends.stdout = text(&path);
            ends.output = reader(path);
        }
        if matches!(streams, Streams::Output | Streams::All) {
            let path = fifo("stderr")?;
            ends.stderr = text(&path);
            ends.errors = reader(path);
        }
        if streams == Streams::File {
            let path = directory.join(format!("{name}.log"));
            ends.stdout = format!("file://{}", path.display());
            ends.stderr.clone_from(&ends.stdout);
            ends.file = Some(path);
        }
        Ok(ends)
    }

    /// Writes to the process's stdin, as soon as the process reads.
    pub fn write(&self, bytes: &[u8]) {
        if let Some(input) = &self.input {
            // An error means that the process has ended; the test's next step sees that.
            let _ = input.send(bytes.to_vec());
        }
    }

    /// Closes the test's end of the process's stdin.
    pub fn close_input(&mut self) {
        self.input = None;
    }

    /// The next line of stdout.
    pub async fn line(&mut self, within: Duration) -> String {
        let deadline = Instant::now() + within * pace();
        loop {
            if let Some((line, rest)) = self.unread.split_once('\n') {
                let (line, rest) = (line.to_owned(), rest.to_owned());
                self.unread = rest;
                return line;
            }
            match timeout_at(deadline, self.output.recv()).await {
                Ok(Some(bytes)) => self.unread.push_str(&String::from_utf8_lossy(&bytes)),
                Ok(None) => return format!("{}<end>", std::mem::take(&mut self.unread)),
                Err(_) => return format!("{}<nothing more within {within:?}>", self.unread),
            }
        }
    }

    /// Returns the rest of stdout and stderr, up to their ends.
    ///
    /// # Errors
    /// If its file cannot be read.
    pub async fn rest(&mut self, within: Duration) -> Result<(String, String)> {
        if let Some(path) = &self.file {
            let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
            return Ok((text, String::new()));
        }
        self.go = None;
        let deadline = Instant::now() + within * pace();
        let mut texts = [std::mem::take(&mut self.unread), String::new()];
        for (text, stream) in texts.iter_mut().zip([&mut self.output, &mut self.errors]) {
            loop {
                match timeout_at(deadline, stream.recv()).await {
                    Ok(Some(bytes)) => text.push_str(&String::from_utf8_lossy(&bytes)),
                    Ok(None) => break,
                    Err(_) => {
                        text.push_str("<open>");
                        break;
                    }
                }
            }
        }
        let [output, errors] = texts;
        Ok((output, errors))
    }
}

/// Opens a named pipe, and makes it hold one page: a longer one holds as many pieces as it has pages, so how many bytes go in
/// depends on how fast they come.
fn of_one_page(path: &Path) -> Result<File> {
    let pipe = OpenOptions::new().read(true).write(true).open(path)?;
    nix::fcntl::fcntl(&pipe, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).context("a pipe of one page")?;
    Ok(pipe)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Opening a pipe waits for its other end, so each pipe has a thread. A thread that waits for ever ends with the test
/// process.
fn reader(path: PathBuf) -> mpsc::UnboundedReceiver<Vec<u8>> {
    reader_behind(path, || {})
}

/// One that opens its pipe, and reads when `gate` returns.
fn reader_behind(path: PathBuf, gate: impl FnOnce() + Send + 'static) -> mpsc::UnboundedReceiver<Vec<u8>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let Ok(mut file) = File::open(path) else { return };
        gate();
        let mut buffer = vec![0; 65536];
        while let Ok(length) = file.read(&mut buffer) {
            if length == 0 || sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

fn writer(path: PathBuf) -> std::sync::mpsc::Sender<Vec<u8>> {
    let (sender, receiver) = std::sync::mpsc::channel::<Vec<u8>>();
    std::thread::spawn(move || {
        let Ok(mut file) = OpenOptions::new().write(true).open(path) else { return };
        for bytes in receiver {
            if file.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    sender
}
