//! What the parts of this program share: calls of the kernel, its numbers, and texts as it takes them.

use super::calls::abi::{CLOSE, MMAP, OPENAT, PRCTL, WRITE};
use super::calls::call;
use super::form::Step;

pub(super) const AT_FDCWD: usize = -100_isize as usize;
/// A process of the container may have a lease on a file of its groups: then this fails at once.
pub(super) const O_WRONLY_NONBLOCK_CLOEXEC: usize = 0o2_004_001;
pub(super) const PROT_READ_WRITE: usize = 3;
pub(super) const MAP_PRIVATE: usize = 2;
pub(super) const MAP_ANONYMOUS: usize = 0x20;
pub(super) const PR_SET_DUMPABLE: usize = 4;
pub(super) const ENOENT: isize = -2;
pub(super) const EACCES: isize = -13;
pub(super) const EBUSY: isize = -16;
pub(super) const ENOTDIR: isize = -20;
pub(super) const EINVAL: isize = -22;
pub(super) const E2BIG: isize = -7;
pub(super) const ENOSYS: isize = -38;
pub(super) const ENAMETOOLONG: isize = -36;
/// The longest path that the kernel takes, and the end of it.
pub(super) const PATH_LONGEST: usize = 4096;

/// What could not be done, and the kernel's answer.
pub(super) struct Failure(pub(super) Step, pub(super) isize);

/// A text with a NUL byte at its end, among the orders.
#[derive(Clone, Copy)]
pub(super) struct Line(pub(super) *const u8);

impl Line {
    pub(super) fn bytes(self) -> impl Iterator<Item = u8> {
        // SAFETY: it ends with a NUL byte.
        (0..).map(move |place| unsafe { *self.0.add(place) }).take_while(|byte| *byte != 0)
    }

    pub(super) fn is_empty(self) -> bool {
        self.bytes().next().is_none()
    }

    pub(super) fn begins_with(self, beginning: &[u8]) -> bool {
        self.bytes().zip(beginning).filter(|(byte, wanted)| byte == *wanted).count() == beginning.len()
    }

    pub(super) fn number(self) -> usize {
        self.bytes().fold(0, |sum, digit| sum * 10 + usize::from(digit.wrapping_sub(b'0')))
    }
}

pub(super) fn checked(answer: isize, step: Step) -> Result<(), Failure> {
    if answer < 0 { Err(Failure(step, answer)) } else { Ok(()) }
}

pub(super) fn prctl(option: usize, argument: usize, more: usize) -> isize {
    // SAFETY: pointers among the arguments are to constants.
    unsafe { call(PRCTL, [option, argument, more, 0, 0]) }
}

/// To other processes of the same user. The kernel opens it again with each change of the user where `fs.suid_dumpable` is 1.
pub(super) fn close_memory() {
    prctl(PR_SET_DUMPABLE, 0, 0);
}

pub(super) fn close(file: usize) {
    // SAFETY: no pointers.
    unsafe { call(CLOSE, [file]) };
}

/// Empty memory.
pub(super) fn map(length: usize) -> Option<*mut u8> {
    // SAFETY: a new place.
    let place =
        unsafe { call(MMAP, [0, length, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, usize::MAX, 0]) };
    (!(-4095..0).contains(&place)).then_some(place as *mut u8)
}

pub(super) fn write_if_any(path: &'static str, text: Line, step: Step) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    checked(write(AT_FDCWD, Line(path.as_ptr()), text), step)
}

/// Opens the file, which is below that folder, writes the text, closes it.
pub(super) fn write(folder: usize, path: Line, text: Line) -> isize {
    // SAFETY: the kernel reads the path and the text.
    unsafe {
        let file = call(OPENAT, [folder, path.0.addr(), O_WRONLY_NONBLOCK_CLOEXEC]);
        if file < 0 {
            return file;
        }
        let written = call(WRITE, [file as usize, text.0.addr(), text.bytes().count()]);
        close(file as usize);
        written
    }
}
