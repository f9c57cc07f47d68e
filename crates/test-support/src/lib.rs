//! Shared by the tests of the crates that touch processes: a tokio runtime like the shim's, limits, fifos, a user namespace.
//!
//! Owns how long a test waits. Knows nothing of podshim's, so the lowest crates have it too.

#![forbid(unsafe_code)]

use std::fs::{self, File, OpenOptions};
use std::future::Future;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::pin::{Pin, pin};
use std::time::Duration;

use nix::sys::stat::Mode;

/// How long anything in a test may take before the test fails.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Runs a test on the same kind of tokio runtime as the shim's.
pub fn run<T>(test: impl Future<Output = T>) -> T {
    run_for_any_time(async { within(test).await })
}

/// The same for a test that moves the clock itself.
pub fn run_for_any_time<T>(test: impl Future<Output = T>) -> T {
    let mut result = None;
    run_to_end(pin!(async { result = Some(test.await) }));
    result.expect("the test has ended")
}

/// Without the type of the test: what it needs of tokio would be compiled once for each of them, half a minute in all.
fn run_to_end(test: Pin<&mut dyn Future<Output = ()>>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a tokio runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Fails instead of waiting without end.
pub async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("the event did not come in time")
}

/// Waits for a condition that has no event, with the deadline of [`within`].
pub async fn until(mut condition: impl FnMut() -> bool) {
    within(async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
}

/// Waits until a process has ended, given its pid as a script wrote it. A zombie counts: perhaps no process here reaps
/// it.
pub async fn until_ended(pid: &str) {
    let stat = Path::new("/proc").join(pid.trim()).join("stat");
    until(|| fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "))).await;
}

/// Makes a fifo and returns its path as containerd would send it.
pub fn make_fifo(directory: &Path, name: &str) -> String {
    let path = directory.join(name);
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).expect("a fifo");
    path.to_str().expect("a path of letters").to_owned()
}

/// containerd's side of an output fifo.
pub fn open_reader(path: &str) -> File {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).expect("a fifo")
}

/// Everything readable until EOF, without blocking the thread.
pub async fn read_to_end(mut file: &File) -> String {
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
    String::from_utf8(text).expect("text")
}

/// What is in the fifo now.
pub fn read_available(mut file: &File) -> String {
    let mut buffer = vec![0; 128 * 1024];
    match file.read(&mut buffer) {
        Ok(length) => String::from_utf8_lossy(&buffer[..length]).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => String::new(),
        Err(error) => panic!("{error}"),
    }
}

/// A user namespace whose root is the node's user 200000, and namespaces that it owns, as CRI makes them for `hostUsers: false`.
/// They end when it is dropped.
pub struct UserNamespace(std::process::Child);

impl UserNamespace {
    /// With further ones, as `unshare` calls them.
    pub fn with(namespaces: &[&str]) -> Self {
        let mut command = std::process::Command::new("unshare");
        command.arg("--user").args(namespaces).args(["sh", "-c", "echo; exec sleep 60"]);
        command.stdout(std::process::Stdio::piped());
        #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
        let mut child = command.spawn().expect("unshare");
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut [0]).expect("a byte");
        for map in ["uid_map", "gid_map"] {
            std::fs::write(format!("/proc/{}/{map}", child.id()), "0 200000 65536\n").expect("a map");
        }
        Self(child)
    }

    /// The file of one of them, by its name there.
    pub fn namespace(&self, name: &str) -> std::path::PathBuf {
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
