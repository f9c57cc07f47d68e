//! Reading of datagrams and of their senders. The e2e tests show that a container is heard.

use std::cell::RefCell;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::rc::Rc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};
use nix::unistd::{Pid, getpid};
use processes::SignalNumber;
use streams::stdio::ChildStdio;
use test_support::{run, until, until_ended, within};
use tokio::time::Instant;

use super::super::message::{MESSAGE_LONGEST, Message, Readiness, STATUS_LONGEST};
use super::*;
use crate::runtime::{CreateOptions, Launched};
use crate::test_container::TestContainer;

mod charge;

type Statements = Rc<RefCell<Vec<Statement>>>;

fn listen(reaper: &Reaper, bundle: &Bundle) -> (Statements, NotifySocket) {
    let all = Statements::default();
    let received = all.clone();
    let receive = move |statement| received.borrow_mut().push(statement);
    (all, NotifySocket::listen(reaper, bundle, receive).unwrap())
}

/// The same for a container that has no groups of its own: this process is a stranger to it.
fn listen_for_none(reaper: &Reaper, bundle: &Bundle) -> (Statements, NotifySocket) {
    let (all, listener) = listen(reaper, bundle);
    listener.receive_from(None, &Process::open(getpid()).unwrap());
    (all, listener)
}

#[test]
fn messages_are_lines_of_which_two_mean_something() {
    let ready =
        |status: Option<&str>| Message { readiness: Readiness::Ready, status: status.map(str::to_owned) };
    assert_eq!(Message::parse(b"READY=1"), ready(None));
    assert_eq!(Message::parse(b"MAINPID=7\nSTATUS= up \xff\nREADY=1\n"), ready(Some("up \u{fffd}")));
    let nothing: [&[u8]; 8] =
        [b"", b"READY=0", b"READY=1 ", b"READY=11", b"XREADY=1", b"ready=1", b"READY", b"\0READY=1"];
    for datagram in nothing {
        assert_eq!(Message::parse(datagram), Message::default(), "{}", datagram.escape_ascii());
    }
    let long = [&b"STATUS="[..], &[b'x'; 1000]].concat();
    assert_eq!(Message::parse(&long).status.map(|status| status.len()), Some(STATUS_LONGEST));
}

/// DESIGN §6: datagrams that are too long or carry descriptors do no harm, and a process that is in no container is a stranger.
#[test]
fn senders_are_known_and_descriptors_closed() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        // Longer than a socket address may be, as bundles' paths are.
        let path = directory.path().join("x".repeat(120));
        std::fs::create_dir(&path).unwrap();
        let bundle = Bundle::new(&path);
        let reaper = Reaper::start().unwrap();
        let (all, listener) = listen_for_none(&reaper, &bundle);
        let client = UnixDatagram::unbound().unwrap();
        let parent = File::open(&path).unwrap();
        let address = format!("/proc/self/fd/{}/notify.sock", parent.as_raw_fd());
        client.connect(&address).unwrap();
        client.send(&[b'x'; MESSAGE_LONGEST + 1]).unwrap();
        client.send(b"WATCHDOG=1").unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(*all.borrow(), []);
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        send_with(&client, b"READY=1", &[parent.as_raw_fd(); 3]);
        until(|| *all.borrow() == [Statement::Stranger]).await;
        assert_eq!(descriptors(), before);
        drop(listener);
        until(|| client.send(b"READY=1").is_err()).await;
    });
}

/// A TCP connection whose close waits until its other end reads, as long as SO_LINGER says.
struct Lingering {
    socket: TcpStream,
    /// Never read.
    _other_end: TcpStream,
}

impl Lingering {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_other_end, _) = listener.accept().unwrap();
        let linger = libc::linger { l_onoff: 1, l_linger: 3600 };
        setsockopt(&socket, sockopt::Linger, &linger).unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[b'x'; 1 << 16]).is_ok() {}
        Self { socket, _other_end }
    }
}

fn send_with(client: &UnixDatagram, text: &[u8], rights: &[RawFd]) {
    let rights = [ControlMessage::ScmRights(rights)];
    sendmsg::<()>(client.as_raw_fd(), &[io::IoSlice::new(text)], &rights, MsgFlags::empty(), None).unwrap();
}

