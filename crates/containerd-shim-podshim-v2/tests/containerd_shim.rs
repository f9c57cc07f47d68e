//! What containerd-shim would do where podshim goes its own way, a test for each fault that docs/costs.md names and that
//! can be seen from outside. A test fails once a release of containerd-shim does better: then podshim's own can go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use common::{Cgroups, LIMIT, spawn};
use containerd_shim::cgroup::{collect_metrics, collect_metrics_v2, get_cgroup};
use containerd_shim::logger::{self, FifoLogger};
use containerd_shim::monitor::{Topic, monitor_notify_by_pid, monitor_subscribe, wait_pid};
use containerd_shim::publisher::RemotePublisher;
use containerd_shim_protos::events::task::TaskOOM;
use containerd_shim_protos::ttrpc::context::with_duration;
use nix::sys::stat::Mode;

/// What comes at once comes much sooner than this, and what waits for another waits longer.
const WHILE: Duration = Duration::from_millis(500);

/// More lines of a kB than a fifo holds.
const LINES: usize = 200;

fn fifo(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("log");
    nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
    path
}

fn reader_of(fifo: &Path) -> File {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(fifo).unwrap()
}

/// Runs `action` beside the test. What it returns is received.
fn beside<T: Send + 'static>(action: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(action()));
    receiver
}

/// `logger`: a server whose containerd has not opened the log stays where it opens it.
#[test]
fn its_logger_waits_for_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let log = fifo(&directory);
    let path = log.clone();
    let opened = beside(move || FifoLogger::with_path(path).map(drop));
    assert_eq!(opened.recv_timeout(WHILE).err(), Some(RecvTimeoutError::Timeout));
    let _reader = reader_of(&log);
    opened.recv_timeout(LIMIT).unwrap().unwrap();
}

/// `logger`: a server whose containerd does not read stays where it logs.
#[test]
fn its_logger_waits_for_a_slow_reader() {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = reader_of(&fifo(&directory));
    // It opens `log` in the current directory, and serves the whole process.
    std::env::set_current_dir(&directory).unwrap();
    logger::init(false, "info", "ns", "id").unwrap();
    let logged = beside(|| {
        let line = "x".repeat(1000);
        for _ in 0..LINES {
            containerd_shim::info!("{line}");
        }
    });
    assert_eq!(logged.recv_timeout(WHILE).err(), Some(RecvTimeoutError::Timeout));
    let mut some = vec![0; 1 << 16];
    while logged.recv_timeout(Duration::from_millis(1)) == Err(RecvTimeoutError::Timeout) {
        let _ = reader.read(&mut some);
    }
    // The directory goes away.
    std::env::set_current_dir("/").unwrap();
}

/// `publisher`: once containerd has gone, no event arrives any more, also when it is back.
#[test]
fn its_publisher_does_not_find_containerd_again() {
    let directory = tempfile::tempdir().unwrap();
    let address = directory.path().join("containerd.sock.ttrpc");
    let containerd = UnixListener::bind(&address).unwrap();
    let publisher = RemotePublisher::new(address.to_str().unwrap()).unwrap();
    drop(containerd.accept().unwrap());
    drop(containerd);
    fs::remove_file(&address).unwrap();
    let containerd = UnixListener::bind(&address).unwrap();
    containerd.set_nonblocking(true).unwrap();
    for _ in 0..3 {
        let event = Box::new(TaskOOM { container_id: "c1".to_owned(), ..Default::default() });
        publisher.publish(with_duration(LIMIT), "/tasks/oom", "ns", event).unwrap_err();
    }
    assert_eq!(containerd.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

/// `monitor`: the exit of a process counts for the next process that gets its pid.
#[test]
fn its_monitor_knows_a_process_by_its_pid_alone() {
    let exits = monitor_subscribe(Topic::Pid).unwrap();
    // Of a process that has ended, and whose pid the kernel gives to the one that the caller starts and waits for.
    monitor_notify_by_pid(7, 1).unwrap();
    monitor_notify_by_pid(7, 0).unwrap();
    assert_eq!(wait_pid(7, exits), 1);
}

/// `cgroup::collect_metrics`: of v1 neither processor time nor block IO nor what the memory is, of v2 no pressure.
#[test]
fn its_metrics_leave_out_what_the_kernel_counts() {
    let busy = BusyProcess::start();
    let of_process = get_cgroup(busy.0.id()).unwrap();
    if of_process.v2() {
        let metrics = collect_metrics_v2(&of_process).unwrap();
        assert!(metrics.memory.usage > 0 && metrics.cpu.usage_usec > 0, "{metrics}");
        assert!(
            metrics.cpu.psi.is_none() && metrics.memory.psi.is_none() && metrics.io.is_none(),
            "{metrics}"
        );
    } else {
        let metrics = collect_metrics(&of_process).unwrap();
        assert!(metrics.memory.usage.usage > 0, "{metrics}");
        assert_eq!((metrics.cpu.usage.total, metrics.memory.rss), (0, 0), "{metrics}");
        assert!(metrics.blkio.is_none() && metrics.hugetlb.is_empty() && metrics.rdma.is_none(), "{metrics}");
    }
}

/// A process that uses processor time, in control groups of its own, which go after it.
struct BusyProcess(Child, Cgroups);

impl BusyProcess {
    fn start() -> Self {
        let name = format!("podshim-metrics-{}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        let mut hierarchies = vec!["cpu", "cpuacct", "memory", "pids", "blkio"];
        hierarchies.retain(|name| root.join(name).join("cgroup.procs").exists());
        let groups = Cgroups::make(&name, &hierarchies);
        // Memory counts for the group in which a program begins.
        let mut command = Command::new("sh");
        command.args(["-c", "read go; exec sh -c 'while :; do :; done'"]).stdin(Stdio::piped());
        let mut process = Self(spawn(&mut command), groups);
        for group in &process.1.0 {
            fs::write(group.join("cgroup.procs"), process.0.id().to_string()).unwrap();
        }
        drop(process.0.stdin.take());
        std::thread::sleep(WHILE);
        process
    }
}

impl Drop for BusyProcess {
    #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
