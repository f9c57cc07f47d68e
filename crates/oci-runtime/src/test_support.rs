//! Shared by the tests of this crate: a tokio runtime like the shim's, bundles with a busybox, fifos.

use std::{
    fs::{self, File, OpenOptions},
    future::Future,
    io::Read,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    pin::{Pin, pin},
    rc::Rc,
    time::Duration,
};

use nix::sys::stat::Mode;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    bundle::Bundle,
    cgroup::Cgroup,
    reaper::Reaper,
    runtime::{CgroupDriver, Container, CreateOptions, Launched, Runtime},
    stdio::ChildStdio,
};

/// How long anything in a test may take before the test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// The OCI runtime of the tests; runc unless the environment names another.
pub(crate) fn runtime_binary() -> String {
    std::env::var("PODSHIM_TEST_RUNTIME").unwrap_or_else(|_| "runc".to_owned())
}

/// Runs a test on the same kind of tokio runtime as the shim's.
pub(crate) fn run<T>(test: impl Future<Output = T>) -> T {
    run_for_any_time(async { within(test).await })
}

/// The same for a test that moves the clock itself.
pub(crate) fn run_for_any_time<T>(test: impl Future<Output = T>) -> T {
    let mut result = None;
    run_to_end(pin!(async { result = Some(test.await) }));
    result.unwrap()
}

/// Without the type of the test: what it needs of tokio would be compiled once for each of them, half a minute in all.
fn run_to_end(test: Pin<&mut dyn Future<Output = ()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Fails instead of waiting without end.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("the event did not come in time")
}

/// Waits for a condition that has no event, with the deadline of [`within`].
pub(crate) async fn until(mut condition: impl FnMut() -> bool) {
    within(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Waits until a process has ended, given its pid as a script wrote it. A zombie counts: perhaps no process here reaps
/// it.
pub(crate) async fn until_ended(pid: &str) {
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    until(|| fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))).await;
}

/// Makes a fifo and returns its path as containerd would send it.
pub(crate) fn make_fifo(directory: &Path, name: &str) -> String {
    let path = directory.join(name);
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    path.to_str().unwrap().to_owned()
}

/// containerd's side of an output fifo.
pub(crate) fn open_reader(path: &str) -> File {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).unwrap()
}

/// Everything readable until EOF, without blocking the thread.
pub(crate) async fn read_to_end(mut file: &File) -> String {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    within(async {
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => text.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    })
    .await;
    String::from_utf8(text).unwrap()
}

/// What is in the fifo now.
pub(crate) fn read_available(mut file: &File) -> String {
    let mut buffer = vec![0; 128 * 1024];
    match file.read(&mut buffer) {
        Ok(length) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => String::new(),
        Err(error) => panic!("{error}"),
    }
}

/// A bundle with a busybox in it, and an OCI runtime with a root of its own.
pub(crate) struct TestContainer {
    pub(crate) container: Container,
    pub(crate) reaper: Reaper,
    pub(crate) directory: TempDir,
}

impl TestContainer {
    /// `adjust` may change the spec before it is written.
    pub(crate) fn new(arguments: &[&str], adjust: impl FnOnce(&mut Value)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bundle = directory.path().join("bundle");
        let binaries = bundle.join("rootfs/bin");
        fs::create_dir_all(&binaries).unwrap();
        for folder in ["proc", "dev", "tmp"] {
            fs::create_dir(bundle.join("rootfs").join(folder)).unwrap();
        }
        fs::copy("/bin/busybox", binaries.join("busybox")).unwrap();
        for applet in ["sh", "sleep", "cat", "true", "false", "tty", "stty"] {
            std::os::unix::fs::symlink("busybox", binaries.join(applet)).unwrap();
        }
        let id = format!("oci-runtime-test-{}", std::process::id());
        let mut spec = spec(arguments, &id);
        adjust(&mut spec);
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        let reaper = Reaper::start().unwrap();
        let root = directory.path().join("root");
        let runtime = Rc::new(Runtime::new(reaper.clone(), runtime_binary(), root, CgroupDriver::Cgroupfs));
        let container = runtime.container(id, Bundle::new(bundle));
        Self { container, reaper, directory }
    }

    /// Creates and starts it, and waits until its own program runs. A freeze in the middle of an exec ends only with a thaw: the
    /// kernel waits there for threads that are frozen already.
    pub(crate) async fn start(&self) -> (Launched, Cgroup) {
        let created = self.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
        let cgroup = Cgroup::of_pid(created.process.pid()).unwrap();
        self.container.start().await.unwrap();
        let name = format!("/proc/{}/comm", created.process.pid());
        until(|| fs::read_to_string(&name).is_ok_and(|name| !name.starts_with("runc"))).await;
        (created, cgroup)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Reads a file of the container's root.
    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.container.bundle().rootfs().join(path)).unwrap()
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
pub(crate) fn process(arguments: &[&str]) -> Vec<u8> {
    process_value(arguments).to_string().into_bytes()
}

fn process_value(arguments: &[&str]) -> Value {
    json!({
        "user": {"uid": 0, "gid": 0},
        "args": arguments,
        "env": ["PATH=/bin"],
        "cwd": "/",
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

/// A user namespace whose root is the node's user 200000, and namespaces that it owns, as CRI makes them for `hostUsers: false`.
/// They end when it is dropped.
pub(crate) struct UserNamespace(std::process::Child);

impl UserNamespace {
    /// With further ones, as `unshare` calls them.
    pub(crate) fn with(namespaces: &[&str]) -> Self {
        let mut command = std::process::Command::new("unshare");
        command.arg("--user").args(namespaces).args(["sh", "-c", "echo; exec sleep 60"]);
        command.stdout(std::process::Stdio::piped());
        #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
        let mut child = command.spawn().unwrap();
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        for map in ["uid_map", "gid_map"] {
            std::fs::write(format!("/proc/{}/{map}", child.id()), "0 200000 65536\n").unwrap();
        }
        Self(child)
    }

    /// The file of one of them, by its name there.
    pub(crate) fn namespace(&self, name: &str) -> std::path::PathBuf {
        format!("/proc/{}/ns/{name}", self.0.id()).into()
    }
}

impl Drop for UserNamespace {
    #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
