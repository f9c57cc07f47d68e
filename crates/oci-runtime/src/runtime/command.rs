//! One call of the runtime: its arguments, where its streams go, and its error messages.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio as ProcessStdio};

use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::Deserialize;
use streams::stdio::{ChildStdio, Excess};
use threads::hand::Held;

/// How much of the runtime's stdout or stderr is read.
const OUTPUT_LIMIT: u64 = 64 * 1024;
/// How much of its log: one entry may have a command or a hook's output in it.
const LOG_LIMIT: u64 = 1024 * 1024;
/// The longest message that is passed on as it is. Of a longer one the beginning and the end are: a runtime says first what it was
/// about, and last what went wrong.
const MESSAGE_LONGEST: usize = 16 * 1024;

/// Arguments of one runtime command.
pub(super) struct Arguments(pub(super) Vec<OsString>);

impl Arguments {
    pub(super) fn new(command: &str) -> Self {
        Self(vec![command.into()])
    }

    pub(super) fn push(&mut self, argument: impl Into<OsString>) {
        self.0.push(argument.into());
    }

    pub(super) fn option(&mut self, name: &str, value: &Path) {
        self.0.push(name.into());
        self.0.push(value.into());
    }
}

/// Where the stdin, stdout and stderr of the command go.
pub(super) enum Streams {
    /// They are the container's: `create` and `exec` pass them on to its process.
    Container(ChildStdio),
    /// podshim reads them.
    Captured(Captured),
}

impl Streams {
    pub(super) fn attach(self, command: &mut Command) -> io::Result<Output> {
        match self {
            Self::Container(ChildStdio { stdin, stdout, stderr, excess, lent }) => {
                command.stdin(stdin).stdout(stdout).stderr(stderr);
                Ok(Output::Container { excess, _lent: lent })
            }
            Self::Captured(captured) => {
                command.stdin(match &captured.stdin {
                    Some(file) => file.try_clone()?.into(),
                    None => ProcessStdio::null(),
                });
                command.stdout(captured.stdout.try_clone()?).stderr(captured.stderr.try_clone()?);
                Ok(Output::Captured(captured))
            }
        }
    }
}

/// What podshim has of a running command's streams.
pub(super) enum Output {
    /// The container's processes have them.
    Container {
        /// What the command writes to stderr without end.
        excess: Option<Excess>,
        /// Outlasts the command, which has the descriptors.
        _lent: Option<Held<Vec<OwnedFd>>>,
    },
    /// Its own.
    Captured(Captured),
}

impl Output {
    pub(super) fn stdout(self) -> Vec<u8> {
        match self {
            Self::Container { .. } => Vec::new(),
            Self::Captured(mut captured) => captured.stdout(),
        }
    }

    pub(super) fn last_error_line(self) -> Option<String> {
        match self {
            Self::Container { .. } => None,
            Self::Captured(mut captured) => captured.last_error_line(),
        }
    }
}

/// Memory files instead of pipes: nothing has to be copied while the command runs, and no process can hold them open.
pub(super) struct Captured {
    stdin: Option<File>,
    stdout: File,
    stderr: File,
}

impl Captured {
    pub(super) fn new(stdin: Option<&[u8]>) -> io::Result<Self> {
        let file = |name| io::Result::Ok(File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?));
        let stdin = match stdin {
            Some(bytes) => {
                let mut file = file(c"stdin")?;
                file.write_all(bytes)?;
                file.rewind()?;
                Some(file)
            }
            None => None,
        };
        Ok(Self { stdin, stdout: file(c"stdout")?, stderr: file(c"stderr")? })
    }

    pub(super) fn stdout(&mut self) -> Vec<u8> {
        read_from(&mut self.stdout, 0, OUTPUT_LIMIT)
    }

    pub(super) fn last_error_line(&mut self) -> Option<String> {
        let text = String::from_utf8_lossy(&read_from(&mut self.stderr, 0, OUTPUT_LIMIT)).into_owned();
        text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
    }
}

fn read_from(file: &mut File, position: u64, limit: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    if file.seek(SeekFrom::Start(position)).is_ok() {
        // What was read before an error is still the best text available.
        let _ = file.take(limit).read_to_end(&mut bytes);
    }
    bytes
}

/// The end of the runtime's log before a call: later text was written during the call.
pub(super) struct LogPosition {
    pub(super) path: PathBuf,
    length: u64,
}

impl LogPosition {
    pub(super) fn remember(path: PathBuf) -> Self {
        let length = fs::metadata(&path).map_or(0, |metadata| metadata.len());
        Self { path, length }
    }

