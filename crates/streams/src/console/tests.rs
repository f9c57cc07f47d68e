//! Consoles with a pty of the test. That of a real runc is in `tests/terminal.rs`.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{OpenptyResult, openpty};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use test_support::{DEADLINE, make_fifo, open_reader, read_available, read_to_end, run, until, within};

use super::*;
use crate::stdio::{Stdio, StdioPaths, StreamMode, StreamOwner};

struct Terminal {
    directory: tempfile::TempDir,
    stdio: Stdio,
    reader: File,
}

impl Terminal {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (stdin, stdout) = (make_fifo(directory.path(), "in"), make_fifo(directory.path(), "out"));
        let reader = open_reader(&stdout);
        let paths = StdioPaths { stdin, stdout, mode: StreamMode::Terminal, ..StdioPaths::default() };
        let mut stdio = Stdio::open(&paths, StreamOwner::default()).unwrap();
        stdio.connect().await.unwrap();
        Self { directory, stdio, reader }
    }

    fn type_in(&self, text: &str) {
        let mut client = OpenOptions::new().write(true).open(self.directory.path().join("in")).unwrap();
        client.write_all(text.as_bytes()).unwrap();
    }

    async fn expect(&self, text: &str) {
        let mut seen = String::new();
        until(|| {
            seen.push_str(&read_available(&self.reader));
            seen.contains(text)
        })
        .await;
    }

    fn console(&self, master: OwnedFd) -> Console {
        Console::start(master, self.stdio.console_streams().unwrap()).unwrap()
    }
}

#[test]
fn output_of_a_process_that_has_ended_is_drained_before_the_console_closes() {
    run(async {
        let mut terminal = Terminal::new().await;
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let console = terminal.console(master);
        File::from(slave).write_all(b"last words\n").unwrap();
        within(console.shutdown(DEADLINE)).await;
        terminal.stdio.finish_output();
        assert_eq!(read_to_end(&terminal.reader).await, "last words\r\n");
    });
}

#[test]
fn a_background_process_on_the_terminal_cannot_hold_up_the_shutdown() {
    run(async {
        let mut terminal = Terminal::new().await;
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let console = terminal.console(master);
        within(console.shutdown(Duration::from_millis(20))).await;
        // The master is closed, so the terminal has hung up.
        let error = File::from(slave).write_all(b"x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        // containerd waits for EOF before it deletes an exec.
        terminal.stdio.finish_output();
        assert_eq!(read_to_end(&terminal.reader).await, "");
    });
}

#[test]
fn a_shutdown_without_time_still_hands_over_what_is_there() {
    run(async {
        let mut terminal = Terminal::new().await;
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let watched = master.try_clone().unwrap();
        let console = terminal.console(master);
        File::from(slave.try_clone().unwrap()).write_all(b"last words\n").unwrap();
        // A kernel worker makes the data readable. This blocks the thread, so that the console cannot run meanwhile.
        let mut descriptors = [PollFd::new(watched.as_fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut descriptors, PollTimeout::MAX).unwrap(), 1);
        // As one task among others, as in the shim.
        within(tokio::task::spawn_local(console.shutdown(Duration::ZERO))).await.unwrap();
        terminal.stdio.finish_output();
        assert_eq!(read_to_end(&terminal.reader).await, "last words\r\n");
        drop(slave);
    });
}

#[test]
fn a_dropped_console_ends_the_stream_although_the_terminal_is_held() {
    run(async {
        let mut terminal = Terminal::new().await;
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let console = terminal.console(master);
        terminal.stdio.finish_output();
        drop(console);
        assert_eq!(read_to_end(&terminal.reader).await, "");
        drop(slave);
    });
}

#[test]
fn close_io_hangs_up_the_terminal() {
    run(async {
        let mut terminal = Terminal::new().await;
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let console = terminal.console(master);
        terminal.type_in("typed\n");
        terminal.expect("typed").await;
        terminal.stdio.close_stdin();
        until(|| {
            console.input.as_ref().unwrap().is_finished() && console.output.as_ref().unwrap().is_finished()
        })
        .await;
        let error = File::from(slave).write_all(b"x").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EIO));
        console.resize(TerminalSize { columns: 80, rows: 25 }).unwrap();
    });
}

/// More than the fifo holds, so that the rest is still in the pty when the process has exited.
fn write_more_than_a_fifo_holds(slave: OwnedFd) -> usize {
    const LENGTH: usize = 70 * 1024;
    nix::sys::termios::tcsetattr(&slave, nix::sys::termios::SetArg::TCSANOW, &{
        let mut raw = nix::sys::termios::tcgetattr(&slave).unwrap();
        nix::sys::termios::cfmakeraw(&mut raw);
        raw
    })
    .unwrap();
    // Until the console has moved what the fifo holds, the pty takes no more.
    std::thread::spawn(move || File::from(slave).write_all(&[b'x'; LENGTH]).unwrap());
    LENGTH
}

