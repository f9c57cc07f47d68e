//! Streams against real fifos; the test plays containerd and a shell plays the container.

use std::fs::OpenOptions;
use std::io::Read;
use std::process::Command;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use processes::SignalNumber;
use processes::reaper::{Child, Reaper};
use test_support::{make_fifo, open_reader, read_available, read_to_end, run, until, within};

use super::super::attempt::{Attempt, ChildStdio};
use super::super::endpoint::reopen;
use super::*;

mod closing;
mod moving;
mod seams;

const SHORT: Duration = Duration::from_millis(30);

fn shell(stdio: ChildStdio, script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(stdio.stdin).stdout(stdio.stdout).stderr(stdio.stderr);
    command
}

/// Spawns a further incarnation.
fn spawn(reaper: &Reaper, stdio: &mut Stdio, script: &str) -> Child {
    let Attempt { child, held_back } = stdio.attempt().unwrap();
    let child = reaper.spawn(&mut shell(child, script)).unwrap();
    stdio.accept(held_back);
    child
}

fn output_to(path: &str) -> StdioPaths {
    StdioPaths { stdout: path.to_owned(), ..StdioPaths::default() }
}

/// Opens the streams and starts moving, as after a successful create.
async fn open(paths: &StdioPaths) -> Stdio {
    let mut stdio = Stdio::open(paths, StreamOwner::default()).unwrap();
    let Attempt { held_back, .. } = stdio.attempt().unwrap();
    stdio.connect().await.unwrap();
    stdio.accept(held_back);
    stdio
}

/// One stdout fifo with containerd's reader.
struct Stdout {
    directory: tempfile::TempDir,
    path: String,
    reader: File,
    stdio: Stdio,
}

impl Stdout {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = make_fifo(directory.path(), "stdout");
        let reader = open_reader(&path);
        let stdio = open(&output_to(&path)).await;
        Self { directory, path, reader, stdio }
    }
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The count of open files once there is what all streams of a thread share: the view on moved data.
async fn open_files_of_a_thread_with_streams() -> usize {
    let Stdout { reader, stdio, .. } = Stdout::new().await;
    reopen(stdio.stdout.as_ref().unwrap().process_end().unwrap()).unwrap().write_all(b"x").unwrap();
    until(|| read_available(&reader) == "x").await;
    drop((reader, stdio));
    tokio::task::yield_now().await;
    open_files()
}

fn assert_open_and_empty(mut reader: &File) {
    assert_eq!(reader.read(&mut [0; 1]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn opening_waits_for_a_reader_that_comes_late() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let stdout = make_fifo(directory.path(), "stdout");
        let paths = output_to(&stdout);
        let mut stdio = Stdio::open(&paths, StreamOwner::default()).unwrap();
        let error = stdio.connect_within(SHORT).await.unwrap_err();
        assert!(matches!(error, StdioError::NoReader { stream: StreamName::Stdout, .. }), "{error}");

        let opening = tokio::task::spawn_local(async move { open(&paths).await });
        tokio::task::yield_now().await;
        assert!(!opening.is_finished());
        let _reader = open_reader(&stdout);
        within(opening).await.unwrap();
    });
}

/// A Create that fails before it connects has not touched the fifos: a reader that had seen EOF on the first one would
/// have gone, and the next Create would wait for a reader.
#[test]
fn a_set_that_is_given_up_before_it_is_connected_has_sent_its_readers_nothing() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let stdout = make_fifo(directory.path(), "stdout");
        // As containerd does: its open waits for a writer.
        let opened = stdout.clone();
        let client = std::thread::spawn(move || std::fs::read_to_string(opened));
        let stdio = Stdio::open(&output_to(&stdout), StreamOwner::default()).unwrap();
        let failing = stdio.attempt().unwrap().child;
        within(reaper.spawn(&mut shell(failing, "echo of the failed runtime")).unwrap().exit).await;
        drop(stdio);
        let mut stdio = Stdio::open(&output_to(&stdout), StreamOwner::default()).unwrap();
        within(stdio.connect()).await.unwrap();
        within(spawn(&reaper, &mut stdio, "echo out").exit).await;
        stdio.drain(READER_LIMIT).await;
        assert_eq!(client.join().unwrap().unwrap(), "out\n");
    });
}

#[test]
fn output_written_while_containerd_is_away_is_there_when_it_comes_back() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let Stdout { path, reader, mut stdio, directory: _directory } = Stdout::new().await;
        drop(reader);
        // Without a reader this would end with SIGPIPE.
        assert_eq!(within(spawn(&reaper, &mut stdio, "echo kept").exit).await.code, 0);
        let reader = open_reader(&path);
        stdio.finish_output();
        assert_eq!(read_to_end(&reader).await, "kept\n");
    });
}