    /// What the runtime says went wrong, oldest first.
    pub(super) fn errors(&self) -> Vec<String> {
        let Ok(mut file) = File::open(&self.path) else { return Vec::new() };
        let mut log = read_from(&mut file, self.length, LOG_LIMIT);
        let mut errors = errors_in(&log);
        if errors.is_empty() && log.len() as u64 == LOG_LIMIT {
            close_entry(&mut log);
            errors = errors_in(&log);
        }
        errors.into_iter().map(shortened).collect()
    }
}

/// Ends an entry that was read in part, in the middle of its message, behind the last whole character of it.
fn close_entry(log: &mut Vec<u8>) {
    // The longest escape is \uXXXX.
    let tail = log.len().saturating_sub(6);
    if let Some(escape) = log[tail..].iter().position(|byte| *byte == b'\\') {
        log.truncate(tail + escape);
    }
    let whole = String::from_utf8_lossy(log).trim_end_matches(char::REPLACEMENT_CHARACTER).len();
    log.truncate(whole);
    log.extend_from_slice(b"\"}");
}

fn shortened(message: String) -> String {
    if message.len() <= MESSAGE_LONGEST {
        return message;
    }
    let beginning = message.floor_char_boundary(MESSAGE_LONGEST / 2);
    let end = message.ceil_char_boundary(message.len() - MESSAGE_LONGEST / 2);
    format!("{} [{} bytes] {}", &message[..beginning], end - beginning, &message[end..])
}

pub(crate) fn errors_in(log: &[u8]) -> Vec<String> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Entry {
        level: String,
        msg: String,
    }
    // Do not read line by line: crun 1.28 spreads an entry over several lines (trap 24).
    let entries = serde_json::Deserializer::from_slice(log).into_iter::<Entry>();
    let errors = entries.filter_map(Result::ok).filter(|entry| matches!(&*entry.level, "error" | "fatal"));
    errors.map(|entry| entry.msg.trim().to_owned()).collect()
}

/// A file for the duration of one call, readable by root only: an exec's environment may hold secrets.
pub(super) struct TemporaryFile {
    pub(super) path: PathBuf,
}

impl TemporaryFile {
    pub(super) fn create(path: PathBuf, content: &[u8]) -> Result<Self, (PathBuf, io::Error)> {
        let written = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(content));
        match written {
            Ok(()) => Ok(Self { path }),
            Err(error) => {
                let _ = fs::remove_file(&path);
                Err((path, error))
            }
        }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Trap 24: runc and crun 1.8 write one line per entry; crun 1.28 indents them over several.
    #[test]
    fn errors_of_either_layout_count_and_none_of_an_earlier_call() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.json");
        fs::write(&path, "{\"level\":\"error\",\"msg\":\"of the call before\"}\n").unwrap();
        let log = LogPosition::remember(path.clone());
        assert!(log.errors().is_empty());
        for (entries, message) in [
            ("{\"level\":\"error\",\"msg\":\"one\"}\n{\"level\":\"warning\",\"msg\":\"two\"}\n", "one"),
            ("{\n  \"msg\": \"three\",\n  \"level\": \"error\"\n}\n", "three"),
            ("{\"msg\":\"no level\"}{\"msg\":\"four\",\"level\":\"fatal\"}", "four"),
        ] {
            let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
            file.write_all(entries.as_bytes()).unwrap();
            assert_eq!(log.errors().last().map(String::as_str), Some(message));
        }
        assert_eq!(log.errors(), ["one", "three", "four"]);
    }

    /// D7: the reason is found in a log with a long command in it, or with a hook's whole output, and the answer is short.
    #[test]
    fn d7_of_a_long_message_the_beginning_and_the_end_are_answered() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log.json");
        for length in [100_000, 3_000_000] {
            // With characters of several bytes, escaped and not.
            let command = "\\u003cé".repeat(length / 8);
            fs::write(&path, format!(r#"{{"level":"error","msg":"exec: {command}: no such file"}}"#))
                .unwrap();
            let errors = LogPosition { path: path.clone(), length: 0 }.errors();
            let [message] = &errors[..] else { panic!("{} errors", errors.len()) };
            assert!(message.starts_with("exec: <é<é") && message.len() < MESSAGE_LONGEST + 100, "{message}");
            assert_eq!(message.ends_with(": no such file"), length == 100_000);
        }
        assert_eq!(shortened("as it is".into()), "as it is");
    }

    /// A runtime that writes without end costs no more memory than one that reports why it failed.
    #[test]
    fn of_a_log_without_end_the_beginning_is_read() {
        let endless = LogPosition { path: "/dev/zero".into(), length: 0 };
        assert!(endless.errors().is_empty());
        let mut file = File::open("/dev/zero").unwrap();
        assert_eq!(read_from(&mut file, 0, OUTPUT_LIMIT).len() as u64, OUTPUT_LIMIT);
    }
}
