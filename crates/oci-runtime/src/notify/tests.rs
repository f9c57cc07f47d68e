//! What is read of datagrams, and who is told as their sender. That a container is heard is shown by the e2e tests.

use std::{cell::RefCell, os::unix::net::UnixDatagram, rc::Rc};

use nix::unistd::getpid;

use super::*;
use crate::test_support::{run, until};

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

/// DESIGN §6: the kernel says who sent it; too long ones and ones with descriptors do no harm. The shim's own process
/// is in no container, whatever groups it is asked about.
#[test]
fn senders_are_known_and_descriptors_closed() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        // Longer than an address may be, as bundles are.
        let path = directory.path().join("x".repeat(120));
        std::fs::create_dir(&path).unwrap();
        let bundle = Bundle::new(&path);
        let heard = Rc::new(RefCell::new(Vec::new()));
        let listener = {
            let heard = heard.clone();
            NotifySocket::listen(&bundle, move |sender, message| heard.borrow_mut().push((sender, message)))
                .unwrap()
        };
        let client = UnixDatagram::unbound().unwrap();
        let parent = File::open(&path).unwrap();
        let address = format!("/proc/self/fd/{}/notify.sock", parent.as_raw_fd());
        client.connect(&address).unwrap();
        client.send(&[b'x'; MESSAGE_LONGEST + 1]).unwrap();
        client.send(b"STATUS=one").unwrap();
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        until(|| heard.borrow().len() == 1).await;
        let before = descriptors();
        let rights = [parent.as_raw_fd(); 3];
        nix::sys::socket::sendmsg::<()>(
            client.as_raw_fd(),
            &[io::IoSlice::new(b"READY=1")],
            &[nix::sys::socket::ControlMessage::ScmRights(&rights)],
            nix::sys::socket::MsgFlags::empty(),
            None,
        )
        .unwrap();
        until(|| heard.borrow().len() == 2).await;
        // The one more is the second sender's pidfd, which the test keeps.
        assert_eq!(descriptors(), before + 1);
        let own = Cgroup::of_pid(getpid()).unwrap();
        for (sender, _) in heard.borrow().iter() {
            assert_eq!(sender.0.pid(), getpid());
            assert!(!sender.is_in(&own), "the shim's own groups are no container's");
        }
        drop(listener);
        until(|| client.send(b"READY=1").is_err()).await;
    });
}

/// A process that is gone is nobody's any more: its pid may be another's by now.
#[test]
fn a_sender_that_is_gone_is_in_no_container() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        let socket = bind(&bundle.notify_socket_path()).unwrap();
        let client = UnixDatagram::unbound().unwrap();
        client.connect(bundle.notify_socket_path()).unwrap();
        let reaper = crate::reaper::Reaper::start().unwrap();
        let mut command = std::process::Command::new("true");
        // SAFETY: send is one system call, between fork and exec.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut command, move || {
                client.send(b"READY=1").map(drop)
            })
        };
        let child = reaper.spawn(&mut command).unwrap();
        let cgroup = Cgroup::of_pid(getpid()).unwrap();
        crate::test_support::within(child.exit).await;
        let received = receive(socket.as_raw_fd()).unwrap();
        assert!(received.is_none_or(|(sender, _)| !sender.is_in(&cgroup)));
    });
}
