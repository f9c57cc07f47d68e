//! Shared by the tests of this crate: bundles with a busybox, and the OCI runtime that makes containers of them.

use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use cgroups::{Cgroup, CgroupDriver};
use nix::unistd::Pid;
use own_processes::SessionKeyring;
use processes::Process;
use processes::reaper::Reaper;
use serde_json::{Value, json};
use streams::stdio::ChildStdio;
use tempfile::TempDir;

use crate::bundle::Bundle;
use crate::runtime::{Beside, BesideSpec, Container, CreateOptions, Launched, Runtime};

/// The OCI runtime of the tests; runc unless the environment names another.
pub fn runtime_binary() -> String {
    std::env::var("PODSHIM_TEST_RUNTIME").unwrap_or_else(|_| "runc".to_owned())
}

/// A bundle with a busybox in it, and an OCI runtime with a root of its own.
pub struct TestContainer {
    /// The container, not created yet.
    pub container: Container,
    /// What waits for its processes.
    pub reaper: Reaper,
    /// What the test keeps for itself, beside the bundle.
    pub directory: TempDir,
}

impl TestContainer {
    /// `adjust` may change the spec before it is written.
    pub fn new(arguments: &[&str], adjust: impl FnOnce(&mut Value)) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let bundle = directory.path().join("bundle");
        let binaries = bundle.join("rootfs/bin");
        fs::create_dir_all(&binaries).expect("its folders");
        for folder in ["proc", "dev", "tmp"] {
            fs::create_dir(bundle.join("rootfs").join(folder)).expect("a folder");
        }
        fs::copy("/bin/busybox", binaries.join("busybox")).expect("/bin/busybox");
        for applet in
            ["sh", "sleep", "cat", "true", "false", "tty", "stty", "id", "readlink", "env", "ls", "pwd"]
        {
            std::os::unix::fs::symlink("busybox", binaries.join(applet)).expect("a link");
        }
        let id = format!("oci-runtime-test-{}", std::process::id());
        let mut spec = spec(arguments, &id);
        adjust(&mut spec);
        fs::write(bundle.join("config.json"), spec.to_string()).expect("its spec");
        let reaper = Reaper::start().expect("a reaper");
        let root = directory.path().join("root");
        let runtime = Rc::new(Runtime::new(reaper.clone(), runtime_binary(), root, CgroupDriver::Cgroupfs));
        let groups = spec["linux"]["cgroupsPath"].as_str().map(str::to_owned);
        let container = runtime.container(id, Bundle::new(bundle)).in_groups(groups);
        Self { container, reaper, directory }
    }

    /// Creates and starts it, and waits until its own program runs. A freeze in the middle of an exec ends only with a thaw: the
    /// kernel waits there for threads that are frozen already.
    pub async fn start(&self) -> (Launched, Cgroup) {
        let created =
            self.container.create(ChildStdio::null(), CreateOptions::default()).await.expect("a container");
        let cgroup = Cgroup::of_pid(created.process.pid()).expect("its groups");
        self.container.start().await.expect("its start");
        let name = format!("/proc/{}/comm", created.process.pid());
        test_support::until(|| fs::read_to_string(&name).is_ok_and(|name| !name.starts_with("runc"))).await;
        (created, cgroup)
    }

    /// A process beside its program, of the container with that init, as its spec says.
    pub fn beside(&self, init: Pid, arguments: &[&str]) -> Beside {
        let spec = fs::read(self.container.bundle().spec_path()).expect("its spec");
        let spec = serde_json::from_slice(&spec).expect("JSON");
        Beside {
            spec: BesideSpec::of(&self.container, &spec, SessionKeyring::New).0,
            command: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
            id: "beside".to_owned(),
            init: Rc::new(Process::open(init).expect("its init")),
            cgroup: Cgroup::of_pid(init).ok().map(Rc::new),
        }
    }

    /// A path in the test's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Reads a file of the container's root.
    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.container.bundle().rootfs().join(path)).expect("a file")
    }
}

impl Drop for TestContainer {
    /// Also deletes it if the test fails: a test must leave nothing on the machine.
    fn drop(&mut self) {
        let mut command = std::process::Command::new(runtime_binary());
        command.arg("--root").arg(self.path("root")).args(["delete", "--force", self.container.id()]);
        #[expect(clippy::disallowed_methods, reason = "drop cannot await, so the reaper cannot do it")]
        let deleted = command.status();
        assert!(std::thread::panicking() || deleted.is_ok_and(|status| status.success()));
    }
}

/// An OCI process as JSON.
pub fn process(arguments: &[&str]) -> Vec<u8> {
    process_value(arguments).to_string().into_bytes()
}

fn process_value(arguments: &[&str]) -> Value {
    json!({
        "user": {"uid": 0, "gid": 0},
        "args": arguments,
        "env": ["PATH=/bin"],
        "cwd": "/",
        // Without them releases of runc differ.
        "capabilities": {},
    })
}

fn spec(arguments: &[&str], id: &str) -> Value {
    json!({
        "ociVersion": "1.0.2",
        "process": process_value(arguments),
        "root": {"path": "rootfs"},
        // runc 1.3 makes links in /dev, and refuses to make them twice.
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
        ],
        "linux": {
            "cgroupsPath": format!("/{id}"),
            "namespaces": [
                {"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}, {"type": "network"},
            ],
        },
    })
}
