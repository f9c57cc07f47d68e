//! Probes of a real container, and of a network namespace made for the test.

use std::cell::RefCell;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use nix::sched::{CloneFlags, setns, unshare};
use processes::reaper::Reaper;
use processes::{Process, SignalNumber};
use streams::stdio::ChildStdio;
use test_support::{DEADLINE, run, until, within};
use threads::helper_thread;
use tokio::time::Instant;

use super::connect::tcp_socket;
use super::*;
use crate::runtime::{CreateOptions, Launched};
use crate::test_container::TestContainer;

mod addresses;
mod charge;
mod grpc;
mod hostile;

const TIMEOUT: Duration = Duration::from_secs(5);

thread_local! {
    static REAPER: RefCell<Option<Reaper>> = const { RefCell::new(None) };
    static PROBER: Prober = Prober::default();
}

/// The reaper of this test: a process has one.
fn reaper() -> Reaper {
    REAPER.with_borrow_mut(|reaper| reaper.get_or_insert_with(|| Reaper::start().unwrap()).clone())
}

/// One attempt, by the prober of this test.
async fn ask(process: &Process, question: Question, timeout: Duration) -> ProbeResult {
    let process = Process::open(process.pid()).unwrap_or(Process::exited(process.pid()));
    let asked = Asked { process: Rc::new(process), cgroup: None };
    let (reaper, prober) = (reaper(), PROBER.with(Clone::clone));
    prober.ask(&reaper, &asked, &question, timeout).await
}

async fn tcp(process: &Process, endpoint: Endpoint, timeout: Duration) -> ProbeResult {
    ask(process, Question::Tcp(endpoint), timeout).await
}

async fn http(process: &Process, endpoint: Endpoint, path: &str, timeout: Duration) -> ProbeResult {
    ask(process, Question::Http { endpoint, path: path.to_owned() }, timeout).await
}

async fn file(process: &Process, path: &str, timeout: Duration) -> ProbeResult {
    ask(process, Question::File(path.to_owned()), timeout).await
}

#[test]
fn u2_exec_probe_reports_exit_codes_signals_timeouts_and_missing_programs() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
        test.container.start().await.unwrap();
        let init = created.process.pid();
        let attempt = async |arguments: &[&str], timeout| {
            within(exec(&test.container, &test.beside(init, arguments), timeout)).await
        };
        assert_eq!(attempt(&["true"], TIMEOUT).await, ProbeResult::Success);
        assert_eq!(attempt(&["false"], TIMEOUT).await.to_string(), "exit status 1");
        assert_eq!(attempt(&["sh", "-c", "kill -9 $$"], TIMEOUT).await.to_string(), "killed by signal 9");
        let short = Duration::from_millis(100);
        assert_eq!(attempt(&["sleep", "1000"], short).await.to_string(), "timed out after 100ms");
        let missing = attempt(&["no-such-program"], TIMEOUT).await.to_string();
        assert!(missing.contains("no-such-program"), "{missing}");
        // The probe's process that timed out is gone too: only the container's own process is left.
        let cgroup = cgroups::Cgroup::of_pid(created.process.pid()).unwrap();
        until(|| cgroup.pids().len() == 1).await;
        assert!(!test.container.bundle().exec_pid_path("gate").unwrap().exists());
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// Runs the command in a network namespace of its own.
fn in_own_network(command: &mut std::process::Command) -> &mut std::process::Command {
    // SAFETY: unshare is one system call, between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(command, || Ok(unshare(CloneFlags::CLONE_NEWNET)?))
    }
}

/// A process in a network namespace with one listener on 127.0.0.1, whose port is the result.
async fn namespace_with_listener(reaper: &Reaper) -> (processes::reaper::Child, TcpListener) {
    let mut command = std::process::Command::new("sleep");
    let child = reaper.spawn(in_own_network(command.arg("1000"))).unwrap();
    until(|| child.report.is_complete()).await;
    let namespace = child.process.open_namespace("net").unwrap();
    let listener = helper_thread::run("listener", move || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        bring_loopback_up()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
    });
    (child, listener.await.unwrap())
}

fn at(address: &str) -> Endpoint {
    let address: SocketAddr = address.parse().unwrap();
    Endpoint { host: Some(address.ip()), port: address.port() }
}

fn loopback(listener: &TcpListener) -> Endpoint {
    at(&listener.local_addr().unwrap().to_string())
}

