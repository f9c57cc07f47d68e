//! Probes without a host (U2): which addresses of a network namespace are tried, in which order, in what time.

use std::net::{Ipv6Addr, TcpStream};

use nix::sys::socket::{Backlog, listen};

use super::*;
use crate::probe::connect::{HomeNetwork, NamespaceOwner, addresses};

/// Addresses of a pod's interface. Here the loopback interface has them.
const OF_THE_POD: [&str; 2] = ["10.88.0.7", "fd00:88::7"];

fn anywhere(port: u16) -> Endpoint {
    Endpoint { host: None, port }
}

fn loopback_and_pod() -> [IpAddr; 4] {
    let [v4, v6] = OF_THE_POD.map(|ip| ip.parse().unwrap());
    [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into(), v4, v6]
}

/// Runs `act` in the network namespace of a process and returns its result.
async fn inside<T: Send + 'static>(
    process: &Process,
    act: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let namespace = process.open_namespace("net").unwrap();
    let job = helper_thread::run("inside", move || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        act()
    });
    job.await
}

/// Runs a test with a process in a network namespace that has a pod's addresses.
fn in_a_pod(test: impl AsyncFnOnce(&Process)) {
    in_a_pod_after(":", test);
}

/// The same, after the shell commands `first`.
fn in_a_pod_after(first: &str, test: impl AsyncFnOnce(&Process)) {
    run(async {
        let reaper = reaper();
        let [v4, v6] = OF_THE_POD;
        let script = format!(
            "{first}; ip link set lo up && ip addr add {v4}/24 dev lo && ip -6 addr add {v6}/64 dev lo nodad && \
             exec sleep 1000"
        );
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script]);
        let child = reaper.spawn(in_own_network(&mut command)).unwrap();
        until(|| child.report.is_complete()).await;
        for ip in loopback_and_pod() {
            // The script may still be adding addresses.
            while listener(&child.process, ip, 0).await.is_err() {
                assert!(child.process.is_running(), "{script}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        test(&child.process).await;
        child.process.signal(SignalNumber::KILL).unwrap();
        within(child.exit).await;
    });
}

async fn listener(process: &Process, ip: IpAddr, port: u16) -> io::Result<TcpListener> {
    inside(process, move || TcpListener::bind((ip, port))).await
}

/// A listener whose queue is full: the kernel answers no further connection. Returned with the one that fills it.
async fn silent(process: &Process, ip: IpAddr, port: u16) -> (TcpListener, Vec<TcpStream>) {
    let silent = listener(process, ip, port).await.unwrap();
    listen(&silent, Backlog::new(0).unwrap()).unwrap();
    let connect = move || TcpStream::connect_timeout(&(ip, port).into(), Duration::from_millis(200));
    let mut queued = Vec::new();
    while let Ok(stream) = inside(process, connect).await {
        queued.push(stream);
    }
    (silent, queued)
}

/// A program that listens on a single one of the addresses is found, whichever it is.
#[test]
fn u2_a_probe_without_a_host_finds_a_program_on_any_address_of_the_pod() {
    in_a_pod(async |process| {
        for ip in loopback_and_pod() {
            let listener = listener(process, ip, 8080).await.unwrap();
            assert_eq!(within(tcp(process, anywhere(8080), TIMEOUT)).await, ProbeResult::Success, "{ip}");
            // The connection of that probe.
            drop(listener.accept().unwrap());
            let server = serve(listener, &["HTTP/1.1 204 No Content\r\n\r\n"]);
            let result = within(http(process, anywhere(8080), "/", TIMEOUT)).await;
            assert_eq!(result, ProbeResult::Success, "{ip}");
            let requests = server.join().unwrap();
            let host = format!("\r\nHost: {}\r\n", SocketAddr::new(ip, 8080));
            assert!(requests.concat().contains(&host), "{requests:?}");
        }
        let refused = within(tcp(process, anywhere(8080), TIMEOUT)).await;
        assert_eq!(refused.to_string(), "tcp:8080 refused");
        let refused = within(http(process, anywhere(8080), "/", TIMEOUT)).await;
        assert_eq!(refused.to_string(), "http:8080/: refused");
    });
}

/// Loopback comes first, and the first address that accepts answers for all: no second one is asked.
#[test]
fn u2_the_first_address_that_accepts_answers_for_the_container() {
    in_a_pod(async |process| {
        let [v4, _, of_pod, _] = loopback_and_pod();
        let other = listener(process, of_pod, 8080).await.unwrap();
        let server = serve(listener(process, v4, 8080).await.unwrap(), &["HTTP/1.1 503 No\r\n\r\n"]);
        let result = within(http(process, anywhere(8080), "/", TIMEOUT)).await;
        assert_eq!(result.to_string(), "http:8080/: 503");
        server.join().unwrap();
        other.set_nonblocking(true).unwrap();
        assert_eq!(other.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    });
}

/// One timeout for all: an address that does not answer leaves the others their share of it.
#[test]
fn u2_an_address_that_does_not_answer_keeps_no_other_from_being_tried() {
    in_a_pod(async |process| {
        let [v4, v6, of_pod, of_pod_v6] = loopback_and_pod();
        let first = silent(process, v4, 8080).await;
        let timeout = Duration::from_millis(800);
        let failed = within(tcp(process, anywhere(8080), timeout)).await;
        assert_eq!(failed.to_string(), "tcp:8080 no answer at 127.0.0.1");
        let last = listener(process, of_pod_v6, 8080).await.unwrap();
        assert_eq!(within(tcp(process, anywhere(8080), timeout)).await, ProbeResult::Success);
        drop(last);
        let others = [silent(process, v6, 8080).await, silent(process, of_pod, 8080).await];
        let last = silent(process, of_pod_v6, 8080).await;
        let started = Instant::now();
        let failed = within(tcp(process, anywhere(8080), timeout)).await;
        assert_eq!(failed.to_string(), "tcp:8080 timed out after 800ms");
        assert!(started.elapsed() < timeout + Duration::from_secs(1), "{:?}", started.elapsed());
        drop((first, others, last));
    });
}

/// DESIGN §6: with hostNetwork the namespace is the node's; only its loopback addresses are tried.
#[test]
fn u2_of_the_nodes_own_network_only_the_loopback_is_tried() {
    in_a_pod(async |process| {
        let home = HomeNetwork::of_this_thread().unwrap();
        let owner_of = |process: &Process| {
            home.owner_of(HomeNetwork::at(&format!("/proc/{}/ns/net", process.pid())).unwrap())
        };
        assert_eq!(owner_of(process), NamespaceOwner::Pod);
        let this = Process::open(nix::unistd::getpid()).unwrap();
        assert_eq!(owner_of(&this), NamespaceOwner::Node);
        let of_pod = inside(process, || addresses(None, NamespaceOwner::Pod)).await.unwrap();
        assert_eq!(of_pod, loopback_and_pod());
        let of_node = inside(process, || addresses(None, NamespaceOwner::Node)).await.unwrap();
        assert_eq!(of_node, loopback_and_pod()[..2]);
    });
}

/// DESIGN §6: a container that gives itself many addresses cannot make a probe longer than this.
#[test]
fn u2_a_probe_tries_a_bounded_number_of_addresses() {
    in_a_pod_after("for i in $(seq 40); do ip addr add 10.99.0.$i/32 dev lo; done", async |process| {
        let tried = inside(process, || addresses(None, NamespaceOwner::Pod)).await.unwrap();
        assert_eq!(tried.len(), 2 + 16, "{tried:?}");
    });
}
