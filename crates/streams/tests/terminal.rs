//! The terminal of a real container: its runtime hands it out, and it survives a restart in place.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs::{self, File};
use std::path::PathBuf;

use oci_runtime::runtime::{CreateOptions, DeleteMode};
use oci_runtime::test_container::TestContainer;
use processes::SignalNumber;
use streams::console::{Console, ConsoleSocket, TerminalSize};
use streams::stdio::{Stdio, StdioPaths, StreamMode, StreamOwner};
use test_support::{DEADLINE, make_fifo, open_reader, read_available, run, until, within};

/// containerd's side of a terminal's fifos, and the shim's.
struct Terminal {
    input: PathBuf,
    output: File,
    stdio: Stdio,
}

impl Terminal {
    async fn of(test: &TestContainer) -> Self {
        let (stdin, stdout) =
            (make_fifo(test.directory.path(), "in"), make_fifo(test.directory.path(), "out"));
        let (input, output) = (PathBuf::from(&stdin), open_reader(&stdout));
        let paths = StdioPaths { stdin, stdout, mode: StreamMode::Terminal, ..StdioPaths::default() };
        let mut stdio = Stdio::open(&paths, StreamOwner::default()).unwrap();
        stdio.connect().await.unwrap();
        Self { input, output, stdio }
    }

    async fn expect(&self, text: &str) {
        let mut seen = String::new();
        until(|| {
            seen.push_str(&read_available(&self.output));
            seen.contains(text)
        })
        .await;
    }
}

#[test]
fn runc_hands_out_a_terminal_that_echoes_resizes_and_survives_a_restart_in_place() {
    run(async {
        let script = "tty; stty size; read line; echo got $line; stty size; exec sleep 1000";
        let test = TestContainer::new(&["sh", "-c", script], |spec| {
            spec["process"]["terminal"] = true.into();
            let devpts = serde_json::json!({"destination": "/dev/pts", "type": "devpts", "source": "devpts",
                "options": ["newinstance", "ptmxmode=0666", "mode=0620"]});
            spec["mounts"].as_array_mut().unwrap().push(devpts);
        });
        let terminal = Terminal::of(&test).await;
        let mut size = None;
        for incarnation in ["one", "two"] {
            let socket = ConsoleSocket::bind(&test.path("pty")).unwrap();
            let options = CreateOptions { console_socket: Some(socket.path()), ..CreateOptions::default() };
            let stdio = terminal.stdio.attempt().unwrap().child;
            let created = test.container.create(stdio, options).await.unwrap();
            let console = Console::start(
                socket.receive(DEADLINE).await.unwrap(),
                terminal.stdio.console_streams().unwrap(),
            )
            .unwrap();
            drop(socket);
            assert!(!test.path("pty").exists());
            console.resize(size.unwrap_or(TerminalSize { columns: 80, rows: 25 })).unwrap();
            test.container.start().await.unwrap();
            let first_size = if incarnation == "one" { "25 80" } else { "50 132" };
            terminal.expect(first_size).await;
            console.resize(TerminalSize { columns: 132, rows: 50 }).unwrap();
            fs::write(&terminal.input, format!("{incarnation}\n")).unwrap();
            terminal.expect("50 132").await;
            created.process.signal(SignalNumber::KILL).unwrap();
            within(created.exit).await;
            size = console.size();
            within(console.shutdown(DEADLINE)).await;
            test.container.delete(DeleteMode::Ended).await.unwrap();
        }
    });
}