/// DESIGN §6: closing a descriptor that came along may take as long as the container likes: one that was received, one
/// of too many for the buffer, one still queued when the socket is closed. The shim has none of them.
#[test]
fn u2_a_descriptor_that_cannot_be_closed_stops_a_helper_only() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        let reaper = Reaper::start().unwrap();
        let (all, listener) = listen_for_none(&reaper, &bundle);
        let client = UnixDatagram::unbound().unwrap();
        client.connect(bundle.notify_socket_path()).unwrap();
        let lingering = [Lingering::new(), Lingering::new()];
        // No receiver starts meanwhile: it would close its copy first, and the last close, which waits for an hour, were this thread's.
        let keeper = listener.keeper.pid();
        kill(keeper, Signal::SIGSTOP).unwrap();
        send_with(&client, b"STATUS=one", &[lingering[0].socket.as_raw_fd()]);
        send_with(&client, b"STATUS=many", &[lingering[1].socket.as_raw_fd(); 253]);
        let closed = lingering.map(|lingering| lingering._other_end);
        kill(keeper, Signal::SIGCONT).unwrap();
        let began = Instant::now();
        until(|| all.borrow().len() == 1).await;
        // The receiver closes the first one, and the second is in the queue.
        tokio::time::sleep(Duration::from_millis(1300)).await;
        assert_eq!(all.borrow().len(), 1);
        let receiver = receiver_of(&listener).unwrap();
        drop(listener);
        until_ended(&keeper.to_string()).await;
        until_ended(&receiver).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        drop(closed);
    });
}

/// The pid of the process that reads the socket now.
fn receiver_of(listener: &NotifySocket) -> Option<String> {
    let keeper = listener.keeper.pid();
    let children = std::fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children")).unwrap();
    children.split_whitespace().next().map(str::to_owned)
}

/// sd_notify_barrier(3): the descriptor is closed when all earlier messages were taken, so `systemd-notify` waits until
/// its cgroup has been checked.
#[test]
fn u2_a_barrier_ends_when_what_came_before_has_been_received() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        let reaper = Reaper::start().unwrap();
        let (all, _listener) = listen_for_none(&reaper, &bundle);
        let client = UnixDatagram::unbound().unwrap();
        client.connect(bundle.notify_socket_path()).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = async_file::register(File::from(OwnedFd::from(reader)), Interest::READABLE).unwrap();
        client.send(b"READY=1").unwrap();
        send_with(&client, b"BARRIER=1", &[writer.as_raw_fd()]);
        drop(writer);
        drop(within(reader.readable()).await.unwrap());
        // Its sender has been judged: the report is on its way.
        drop(client);
        until(|| *all.borrow() == [Statement::Stranger]).await;
    });
}

/// DESIGN §6: no number of descriptors cuts off the pidfd, and the next message is taken.
#[test]
fn u2_descriptors_do_not_push_the_sender_out() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        let reaper = Reaper::start().unwrap();
        let (all, _listener) = listen_for_none(&reaper, &bundle);
        let client = UnixDatagram::unbound().unwrap();
        client.connect(bundle.notify_socket_path()).unwrap();
        let null = File::open("/dev/null").unwrap();
        let mut command = std::process::Command::new("true");
        // The sender ends at once: a lookup of its pid would find no process, or another one.
        // SAFETY: sendmsg allocates; no thread of the test holds a lock.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
                send_with(&client, b"READY=1", &[null.as_raw_fd(); 60]);
                Ok(())
            })
        };
        let child = reaper.spawn(&mut command).unwrap();
        within(child.exit).await;
        // A message without its sender is dropped.
        until(|| *all.borrow() == [Statement::Stranger]).await;
    });
}

/// A process that is gone is in no container: another process may have its pid by now.
#[test]
fn a_sender_that_is_gone_is_in_no_container() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (launched, cgroup) = test.start().await;
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        let (all, listener) = listen(&test.reaper, &bundle);
        listener.receive_from(Some(&cgroup), &launched.process);
        let keeper = Process::open(listener.keeper.pid()).unwrap();
        keeper.signal(SignalNumber::new(libc::SIGSTOP as u32).unwrap()).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.connect(bundle.notify_socket_path()).unwrap();
        let (mut command, init) = (std::process::Command::new("true"), launched.process.pid());
        // SAFETY: what runs there makes system calls and allocates; no thread of the test holds a lock.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
                join_groups_of(init)?;
                client.send(b"READY=1").map(drop)
            })
        };
        let child = test.reaper.spawn(&mut command).unwrap();
        within(child.exit).await;
        keeper.signal(SignalNumber::new(libc::SIGCONT as u32).unwrap()).unwrap();
        // Sent after the message above, of which a stranger's is reported first or none.
        let last = UnixDatagram::unbound().unwrap();
        last.connect(bundle.notify_socket_path()).unwrap();
        last.send(b"STATUS=last").unwrap();
        until(|| !all.borrow().is_empty()).await;
        tokio::time::sleep(Duration::from_millis(1200)).await;
        assert!(all.borrow().iter().all(|statement| *statement == Statement::Stranger), "{all:?}");
        end(launched).await;
    });
}

async fn end(launched: Launched) {
    launched.process.signal(SignalNumber::KILL).unwrap();
    within(launched.exit).await;
}

