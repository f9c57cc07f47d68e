//! A process of a container writes to its terminal from memory whose page never comes (H2): the hand waits in the kernel, and the head
//! goes on.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::ptr;

use nix::pty::{OpenptyResult, openpty};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use test_support::DEADLINE;

use super::stuck::{A_SECOND, NO_TIME, Other, SHORT};
use super::*;

const PAGE: usize = 4096;
// Of linux/userfaultfd.h.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
const API: u64 = 0xaa;
const MISSING: u64 = 1;

/// A page that comes when this is dropped: until then, who reads it waits in the kernel, as for one of a file that a container serves
/// itself by FUSE.
struct AbsentPage {
    address: usize,
    _handler: OwnedFd,
}

impl AbsentPage {
    fn new() -> Self {
        // SAFETY: new memory of this process, and calls that only read and write what is passed.
        unsafe {
            let (access, kind) =
                (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(ptr::null_mut(), PAGE, access, kind, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            let handler = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC);
            let handler = OwnedFd::from_raw_fd(i32::try_from(handler).unwrap());
            assert!(handler.as_raw_fd() >= 0, "{}", std::io::Error::last_os_error());
            let mut api = [API, 0, 0];
            assert_eq!(libc::ioctl(handler.as_raw_fd(), UFFDIO_API as _, api.as_mut_ptr()), 0);
            let mut range = [page as u64, PAGE as u64, MISSING, 0];
            assert_eq!(libc::ioctl(handler.as_raw_fd(), UFFDIO_REGISTER as _, range.as_mut_ptr()), 0);
            Self { address: page as usize, _handler: handler }
        }
    }
}

/// As an OCI runtime does.
fn hand_out(master: &OwnedFd, socket: &TerminalSocket) {
    let client = UnixStream::connect(socket.path()).unwrap();
    let rights = [master.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&rights)];
    let name = [std::io::IoSlice::new(b"/dev/ptmx")];
    sendmsg::<()>(client.as_raw_fd(), &name, &rights, MsgFlags::empty(), None).unwrap();
}

/// H2: the last close of the terminal's master waits for the writer, in uninterruptible sleep.
#[test]
fn h2_a_write_to_a_terminal_whose_page_never_comes_stops_the_hand_and_not_the_head() {
    run(async {
        let hands = Hands::new(Vec::new());
        let mut other = Other::on(&hands).await;
        let directory = tempfile::tempdir().unwrap();
        let paths =
            StdioPaths { mode: StreamMode::Terminal, ..output_to(&make_fifo(directory.path(), "out")) };
        let _reader = open_reader(&paths.stdout);
        let streams = open_on(&hands, &paths).await.unwrap();
        streams.connect().await.unwrap();
        let ends = streams.ends_of_terminal().unwrap();
        let socket = TerminalSocket::bind(&ends, directory.path()).await.unwrap();
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        hand_out(&master, &socket);
        drop(master);
        let terminal = socket.attach(&ends, None, DEADLINE).await.unwrap();
        let page = AbsentPage::new();
        let address = page.address;
        let writer = std::thread::spawn(move || {
            // SAFETY: the page is not unmapped.
            unsafe { libc::write(slave.as_raw_fd(), address as *const libc::c_void, PAGE) }
        });
        tokio::time::sleep(SHORT).await;
        let begun = Instant::now();
        terminal.shutdown(SHORT).await;
        assert!(begun.elapsed() < SHORT + LATE + NO_TIME, "{:?}", begun.elapsed());
        let took = other.expect("meanwhile\n").await;
        assert!(took < A_SECOND + NO_TIME, "{took:?}");
        assert_eq!(hands.attention().away, 1, "the hand did not wait: the test shows nothing");
        // As when the process is killed.
        drop(page);
        writer.join().unwrap();
        until(|| hands.attention().away == 0).await;
        other.expect("after\n").await;
    });
}
