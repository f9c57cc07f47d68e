//! A pod as containerd sees it from outside: bundles, the binary's actions, and what they leave behind.

#![allow(dead_code, reason = "each test program uses its part")]

pub mod container;

use std::fs;
use std::io::Write;
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use containerd_shim_protos::api::{DeleteResponse, ShutdownRequest};
use containerd_shim_protos::bootstrap_api::{BootstrapParams, Extension};
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::ttrpc;
use containerd_shim_protos::{Client, TaskClient};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// A deadline that no healthy run comes near.
pub const LIMIT: Duration = Duration::from_secs(30);

/// A namespace of its own with bundles in it. Dropping it ends the servers that are left.
pub struct Node {
    pub namespace: String,
    pub dir: tempfile::TempDir,
    /// The shim program that is run.
    pub program: PathBuf,
    folders: Folders,
}

/// Where containerd keeps the bundles.
enum Folders {
    One,
    /// Apart, as with the Sandbox API of 2.x (CONTRACT §5).
    OfSandboxApi {
        sandbox: &'static str,
    },
}

impl Node {
    pub fn new(name: &str) -> Self {
        let namespace = format!("bootstrap-{name}-{}", std::process::id());
        let program = env!("CARGO_BIN_EXE_containerd-shim-podshim-v2").into();
        Self { namespace, dir: tempfile::tempdir().unwrap(), program, folders: Folders::One }
    }

    /// With the bundle of the pod's sandbox, which has no spec yet.
    pub fn of_sandbox_api(name: &str, sandbox: &'static str) -> Self {
        let mut node = Self::new(name);
        node.folders = Folders::OfSandboxApi { sandbox };
        fs::create_dir_all(node.bundle(sandbox)).unwrap();
        node
    }

    pub fn daemon(&self) -> PathBuf {
        self.dir.path().join("containerd.sock")
    }

    pub fn socket_dir(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    pub fn bundle(&self, id: &str) -> PathBuf {
        let folder = match self.folders {
            Folders::One => return self.dir.path().join("bundles").join(id),
            Folders::OfSandboxApi { sandbox } if sandbox == id => "io.containerd.sandbox.controller.v1.shim",
            Folders::OfSandboxApi { .. } => "io.containerd.runtime.v2.task",
        };
        self.dir.path().join(folder).join(&self.namespace).join(id)
    }

    /// A bundle whose spec contains only annotations.
    pub fn make_bundle(&self, id: &str, annotations: &[(&str, &str)]) -> PathBuf {
        let bundle = self.bundle(id);
        fs::create_dir_all(&bundle).unwrap();
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).into())).collect();
        let spec = serde_json::json!({ "ociVersion": "1.0.2", "annotations": annotations });
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        bundle
    }

    /// A command line as containerd writes it.
    pub fn command(&self, id: &str, action: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args([
                "-namespace",
                &self.namespace,
                "-id",
                id,
                "-publish-binary",
                "/usr/bin/containerd",
                "-address",
            ])
            .arg(self.daemon());
        if action == "delete" {
            command.arg("-bundle").arg(self.bundle(id));
        }
        command.arg(action).current_dir(self.bundle(id));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What containerd 2.3 writes to the standard input of `start`.
    pub fn bootstrap_params(&self, id: &str, options: Option<Any>) -> Vec<u8> {
        let params = BootstrapParams {
            instance_id: id.to_owned(),
            namespace: self.namespace.clone(),
            containerd_version: "v2.3.4".to_owned(),
            containerd_ttrpc_address: format!("{}.ttrpc", self.daemon().display()),
            extensions: options
                .map(|any| Extension { value: Some(any).into(), ..Extension::default() })
                .into_iter()
                .collect(),
            socket_dir: Some(self.socket_dir().display().to_string()),
            ..BootstrapParams::default()
        };
        params.write_to_bytes().unwrap()
    }

    /// Runs `start` as 2.3 does, so that the socket is in a directory of the test.
    pub fn start(&self, id: &str) -> Output {
        finish(self.spawn_start(id, None))
    }

    pub fn spawn_start(&self, id: &str, options: Option<Any>) -> Child {
        let mut child = spawn(self.command(id, "start").stdin(Stdio::piped()));
        child.stdin.take().unwrap().write_all(&self.bootstrap_params(id, options)).unwrap();
        child
    }

    /// Runs a `start` that must succeed, and returns its address.
    pub fn started(&self, id: &str) -> String {
        succeeded(self.start(id))
    }

    pub fn delete(&self, id: &str) -> Output {
        finish(spawn(&mut self.command(id, "delete")))
    }

    /// The live servers of this namespace, by their command lines.
    pub fn servers(&self) -> Vec<Pid> {
        let mark = format!("\0-namespace\0{}\0-id\0", self.namespace);
        let is_server = |pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line);
            line.contains(&mark) && !line.contains("-publish-binary")
        };
        let pids = fs::read_dir("/proc").unwrap().flatten();
        pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
            .filter(is_server)
            .map(Pid::from_raw)
            .collect()
    }

    pub fn server(&self) -> Pid {
        let servers = self.servers();
        assert_eq!(servers.len(), 1, "servers of {}: {servers:?}", self.namespace);
        servers[0]
    }

    pub fn state_dir(&self) -> PathBuf {
        Path::new("/run/podshim").join(&self.namespace)
    }

    /// Remaining sockets, state and servers.
    pub fn leftovers(&self) -> Vec<String> {
        let mut left: Vec<_> = self.servers().iter().map(|pid| format!("server {pid}")).collect();
        for dir in [self.socket_dir(), self.state_dir()] {
            if let Ok(entries) = fs::read_dir(&dir) {
                left.extend(entries.flatten().map(|entry| entry.path().display().to_string()));
            }
        }
        left
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        for server in self.servers() {
            end(server, Signal::SIGKILL);
        }
        let _ = fs::remove_dir_all(self.state_dir());
    }
}

