//! A node whose systemd and containerd do what a test says, and the installers on it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::containerd::{self, LOADED};

pub const CONTAINERD: &str = "run/containerd";
pub const CALLS: &str = "systemctl-calls";
/// The drain's unit is active.
pub const DRAIN: &str = "drain-is-active";
/// If it is there, a restarted containerd does not have the runtime; or does not start.
pub const REFUSES: &str = "containerd-refuses";
pub const FAILS: &str = "containerd-fails";
/// If it is there, a containerd that was restarted with the runtime, and this text in its configuration, ends.
pub const BREAKS: &str = "containerd-breaks";
/// If it is there, the next call with the words in it does not end.
pub const HANGS: &str = "systemctl-hangs";
/// Its unit is not active.
pub const DOWN: &str = "containerd-is-down";

/// It reports each restart to stderr, which is the installer's.
const SYSTEMCTL: &str = r#"#!/usr/bin/busybox sh
run() { /usr/bin/busybox "$@"; }
echo "$@" >>/CALLS
socket=/RUN/containerd.sock
hangs=
[ ! -e /HANGS ] || hangs=$(run cat /HANGS)
case " $*" in
*" ${hangs:-no call}"*)
    run rm /HANGS
    echo 'systemctl hangs' >&2
    exec /usr/bin/busybox sleep 60
    ;;
esac
case "$*" in
*is-active*podshim-drain*) [ -e /DRAIN ] ;;
*' start podshim-drain'*) echo >/DRAIN ;;
*is-active*containerd*) [ ! -e /DOWN ] ;;
*' restart '*)
    [ ! -e /FAILS ] || { echo >/DOWN; exit 1; }
    run rm -f /DOWN /RUN/LOADED
    [ ! -e /RUN/away ] || run mv /RUN/away $socket
    if run grep -q 'runtimes.podshim]' /etc/containerd/config.toml; then
        if [ -e /BREAKS ] && run grep -q "$(run cat /BREAKS)" /etc/containerd/config.toml; then
            run mv $socket /RUN/away
            echo >/DOWN
        elif [ ! -e /REFUSES ]; then
            echo >/RUN/LOADED
        fi
    fi
    # Newer than the configuration, as that of a containerd that has started.
    [ ! -e $socket ] || run chmod 600 $socket
    echo 'containerd is restarted' >&2
    ;;
esac
"#;

pub struct Node {
    root: tempfile::TempDir,
}

impl Node {
    /// A node whose containerd answers.
    pub fn new() -> Self {
        let node = Self { root: tempfile::tempdir().expect("a directory") };
        for directory in ["etc/containerd", CONTAINERD, "usr/bin"] {
            fs::create_dir_all(node.at(directory)).expect("a directory");
        }
        fs::write(node.at("etc/containerd/config.toml"), "version = 2\n").expect("a configuration");
        containerd::listen(&node.at(CONTAINERD).join("containerd.sock"));
        node
    }

    pub fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path)
    }

    /// Writes the file later than containerd's last start. The kernel's clock for that takes some milliseconds from one time to the next:
    /// what is done in the same step has the same time, and is not later.
    pub fn write_after_the_start(&self, path: &str, text: &str) {
        let changed =
            |path: &Path| fs::metadata(path).map(|file| (file.ctime(), file.ctime_nsec())).expect("a file");
        let socket = self.at(CONTAINERD).join("containerd.sock");
        loop {
            fs::write(self.at(path), text).expect("a change");
            if changed(&self.at(path)) > changed(&socket) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// A restart of the test's containerd makes this file: it has podshim's runtime then.
    pub fn loaded(&self) -> PathBuf {
        self.at(CONTAINERD).join(LOADED)
    }

    /// Puts a systemctl there. It runs with the node's root as its own, so it must be one static program.
    pub fn with_systemctl(self) -> Self {
        fs::copy("/usr/bin/busybox", self.at("usr/bin/busybox")).expect("a static busybox, of hack/setup");
        fs::create_dir_all(self.at("run/systemd/system")).expect("a directory");
        let script = SYSTEMCTL.replace("CALLS", CALLS).replace("RUN", CONTAINERD).replace("LOADED", LOADED);
        let files = [("DRAIN", DRAIN), ("REFUSES", REFUSES), ("FAILS", FAILS), ("BREAKS", BREAKS)];
        let files = files.into_iter().chain([("DOWN", DOWN), ("HANGS", HANGS)]);
        let script = files.fold(script, |script, (name, file)| script.replace(name, file));
        fs::write(self.at("usr/bin/systemctl"), script).expect("a script");
        let executable = fs::Permissions::from_mode(0o755);
        fs::set_permissions(self.at("usr/bin/systemctl"), executable).expect("permissions");
        self
    }

    pub fn calls(&self) -> String {
        let calls = fs::read_to_string(self.at(CALLS)).unwrap_or_default();
        calls.replace("--no-ask-password --no-pager ", "")
    }

    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_podshim"));
        command
            .args(words)
            .arg("--host-root")
            .arg(self.root.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        command
    }

    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    pub fn install(&self, more: &[&str]) -> Installer {
        let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install/gke.toml");
        let words = ["install", "--yes", "--stay", "--shim", shim.to_str().expect("UTF-8")];
        let mut command = self.command(&[&words, more].concat());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("podshim runs");
        let lines = BufReader::new(child.stdout.take().expect("its output"));
        let errors = BufReader::new(child.stderr.take().expect("its errors"));
        Installer { child, lines, errors }
    }

    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    pub fn has_runtime(&self) -> Option<i32> {
        self.command(&["has-runtime"]).status().expect("podshim runs").code()
    }
}

/// A running `podshim install --stay`.
pub struct Installer {
    child: Child,
    lines: BufReader<ChildStdout>,
    errors: BufReader<ChildStderr>,
}

impl Installer {
    /// Waits for a line with these words.
    pub fn says(&mut self, words: &str) -> String {
        line_with(&mut self.lines, words)
    }

    /// Waits until the node's systemctl reports this.
    pub fn reports(&mut self, words: &str) {
        line_with(&mut self.errors, words);
    }

    /// Its exit code, and all that it has said.
    #[allow(clippy::disallowed_methods, reason = "a test waits for its own child")]
    pub fn ends(mut self) -> (Option<i32>, String) {
        let mut printed = String::new();
        self.lines.read_to_string(&mut printed).expect("its output");
        self.errors.read_to_string(&mut printed).expect("its errors");
        (self.child.wait().expect("it ends").code(), printed)
    }

    #[allow(clippy::disallowed_methods, reason = "a test waits for its own child")]
    pub fn ends_at_sigterm(mut self) {
        kill(Pid::from_raw(self.child.id().try_into().expect("a pid")), Signal::SIGTERM).expect("a signal");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
    }
}

fn line_with(lines: &mut impl BufRead, words: &str) -> String {
    let mut all = String::new();
    while lines.read_line(&mut all).expect("its output") > 0 {
        if all.lines().last().is_some_and(|line| line.contains(words)) {
            return all;
        }
    }
    panic!("it ended without {words:?}:\n{all}");
}