/// The client has closed its stdin, so the end of the shim's own writer is the end of stdin: on 981875e7 the console took that for
/// CloseIO, hung up, and dropped what the client had not read yet. The client is also slower than the time that a background
/// process has.
#[test]
fn d4_the_end_of_stdin_at_the_exit_loses_no_output() {
    run(async {
        let mut terminal = Terminal::new().await;
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let mut console = terminal.console(master);
        terminal.type_in("");
        let length = write_more_than_a_fifo_holds(slave);
        tokio::time::sleep(Duration::from_millis(100)).await;
        // As at the exit of an exec.
        console.end_input();
        terminal.stdio.finish_output();
        console.end_output_within(Duration::from_millis(20));
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(read_to_end(&terminal.reader).await.len(), length);
        // Its descriptors are closed, although the console is still there (D8).
        assert!(console.master.upgrade().is_none());
    });
}

/// R6: what is typed after the exit is for the next incarnation.
#[test]
fn d4_r6_what_is_typed_after_the_exit_stays_in_the_fifo() {
    run(async {
        let terminal = Terminal::new().await;
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let mut console = terminal.console(master);
        drop(slave);
        console.end_input();
        tokio::task::yield_now().await;
        terminal.type_in("for the next\n");
        within(console.shutdown(DEADLINE)).await;
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let _next = terminal.console(master);
        terminal.expect("for the next").await;
        drop(slave);
    });
}

#[test]
fn without_containerd_reading_or_sending_the_process_is_not_blocked_by_a_missing_stream() {
    run(async {
        let stdio = Stdio::open(
            &StdioPaths { mode: StreamMode::Terminal, ..StdioPaths::default() },
            StreamOwner::default(),
        )
        .unwrap();
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let console = Console::start(master, stdio.console_streams().unwrap()).unwrap();
        nix::fcntl::fcntl(&slave, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let mut slave = File::from(slave);
        // Far more than a pty buffers.
        let mut written = 0;
        until(|| {
            written += slave.write(&[b'x'; 1024]).unwrap_or(0);
            written > 256 * 1024
        })
        .await;
        drop(slave);
        within(console.shutdown(DEADLINE)).await;
        stdio.attempt().unwrap();
    });
}

#[test]
fn a_socket_path_that_is_too_long_is_refused_and_leaves_nothing() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("x".repeat(100));
        let error = ConsoleSocket::bind(&base).unwrap_err();
        assert!(error.to_string().contains("cannot make a console socket"), "{error}");
        assert!(!base.exists());
    });
}

#[test]
fn a_runtime_that_sends_no_terminal_is_an_error() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let socket = ConsoleSocket::bind(directory.path()).unwrap();
        let error = socket.receive(Duration::from_millis(10)).await.unwrap_err();
        assert!(error.to_string().contains("sent no terminal"), "{error}");
        let mut client = std::os::unix::net::UnixStream::connect(socket.path()).unwrap();
        client.write_all(b"no descriptor").unwrap();
        let error = within(socket.receive(DEADLINE)).await.unwrap_err();
        assert!(matches!(error, ConsoleError::Receive(_)), "{error}");
    });
}

/// H2: a read, or the last close, of a pipe whose lock a container holds would wait.
#[test]
fn h2_what_is_no_terminal_is_refused() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let socket = ConsoleSocket::bind(directory.path()).unwrap();
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let (pipe, _writer) = nix::unistd::pipe().unwrap();
        for (descriptor, is_terminal) in [(&master, true), (&slave, false), (&pipe, false)] {
            let client = std::os::unix::net::UnixStream::connect(socket.path()).unwrap();
            let rights = [descriptor.as_raw_fd()];
            let rights = [ControlMessage::ScmRights(&rights)];
            let name = [io::IoSlice::new(b"/dev/ptmx")];
            sendmsg::<()>(client.as_raw_fd(), &name, &rights, MsgFlags::empty(), None).unwrap();
            let received = within(socket.receive(DEADLINE)).await;
            assert_eq!(received.is_ok(), is_terminal, "{received:?}");
            if let Err(error) = received {
                assert!(error.to_string().contains("the descriptor is no terminal"), "{error}");
            }
        }
    });
}

/// R6: a new terminal begins on a new line, and so does podshim's own line. A prompt that is still there ends with neither.
#[test]
fn d3_r6_a_terminals_next_output_begins_on_a_new_line() {
    run(async {
        let mut terminal = Terminal::new().await;
        let mut seen = String::new();
        for output in ["$ ", "second", "whole\n", "last"] {
            let OpenptyResult { master, slave } = openpty(None, None).unwrap();
            let console = terminal.console(master);
            File::from(slave).write_all(output.as_bytes()).unwrap();
            within(console.shutdown(DEADLINE)).await;
            seen += &read_available(&terminal.reader);
        }
        assert_eq!(seen, "$ \r\nsecond\r\nwhole\r\nlast");
        terminal.stdio.write_line("held");
        assert_eq!(read_available(&terminal.reader), "\r\npodshim: held\r\n");
        terminal.stdio.finish_output();
    });
}