/// New control groups of one name. Dropping it removes them; they must be empty then.
pub struct Cgroups(pub Vec<PathBuf>);

impl Cgroups {
    /// In those hierarchies of v1, or in the one of v2.
    pub fn make(name: &str, hierarchies: &[&str]) -> Self {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = match root.join("cgroup.controllers").exists() {
            true => vec![root.to_owned()],
            false => hierarchies.iter().map(|hierarchy| root.join(hierarchy)).collect(),
        };
        let groups = Self(hierarchies.iter().map(|hierarchy| hierarchy.join(name)).collect());
        for group in &groups.0 {
            match fs::create_dir(group) {
                // `cpu` and `cpuacct` may be one directory with two names.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                made => made.unwrap(),
            }
        }
        groups
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        for group in &self.0 {
            let _ = fs::remove_dir(group);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
pub fn spawn(command: &mut Command) -> Child {
    command.spawn().unwrap()
}

/// Waits for a child as containerd does: until it has ended and no process holds its pipes any more.
pub fn finish(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

/// The standard output of an action that must succeed and print no error (trap 1).
pub fn succeeded(output: Output) -> String {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The answer of a `delete` that must succeed and print no error.
pub fn answer(output: Output) -> DeleteResponse {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{}", output.status);
    DeleteResponse::parse_from_bytes(&output.stdout).unwrap()
}

/// The message of an action that must fail.
pub fn failed(output: Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    String::from_utf8(output.stderr).unwrap()
}

/// Signals a process that is not this process's child, and waits until it has ended.
pub fn end(pid: Pid, signal: Signal) {
    // It may have ended by itself.
    end_by(pid, || kill(pid, signal).unwrap_or_default());
}

/// Ends an idle server as containerd does, by the Shutdown request, and waits until it has ended.
pub fn shut_down(pid: Pid, address: &str) {
    end_by(pid, || {
        let task = TaskClient::new(Client::connect(address).unwrap());
        let context = ttrpc::context::with_duration(LIMIT);
        task.shutdown(context, &ShutdownRequest::default()).unwrap();
    });
}

fn end_by(pid: Pid, means: impl FnOnce()) {
    // SAFETY: pidfd_open takes only numbers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    if fd < 0 {
        return;
    }
    // SAFETY: the kernel has just made this descriptor for this call alone.
    let pidfd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    means();
    let timeout = PollTimeout::try_from(LIMIT).unwrap();
    let mut fds = [PollFd::new(std::os::fd::AsFd::as_fd(&pidfd), PollFlags::POLLIN)];
    assert_eq!(poll(&mut fds, timeout), Ok(1), "process {pid} did not end");
}

/// Polls until `condition` holds.
#[expect(clippy::disallowed_methods, reason = "a deadline needs a clock")]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + LIMIT;
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