/// Runs a test with a process in a network namespace that has a listener on 127.0.0.1.
fn with_listener(test: impl AsyncFnOnce(&Process, TcpListener)) {
    run(async {
        let reaper = reaper();
        let (child, listener) = namespace_with_listener(&reaper).await;
        test(&child.process, listener).await;
        child.process.signal(SignalNumber::KILL).unwrap();
        within(child.exit).await;
    });
}

fn bring_loopback_up() -> io::Result<()> {
    let socket = tcp_socket(Ipv4Addr::LOCALHOST.into())?;
    // SAFETY: ifreq is plain data for which all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[..2].copy_from_slice(&[b'l' as libc::c_char, b'o' as libc::c_char]);
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: SIOCSIFFLAGS reads one ifreq, which outlives the call.
    let result =
        unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&socket), libc::SIOCSIFFLAGS, &request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn u2_tcp_probe_connects_inside_the_network_namespace_of_the_process() {
    run(async {
        let reaper = reaper();
        let (child, listener) = namespace_with_listener(&reaper).await;
        let open = loopback(&listener);
        assert_eq!(within(tcp(&child.process, open, TIMEOUT)).await, ProbeResult::Success);
        // The shim's own namespace does not have that listener: the socket was really made in the container's
        // namespace.
        let own = reaper.spawn(std::process::Command::new("sleep").arg("1000")).unwrap();
        let refused = within(tcp(&own.process, open, TIMEOUT)).await;
        assert_eq!(refused.to_string(), format!("tcp:{open} refused"));
        drop(listener);
        let refused = within(tcp(&child.process, open, TIMEOUT)).await;
        assert_eq!(refused.to_string(), format!("tcp:{open} refused"));
        for child in [child, own] {
            child.process.signal(SignalNumber::KILL).unwrap();
            within(child.exit).await;
            let gone = within(tcp(&child.process, open, TIMEOUT)).await.to_string();
            assert!(gone.contains("cannot be probed"), "{gone}");
        }
    });
}

#[test]
fn tcp_probe_refuses_addresses_that_are_not_the_containers_own() {
    with_listener(async |process, listener| {
        for foreign in ["192.0.2.1:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]:80", "224.0.0.1:80"] {
            let result = within(tcp(process, at(foreign), DEADLINE)).await;
            assert_eq!(result.to_string(), format!("tcp:{foreign} is not an address of the container"));
        }
        drop(listener);
    });
}

/// Answers each connection with the next text and keeps it open until the client has closed it.
fn serve(listener: TcpListener, answers: &'static [&'static str]) -> std::thread::JoinHandle<Vec<String>> {
    std::thread::spawn(move || {
        let answer = |text: &str| {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = client.read(&mut request).unwrap();
            client.write_all(text.as_bytes()).unwrap();
            // End of file or a reset, whatever comes.
            let _ = client.read(&mut [0; 1024]);
            String::from_utf8_lossy(&request[..length]).into_owned()
        };
        answers.iter().map(|text| answer(text)).collect()
    })
}

/// U2, DESIGN §6: 200 to 399 open the gate; a redirect is not followed (its target has no listener, and the server gets
/// no second request); and an answer that never ends is not read.
#[test]
fn u2_http_probe_opens_by_status_and_follows_nothing() {
    with_listener(async |process, listener| {
        let address = listener.local_addr().unwrap();
        let own = Endpoint { host: Some(address.ip()), port: address.port() };
        let server = serve(
            listener,
            &[
                "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
                "HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\n\r\n",
                "HTTP/1.1 503 Service Unavailable\r\n\r\n",
                "hello\n",
            ],
        );
        let attempt = async || within(http(process, own, "/healthz?full=1", TIMEOUT)).await;
        assert_eq!(attempt().await, ProbeResult::Success);
        assert_eq!(attempt().await, ProbeResult::Success);
        assert_eq!(attempt().await.to_string(), format!("http:{own}/healthz?full=1: 503"));
        assert_eq!(attempt().await.to_string(), format!("http:{own}/healthz?full=1: no HTTP answer"));
        let requests = server.join().unwrap();
        let expected = format!(
            "GET /healthz?full=1 HTTP/1.1\r\nHost: {address}\r\nUser-Agent: podshim\r\nAccept: */*\r\nConnection: close\r\n\r\n"
        );
        assert_eq!(requests, vec![expected; 4]);
        assert_eq!(attempt().await.to_string(), format!("http:{own}/healthz?full=1: refused"));
        let foreign = within(http(process, at("192.0.2.1:80"), "/", TIMEOUT)).await;
        assert_eq!(foreign.to_string(), "http:192.0.2.1:80/: is not an address of the container");
    });
}