#[test]
fn r6_containerd_sees_eof_when_the_last_holder_is_gone_and_not_between_incarnations() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let Stdout { reader, mut stdio, .. } = Stdout::new().await;
        within(spawn(&reaper, &mut stdio, "echo one").exit).await;
        let mut seen = String::new();
        until(|| {
            seen.push_str(&read_available(&reader));
            seen == "one\n"
        })
        .await;
        assert_open_and_empty(&reader);
        let second = spawn(&reaper, &mut stdio, "echo two; exec sleep 1000");
        stdio.finish_output();
        until(|| read_available(&reader).contains("two")).await;
        assert_open_and_empty(&reader);
        second.process.signal(SignalNumber::KILL).unwrap();
        within(second.exit).await;
        assert_eq!(read_to_end(&reader).await, "");
    });
}

#[test]
fn stdin_has_no_eof_before_close_io_even_when_containerd_goes_away() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let (stdin, stdout) = (make_fifo(directory.path(), "stdin"), make_fifo(directory.path(), "stdout"));
        let reader = open_reader(&stdout);
        let mut stdio = open(&StdioPaths { stdin: stdin.clone(), ..output_to(&stdout) }).await;
        let child = spawn(&reaper, &mut stdio, "cat; echo end");
        let client = OpenOptions::new().write(true).open(&stdin).unwrap();
        (&client).write_all(b"hello\n").unwrap();
        drop(client);
        let mut seen = String::new();
        until(|| {
            seen.push_str(&read_available(&reader));
            seen == "hello\n"
        })
        .await;
        assert!(child.process.is_running());
        stdio.close_stdin();
        stdio.close_stdin();
        within(child.exit).await;
        stdio.finish_output();
        assert_eq!(read_to_end(&reader).await, "end\n");
    });
}

#[test]
fn non_blocking_mode_set_by_one_incarnation_does_not_reach_the_next() {
    run(async {
        let Stdout { stdio, .. } = Stdout::new().await;
        let writer = || reopen(stdio.stdout.as_ref().unwrap().process_end().unwrap()).unwrap();
        let first = writer();
        fcntl(&first, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let flags = OFlag::from_bits_truncate(fcntl(writer(), FcntlArg::F_GETFL).unwrap());
        assert!(!flags.intersects(OFlag::O_NONBLOCK | OFlag::O_APPEND));
    });
}

#[test]
fn dev_stdout_can_be_opened_by_an_unprivileged_container_user() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let stdout = make_fifo(directory.path(), "stdout");
        let reader = open_reader(&stdout);
        let owner = StreamOwner { user: Some(12345), group: Some(12345) };
        let mut stdio = Stdio::open(&output_to(&stdout), owner).unwrap();
        let Attempt { child, held_back } = stdio.attempt().unwrap();
        stdio.connect().await.unwrap();
        stdio.accept(held_back);
        let mut command = shell(child, "echo reopened > /proc/self/fd/1");
        std::os::unix::process::CommandExt::uid(&mut command, 12345);
        std::os::unix::process::CommandExt::gid(&mut command, 12345);
        assert_eq!(within(reaper.spawn(&mut command).unwrap().exit).await.code, 0);
        drop(command);
        stdio.finish_output();
        assert_eq!(read_to_end(&reader).await, "reopened\n");
    });
}

#[test]
fn files_are_created_and_appended_to_by_both_streams() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("logs/out");
        let address = format!("file://{}", path.display());
        let paths = StdioPaths { stdout: address.clone(), stderr: address, ..StdioPaths::default() };
        for _ in 0..2 {
            let mut stdio = open(&paths).await;
            within(spawn(&reaper, &mut stdio, "echo out; echo err >&2").exit).await;
            stdio.finish_output();
        }
        // containerd's shim also accepts a bare path that is not a fifo.
        let mut stdio = open(&output_to(path.to_str().unwrap())).await;
        within(spawn(&reaper, &mut stdio, "echo bare").exit).await;
        stdio.finish_output();
        assert_eq!(std::fs::read_to_string(path).unwrap(), "out\nerr\nout\nerr\nbare\n");
    });
}

