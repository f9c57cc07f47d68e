//! Probes of a real container, and of a network namespace made for the test.

use std::net::{Ipv4Addr, TcpListener};

use nix::sched::unshare;

use super::*;
use crate::{
    reaper::Reaper,
    runtime::CreateOptions,
    test_support::{DEADLINE, TestContainer, process, run, within},
};

const TIMEOUT: Duration = Duration::from_secs(5);

#[test]
fn u2_exec_probe_reports_exit_codes_signals_timeouts_and_missing_programs() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
        test.container.start().await.unwrap();
        let attempt = async |arguments: &[&str], timeout| {
            within(exec(&test.container, "gate", &process(arguments), timeout)).await
        };
        assert_eq!(attempt(&["true"], TIMEOUT).await, ProbeResult::Success);
        assert_eq!(attempt(&["false"], TIMEOUT).await.to_string(), "exit status 1");
        assert_eq!(attempt(&["sh", "-c", "kill -9 $$"], TIMEOUT).await.to_string(), "killed by signal 9");
        let short = Duration::from_millis(100);
        assert_eq!(attempt(&["sleep", "1000"], short).await.to_string(), "timed out after 100ms");
        let missing = attempt(&["no-such-program"], TIMEOUT).await.to_string();
        assert!(missing.contains("no-such-program"), "{missing}");
        // The one that timed out is gone too: only the container's own process is left.
        let cgroup = crate::cgroup::Cgroup::of_pid(created.process.pid()).unwrap();
        crate::test_support::until(|| cgroup.pids().len() == 1).await;
        assert!(!test.container.bundle().exec_pid_path("gate").unwrap().exists());
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// A process in a network namespace with one listener on 127.0.0.1, whose port is the result.
async fn namespace_with_listener(reaper: &Reaper) -> (crate::reaper::Child, TcpListener) {
    let mut command = std::process::Command::new("sleep");
    command.arg("1000");
    // SAFETY: unshare is one system call, between fork and exec.
    unsafe {
        std::os::unix::process::CommandExt::pre_exec(&mut command, || Ok(unshare(CloneFlags::CLONE_NEWNET)?))
    };
    let child = reaper.spawn(&mut command).unwrap();
    let namespace = child.process.open_namespace("net").unwrap();
    let listener = helper_thread::run("listener", move || {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        bring_loopback_up()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
    });
    (child, listener.await.unwrap())
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
        let reaper = Reaper::start().unwrap();
        let (child, listener) = namespace_with_listener(&reaper).await;
        let open = listener.local_addr().unwrap();
        assert_eq!(within(tcp(&child.process, open, TIMEOUT)).await, ProbeResult::Success);
        // The shim's own namespace does not have that listener: the socket really was made elsewhere.
        let own = reaper.spawn(std::process::Command::new("sleep").arg("1000")).unwrap();
        let refused = within(tcp(&own.process, open, TIMEOUT)).await;
        assert_eq!(refused.to_string(), format!("tcp:{} refused", open.port()));
        drop(listener);
        let refused = within(tcp(&child.process, open, TIMEOUT)).await;
        assert_eq!(refused.to_string(), format!("tcp:{} refused", open.port()));
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
    run(async {
        let reaper = Reaper::start().unwrap();
        let (child, listener) = namespace_with_listener(&reaper).await;
        for foreign in ["192.0.2.1:80", "[2001:db8::1]:80", "[::ffff:192.0.2.1]:80", "224.0.0.1:80"] {
            let result = within(tcp(&child.process, foreign.parse().unwrap(), DEADLINE)).await;
            assert_eq!(result.to_string(), format!("tcp:{foreign} is not an address of the container"));
        }
        drop(listener);
        child.process.signal(SignalNumber::KILL).unwrap();
        within(child.exit).await;
    });
}