/// DESIGN §6: neither a line without an end nor one that comes a byte at a time takes the probe beyond its bounds.
#[test]
fn u2_http_probe_ends_with_a_hostile_server() {
    with_listener(async |process, listener| {
        let own = loopback(&listener);
        let server = std::thread::spawn(move || {
            let (mut endless, _) = listener.accept().unwrap();
            let mut sent = 0;
            while endless.write_all(&[b'x'; 65536]).is_ok() {
                sent += 65536;
            }
            let (mut slow, _) = listener.accept().unwrap();
            while slow.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
            sent
        });
        let endless = within(http(process, own, "/", TIMEOUT)).await.to_string();
        assert_eq!(endless, format!("http:{own}/: no HTTP answer"));
        let short = Duration::from_millis(300);
        let slow = within(http(process, own, "/", short)).await.to_string();
        assert_eq!(slow, format!("http:{own}/: timed out after 300ms"));
        // The server could write only what the sockets hold, not all it wanted to.
        assert!(server.join().unwrap() < 64 << 20);
    });
}

/// A container that runs with `volume` at /shared.
async fn with_volume(volume: &Path) -> (TestContainer, Launched) {
    let test = TestContainer::new(&["sleep", "1000"], |spec| {
        let mounts = spec["mounts"].as_array_mut().unwrap();
        mounts.push(serde_json::json!({
            "destination": "/shared", "type": "bind", "source": volume, "options": ["bind"]
        }));
    });
    REAPER.set(Some(test.reaper.clone()));
    let created = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
    test.container.start().await.unwrap();
    (test, created)
}

/// U2, DESIGN §6: a path is looked up in the container's root and mounts; links that lead out of it, and magic links,
/// find nothing of the host's.
#[test]
fn u2_file_probe_stays_inside_the_containers_root() {
    run(async {
        let shared = tempfile::tempdir().unwrap();
        let host_file = shared.path().join("of-the-host");
        std::fs::write(&host_file, "").unwrap();
        let links = shared.path().join("shared");
        std::fs::create_dir(&links).unwrap();
        let link = |name: &str, target: &str| std::os::unix::fs::symlink(target, links.join(name)).unwrap();
        link("absolute", host_file.to_str().unwrap());
        link("dots", &format!("../../../../../../..{}", host_file.display()));
        link("magic", "/proc/1/root/tmp/ready");
        link("inside", "/tmp/ready");
        link("itself", "itself");
        let (test, created) = with_volume(&links).await;
        let check = async |path: &str| within(file(&created.process, path, TIMEOUT)).await;
        assert_eq!(check("/tmp/ready").await.to_string(), "file:/tmp/ready is not there");
        std::fs::write(test.container.bundle().rootfs().join("tmp/ready"), "").unwrap();
        for path in ["/tmp/ready", "/shared/inside", "/tmp", "/../tmp/ready", "/shared/../tmp/ready"] {
            assert_eq!(check(path).await, ProbeResult::Success, "{path}");
        }
        // Another process's renames do not count. The thread ends with the directory.
        let names = ["one", "two"].map(|name| shared.path().join(name));
        std::fs::write(&names[0], "").unwrap();
        let renames = std::thread::spawn(move || {
            let [one, two] = &names;
            while std::fs::rename(one, two).and_then(|()| std::fs::rename(two, one)).is_ok() {}
        });
        for _ in 0..20 {
            assert_eq!(check("/shared/../tmp/ready").await, ProbeResult::Success);
        }
        assert!(!renames.is_finished());
        for path in ["/shared/absolute", "/shared/dots", host_file.to_str().unwrap(), "/tmp/ready/x"] {
            assert!(matches!(check(path).await, ProbeResult::Failure(_)), "{path}");
        }
        for path in ["/shared/magic", "/shared/itself", "/proc/1/root/tmp/ready"] {
            let refused = check(path).await.to_string();
            assert!(refused.contains("cannot be looked for"), "{path}: {refused}");
        }
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
        assert!(check("/tmp/ready").await.to_string().contains("is not there"));
    });
}