/// The form of stdout decides (CONTRACT §7): if it is a file, the address of stderr is ignored.
#[test]
fn stderr_goes_to_the_file_of_stdout() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("with space/out");
        let stdout = format!("file://{}/with%20space/out?ignored=1", directory.path().display());
        let other = directory.path().join("other");
        let paths =
            StdioPaths { stdout, stderr: format!("file://{}", other.display()), ..Default::default() };
        let mut stdio = open(&paths).await;
        within(spawn(&reaper, &mut stdio, "echo out; echo err >&2").exit).await;
        assert_eq!(std::fs::read_to_string(path).unwrap(), "out\nerr\n");
        assert!(!other.exists());
    });
}

#[test]
fn schemes_we_do_not_serve_are_refused_before_anything_is_opened() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let stdout = make_fifo(directory.path(), "stdout");
        for stderr in ["binary:///bin/logger?id=1", "ttrpc+unix:///s?streaming_id=x", "nonsense://"] {
            let paths = StdioPaths { stderr: stderr.into(), ..output_to(&stdout) };
            let error = Stdio::open(&paths, StreamOwner::default()).unwrap_err();
            assert!(matches!(error, StdioError::Unsupported { stream: StreamName::Stderr, .. }), "{error}");
        }
        let paths = StdioPaths { stdin: "file:///x".into(), ..StdioPaths::default() };
        let error = Stdio::open(&paths, StreamOwner::default()).unwrap_err();
        assert!(error.to_string().starts_with("stdin \"file:///x\": not supported"), "{error}");
    });
}

#[test]
fn what_is_no_file_is_refused_under_the_file_scheme_without_waiting() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let fifo = make_fifo(directory.path(), "fifo");
        let socket = directory.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        for path in [&fifo, socket.to_str().unwrap(), "/dev/zero"] {
            let error =
                Stdio::open(&output_to(&format!("file://{path}")), StreamOwner::default()).unwrap_err();
            assert!(matches!(error, StdioError::NotAFile { .. }), "{error}");
            assert!(error.to_string().contains(&format!("stdout at file://{path}")), "{error}");
        }
        // Users name it to get no log.
        Stdio::open(&output_to("file:///dev/null"), StreamOwner::default()).unwrap();
        // A socket is refused behind a bare path too: it would never have a reader.
        let error = Stdio::open(&output_to(socket.to_str().unwrap()), StreamOwner::default());
        assert!(matches!(error.unwrap_err(), StdioError::Open { .. }));
    });
}

#[test]
fn a_missing_fifo_is_an_error_that_names_it() {
    run(async {
        let error = Stdio::open(&output_to("/nonexistent/out"), StreamOwner::default()).unwrap_err();
        assert!(error.to_string().contains("stdout at /nonexistent/out"), "{error}");
    });
}

#[test]
fn a_line_of_ours_goes_to_stderr_and_never_blocks_or_tears() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let (stdout, stderr) = (make_fifo(directory.path(), "stdout"), make_fifo(directory.path(), "stderr"));
        let (out, err) = (open_reader(&stdout), open_reader(&stderr));
        let paths = StdioPaths { stderr, ..output_to(&stdout) };
        // A held container's line is written before the container ever ran: nothing moves yet.
        let mut stdio = Stdio::open(&paths, StreamOwner::default()).unwrap();
        stdio.connect().await.unwrap();
        stdio.write_line("held: waiting for \"s1\"\nnot a second line");
        assert_eq!(read_available(&err), "podshim: held: waiting for \"s1\" not a second line\n");
        // One long line is cut at PIPE_BUF, before a character that does not fit.
        stdio.write_line(&"é".repeat(libc::PIPE_BUF));
        let line = read_available(&err);
        assert!(line.len() <= libc::PIPE_BUF && line.ends_with("é\n"));
        // No reader: the fifo fills up, and further lines are dropped.
        for _ in 0..1000 {
            stdio.write_line(&"x".repeat(200));
        }
        assert!(read_available(&err).len() <= 64 * 1024);
        assert_eq!(read_available(&out), "");
        stdio.finish_output();
        stdio.write_line("after the end");
        assert_eq!(read_available(&err), "");
    });
}

#[test]
fn a_line_of_ours_goes_to_stdout_when_there_is_no_stderr() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let stdout = make_fifo(directory.path(), "stdout");
        let reader = open_reader(&stdout);
        let paths = StdioPaths { mode: StreamMode::Terminal, ..output_to(&stdout) };
        open(&paths).await.write_line("held");
        assert_eq!(read_available(&reader), "podshim: held\r\n");
        // Without a stream there is nothing to do.
        open(&StdioPaths::default()).await.write_line("held");
    });
}
