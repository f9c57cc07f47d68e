//! Malicious answers to a probe (DESIGN §6): without an end, none at all, a redirect to somewhere else.

use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use super::*;

/// What a server does with each connection after it has read the request.
struct Answer {
    head: &'static str,
    /// Sent after `head`, again and again, as long as the client takes it.
    endless: &'static str,
}

impl Answer {
    /// Returns how much the client took.
    fn give(&self, mut client: TcpStream) -> usize {
        let _ = client.read(&mut [0; 1024]);
        let mut taken = 0;
        let mut piece = self.head;
        while !piece.is_empty() && client.write_all(piece.as_bytes()).is_ok() {
            taken += piece.len();
            piece = self.endless;
        }
        taken
    }
}

/// Asserts that no further connection was made.
fn no_connection_waits(listener: &TcpListener) {
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "{listener:?}");
}

/// The probe does not wait for anything after the status, and makes one connection only.
#[test]
fn u2_an_http_probe_reads_no_answer_without_an_end() {
    const CASES: [(Answer, &str); 6] = [
        (Answer { head: "HTTP/1.1 200 OK\r\n", endless: "X-More: and more\r\n" }, "succeeded"),
        (Answer { head: "HTTP/1.1 503 No\r\n", endless: "X-More: and more\r\n" }, "503"),
        (Answer { head: "HTTP/1.1 200 OK\r\n\r\n", endless: "a body without an end" }, "succeeded"),
        (Answer { head: "HTTP/1.1 100 Continue\r\n\r\n", endless: "HTTP/1.1 100 Continue\r\n\r\n" }, "100"),
        (Answer { head: "HTTP/1.1 200 ", endless: "OK " }, "succeeded"),
        (Answer { head: "\r\n", endless: "\r\n" }, "no HTTP answer"),
    ];
    with_listener(async |process, listener| {
        let own = loopback(&listener);
        let server = std::thread::spawn(move || {
            for (answer, _) in CASES {
                let taken = answer.give(listener.accept().unwrap().0);
                // The server could write only what the sockets hold, not all it wanted to.
                assert!(taken < 64 << 20, "{}", answer.head);
            }
            listener
        });
        for (answer, expected) in CASES {
            let result = within(http(process, own, "/", TIMEOUT)).await.to_string();
            assert!(result.ends_with(expected), "{}: {result}", answer.head);
        }
        no_connection_waits(&server.join().unwrap());
    });
}

/// Not back to itself without end, nor elsewhere in the pod, nor to the node, which has a listener at that address too.
#[test]
fn u2_an_http_probe_goes_nowhere_else() {
    with_listener(async |process, listener| {
        let (own, address) = (loopback(&listener), listener.local_addr().unwrap());
        let of_the_node = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let node_address = of_the_node.local_addr().unwrap();
        let namespace = process.open_namespace("net").unwrap();
        let beside = helper_thread::run("listener", move || {
            setns(namespace, CloneFlags::CLONE_NEWNET)?;
            TcpListener::bind(node_address)
        });
        let beside = beside.await.unwrap();
        let server = std::thread::spawn(move || {
            for to in [address, node_address] {
                let (mut client, _) = listener.accept().unwrap();
                let _ = client.read(&mut [0; 1024]);
                let answer = format!("HTTP/1.1 307 Temporary Redirect\r\nLocation: http://{to}/\r\n\r\n");
                client.write_all(answer.as_bytes()).unwrap();
            }
            listener
        });
        for _ in 0..2 {
            assert_eq!(within(http(process, own, "/", TIMEOUT)).await, ProbeResult::Success);
        }
        for listener in [server.join().unwrap(), of_the_node, beside] {
            no_connection_waits(&listener);
        }
    });
}

/// A server that never closes has accepted; one that never accepts costs the timeout.
#[test]
fn u2_a_tcp_probe_waits_for_no_server_to_close() {
    with_listener(async |process, listener| {
        let own = loopback(&listener);
        assert_eq!(within(tcp(process, own, TIMEOUT)).await, ProbeResult::Success);
        let kept = listener.accept().unwrap();
        // A queue for one: the first probes fill it, and then the kernel answers no more.
        nix::sys::socket::listen(&listener, nix::sys::socket::Backlog::new(0).unwrap()).unwrap();
        let short = Duration::from_millis(200);
        let mut last = ProbeResult::Success;
        for _ in 0..10 {
            last = within(tcp(process, own, short)).await;
            if last != ProbeResult::Success {
                break;
            }
        }
        assert_eq!(last.to_string(), format!("tcp:{own} timed out after 200ms"));
        drop((kept, listener));
    });
}