/// Adds the calling process to every group that `pid` is in. Only the shim's tests may do so: only root may move
/// processes.
fn join_groups_of(pid: Pid) -> io::Result<()> {
    for line in std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?.lines() {
        let fields: Vec<_> = line.splitn(3, ':').collect();
        let [_, controllers, path] = fields[..] else { continue };
        let group = format!("/sys/fs/cgroup/{}{path}/cgroup.procs", controllers.trim_start_matches("name="));
        if Path::new(&group).exists() {
            std::fs::write(group, "0")?;
        }
    }
    Ok(())
}

/// Sends a datagram that claims to be from `pid`.
fn send_as(socket: RawFd, pid: Pid) -> io::Result<()> {
    let credentials = libc::ucred { pid: pid.as_raw(), uid: 0, gid: 0 };
    let message = [io::IoSlice::new(b"READY=1")];
    let claim = [nix::sys::socket::ControlMessage::ScmCredentials(&credentials.into())];
    nix::sys::socket::sendmsg::<()>(socket, &message, &claim, nix::sys::socket::MsgFlags::empty(), None)?;
    Ok(())
}

/// DESIGN §6, with a real container: every process in its groups may speak for it, even a daemon that has left its
/// parents and its session. No other process may, and none can claim another's pid.
#[test]
fn u2_only_processes_of_the_container_speak_for_it() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
        test.container.start().await.unwrap();
        let (init, cgroup) = (created.process.pid(), Cgroup::of_pid(created.process.pid()).unwrap());
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        let (all, listener) = listen(&test.reaper, &bundle);
        listener.receive_from(Some(&cgroup), &created.process);
        let client = UnixDatagram::unbound().unwrap();
        client.connect(bundle.notify_socket_path()).unwrap();
        let socket = client.as_raw_fd();
        let spawn = |prepare: fn(RawFd, Pid) -> io::Result<()>| {
            let mut command = std::process::Command::new("sleep");
            command.arg("1000");
            // SAFETY: what runs there makes system calls and allocates; no thread of the test holds a lock.
            unsafe {
                std::os::unix::process::CommandExt::pre_exec(&mut command, move || prepare(socket, init));
            }
            test.reaper.spawn(&mut command)
        };
        // A run is heard until it is ready: each of these is a run of its own.
        let is_taken = async || {
            until(|| !all.borrow().is_empty()).await;
            let receiver = receiver_of(&listener).unwrap();
            listener.receive_from(Some(&cgroup), &created.process);
            until_ended(&receiver).await;
            all.borrow_mut().drain(..).all(|statement| statement == Statement::Ready)
        };

        let outsider = spawn(|socket, _| {
            nix::sys::socket::send(socket, b"READY=1", nix::sys::socket::MsgFlags::empty())?;
            Ok(())
        });
        assert!(!is_taken().await, "a process of the node");
        let member = spawn(|socket, init| {
            join_groups_of(init)?;
            nix::sys::socket::send(socket, b"READY=1", nix::sys::socket::MsgFlags::empty())?;
            Ok(())
        });
        assert!(is_taken().await, "a process of the container");
        let parent_of_a_daemon = spawn(|socket, init| {
            join_groups_of(init)?;
            // SAFETY: as in the tests' other children: only system calls.
            if unsafe { nix::unistd::fork() }?.is_parent() {
                return Ok(());
            }
            nix::unistd::setsid()?;
            // SAFETY: the same.
            if unsafe { nix::unistd::fork() }?.is_parent() {
                // SAFETY: ends the process.
                unsafe { libc::_exit(0) };
            }
            nix::sys::socket::send(socket, b"READY=1", nix::sys::socket::MsgFlags::empty())?;
            // The pipe of its spawn must close, or the parent would wait.
            // SAFETY: nothing of this process uses a descriptor any more.
            unsafe { libc::close_range(3, libc::c_uint::MAX, 0) };
            loop {
                nix::unistd::pause();
            }
        });
        assert!(is_taken().await, "a daemon of the container");
        // Without CAP_SYS_ADMIN in its pid namespace a process may not claim another pid.
        let liar = spawn(|socket, init| {
            nix::unistd::setuid(nix::unistd::Uid::from_raw(65534))?;
            send_as(socket, init)
        });
        let liar = liar.unwrap();
        within(liar.exit).await;
        assert_eq!(liar.report.failure().and_then(|error| error.raw_os_error()), Some(libc::EPERM));
        client.send(b"STATUS=after it").unwrap();
        assert!(!is_taken().await, "of this process, and nothing before it");

        cgroup.kill_remaining(tokio::time::Instant::now() + test_support::DEADLINE).await;
        within(created.exit).await;
        for child in [outsider, member, parent_of_a_daemon] {
            let child = child.unwrap();
            child.process.signal(processes::SignalNumber::KILL).unwrap();
            within(child.exit).await;
        }
    });
}