/// Output without an end is discarded, a program that ignores signals is killed at its timeout, and processes that a
/// good program leaves behind with its streams are not waited for.
#[test]
fn u2_an_exec_probe_ends_whatever_its_program_does() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
        test.container.start().await.unwrap();
        let init = created.process.pid();
        let attempt = async |script: &str, timeout| {
            let process = test.beside(init, &["sh", "-c", script]);
            within(exec(&test.container, &process, timeout)).await.to_string()
        };
        let short = Duration::from_millis(300);
        for script in [
            "while :; do echo and more; echo and more >&2; done",
            "trap '' TERM INT HUP; while :; do :; done",
        ] {
            assert_eq!(attempt(script, short).await, "timed out after 300ms", "{script}");
        }
        let cgroup = cgroups::Cgroup::of_pid(created.process.pid()).unwrap();
        test_support::until(|| cgroup.pids().len() == 1).await;
        assert_eq!(attempt("sleep 1000 & exit 0", TIMEOUT).await, "succeeded");
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// A thread that makes `door` in a volume, by turns, a directory of the volume and a link to a path of the node.
struct Race {
    stop: Arc<AtomicBool>,
    swaps: Arc<AtomicU64>,
}

impl Race {
    fn begin(volume: PathBuf, outside: &str) -> Self {
        std::fs::create_dir_all(volume.join("inner")).unwrap();
        std::os::unix::fs::symlink(outside, volume.join("door")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let swaps = Arc::new(AtomicU64::new(0));
        let (stopped, counted) = (stop.clone(), swaps.clone());
        std::thread::spawn(move || {
            let (door, inner) = (volume.join("door"), volume.join("inner"));
            while !stopped.load(Ordering::Relaxed) {
                renameat2(AT_FDCWD, &door, AT_FDCWD, &inner, RenameFlags::RENAME_EXCHANGE).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { stop, swaps }
    }

    /// Returns how often the two were swapped so far.
    fn swaps(&self) -> u64 {
        self.swaps.load(Ordering::Relaxed)
    }
}

impl Drop for Race {
    /// Also stops it if the test fails.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// U2: a link that replaces a directory during its lookup gives access to nothing of the node.
#[test]
fn u2_a_file_probe_is_not_outrun_by_a_swapped_link() {
    run(async {
        let shared = tempfile::tempdir().unwrap();
        let of_the_node = shared.path().join("of-the-node");
        std::fs::create_dir(&of_the_node).unwrap();
        std::fs::write(of_the_node.join("secret"), "").unwrap();
        let volume = shared.path().join("volume");
        std::fs::create_dir(&volume).unwrap();
        let (_test, created) = with_volume(&volume).await;
        let race = Race::begin(volume.clone(), of_the_node.to_str().unwrap());
        let check = async |path: &str| within(file(&created.process, path, TIMEOUT)).await;
        // One after the other: each question has a process of its own.
        for path in ["/shared/door/secret", "/shared/inner/secret", "/shared/door/../of-the-node/secret"] {
            let (mut rounds, swaps) = (0, race.swaps());
            // A busy machine may let the other thread wait.
            while rounds < 300 || race.swaps() < swaps + 100 {
                rounds += 1;
                assert!(matches!(check(path).await, ProbeResult::Failure(_)), "{path}");
            }
        }
        drop(race);
        // So it was not the look that failed.
        std::fs::write(volume.join("inside"), "").unwrap();
        assert_eq!(check("/shared/inside").await, ProbeResult::Success);
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// Any process of a pod shares its network namespace, and with root's number it needs no privilege for a lease on the namespace's file.
#[test]
fn u2_a_lease_on_the_pods_network_namespace_fails_no_probe() {
    with_listener(async |process, listener| {
        // SAFETY: ignoring a signal installs no handler. The kernel sends it when it breaks a lease.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let namespace = process.open_namespace("net").unwrap();
        // SAFETY: only numbers are passed.
        let taken = unsafe { libc::fcntl(namespace.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) };
        assert_eq!(taken, 0, "{}", io::Error::last_os_error());
        let result = within(tcp(process, loopback(&listener), TIMEOUT)).await;
        assert_eq!(result, ProbeResult::Success);
    });
}
