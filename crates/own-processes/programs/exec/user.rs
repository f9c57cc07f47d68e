//! The rights, the directory and the streams of the container's process.
//!
//! Owns their order, which is runc's. What is done here is done for good.

use super::calls::abi::{
    CAPSET, CHDIR, FCHOWN, GETCWD, OPENAT, READ, SETGROUPS, SETRESGID, SETRESUID, STATX, UMASK,
};
use super::calls::call;
use super::form::{NUMBERS, Number, Step, Text};
use super::kernel::{
    AT_FDCWD, EACCES, EINVAL, Failure, Line, PATH_LONGEST, checked, close, close_memory, map, prctl,
};
use super::orders::Orders;

/// That of runc and crun.
const USUAL_UMASK: usize = 0o022;
const CAPABILITY_VERSION: u32 = 0x2008_0522;
const LAST_CAPABILITY: usize = 63;
const AT_EMPTY_PATH: usize = 0x1000;
const STATX_TYPE: usize = 1;
/// `struct statx`, and where its mode is.
const STATX_LENGTH: usize = 256;
const STATX_MODE: usize = 28;
const S_IFMT: u16 = 0o170_000;
const S_IFIFO: u16 = 0o010_000;
const S_IFREG: u16 = 0o100_000;
const S_IFSOCK: u16 = 0o140_000;
const O_RDONLY_NONBLOCK_CLOEXEC: usize = 0o2_004_000;
const PR_SET_KEEPCAPS: usize = 8;
const PR_CAPBSET_DROP: usize = 24;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const PR_CAP_AMBIENT: usize = 47;
const PR_CAP_AMBIENT_RAISE: usize = 2;
const PR_CAP_AMBIENT_CLEAR_ALL: usize = 4;
/// The most that is read of a container's list of users.
const USERS_LONGEST: usize = 1 << 20;

/// The order is runc's: the directory may be one that only root reaches, or only the user.
pub(super) fn become_user(orders: &Orders) -> Result<(), Failure> {
    // SAFETY: no pointers.
    unsafe { call(UMASK, [USUAL_UMASK]) };
    let bounding = orders.number(Number::Bounding);
    for capability in (0..=LAST_CAPABILITY).filter(|capability| bounding & (1 << capability) == 0) {
        match prctl(PR_CAPBSET_DROP, capability, 0) {
            // The kernel has no such one.
            EINVAL => {}
            answer => checked(answer, Step::DropCapabilities)?,
        }
    }
    checked(prctl(PR_SET_KEEPCAPS, 1, 0), Step::DropCapabilities)?;
    find_home(orders);
    let (uid, gid) = (orders.number(Number::Uid) as usize, orders.number(Number::Gid) as usize);
    own_streams(uid);
    let directory = orders.text(Text::Directory).0.addr();
    // SAFETY: the kernel reads the path, and the list of groups, whose numbers have four bytes each.
    unsafe {
        let as_root = call(CHDIR, [directory]);
        let mut groups = [0_u32; 1024];
        let count = orders.length(Number::Groups).min(groups.len());
        for (place, group) in groups[..count].iter_mut().enumerate() {
            *group = orders.at(NUMBERS + place) as u32;
        }
        checked(call(SETGROUPS, [count, groups.as_ptr().addr()]), Step::BecomeUser)?;
        checked(call(SETRESGID, [gid, gid, gid]), Step::BecomeUser)?;
        checked(call(SETRESUID, [uid, uid, uid]), Step::BecomeUser)?;
        close_memory();
        if as_root < 0 {
            checked(call(CHDIR, [directory]), Step::ChangeDirectory)?;
        }
        let mut path = [0_u8; PATH_LONGEST];
        checked(call(GETCWD, [path.as_mut_ptr().addr(), path.len()]), Step::ChangeDirectory)?;
        // "(unreachable)": a directory that is not the container's.
        if path[0] != b'/' {
            return Err(Failure(Step::ChangeDirectory, EACCES));
        }
    }
    checked(prctl(PR_SET_KEEPCAPS, 0, 0), Step::SetCapabilities)?;
    set_capabilities(orders)?;
    if orders.number(Number::NoNewPrivileges) != 0 {
        checked(prctl(PR_SET_NO_NEW_PRIVS, 1, 0), Step::SetCapabilities)?;
    }
    Ok(())
}

fn set_capabilities(orders: &Orders) -> Result<(), Failure> {
    let sets = [Number::Effective, Number::Permitted, Number::Inheritable].map(|set| orders.number(set));
    let (header, mut data) = ([CAPABILITY_VERSION, 0], [0_u32; 6]);
    for (place, set) in sets.into_iter().enumerate() {
        (data[place], data[place + 3]) = (set as u32, (set >> 32) as u32);
    }
    // SAFETY: the kernel reads the header and two sets of three numbers.
    checked(unsafe { call(CAPSET, [header.as_ptr().addr(), data.as_ptr().addr()]) }, Step::SetCapabilities)?;
    // Linux before 4.3 has no such set.
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0);
    let ambient = orders.number(Number::Ambient);
    for capability in (0..=LAST_CAPABILITY).filter(|capability| ambient & (1 << capability) != 0) {
        // As runc: one that is not in the other sets is left out.
        prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability);
    }
    Ok(())
}

/// As runc: the program may open its streams by their names. No device: `/dev/null` is the node's. What is of a read-only file system or
/// another user namespace stays as it is.
fn own_streams(uid: usize) {
    for stream in 0..=2 {
        let mut status = [0_u16; STATX_LENGTH / 2];
        let empty = c"".as_ptr().addr();
        // SAFETY: the kernel writes one statx. The group stays.
        unsafe {
            let place = status.as_mut_ptr().addr();
            let answer = call(STATX, [stream, empty, AT_EMPTY_PATH, STATX_TYPE, place]);
            if answer == 0 && matches!(status[STATX_MODE / 2] & S_IFMT, S_IFIFO | S_IFREG | S_IFSOCK) {
                call(FCHOWN, [stream, uid, usize::MAX]);
            }
        }
    }
}

/// HOME from the container's list of users, where the variables have none; `/` for a user who is not in it.
fn find_home(orders: &Orders) {
    let count = orders.length(Number::Variables);
    let place = (0..count).find(|variable| orders.variable(*variable).begins_with(b"HOME="));
    // As runc: an empty one is none.
    if place.is_some_and(|place| orders.variable(place).bytes().count() > b"HOME=".len()) {
        return;
    }
    let Some(home) = map(PATH_LONGEST) else { return };
    let Some(users) = map(USERS_LONGEST) else { return };
    let name = c"/etc/passwd".as_ptr().addr();
    // SAFETY: `users` has that many bytes.
    let length = unsafe {
        let file = call(OPENAT, [AT_FDCWD, name, O_RDONLY_NONBLOCK_CLOEXEC]);
        let mut length = 0;
        while file >= 0 && length < USERS_LONGEST {
            let read = call(READ, [file as usize, users.add(length).addr(), USERS_LONGEST - length]);
            if read <= 0 {
                break;
            }
            length += read as usize;
        }
        if file >= 0 {
            close(file as usize);
        }
        length
    };
    // SAFETY: both places have that many bytes.
    let (users, text) = unsafe {
        (core::slice::from_raw_parts(users, length), core::slice::from_raw_parts_mut(home, PATH_LONGEST))
    };
    let found = home_of(orders.number(Number::Uid), users);
    let found = found.filter(|found| !found.is_empty() && found.len() < PATH_LONGEST - 6).unwrap_or(b"/");
    for (to, from) in text.iter_mut().zip(b"HOME=".iter().chain(found)) {
        *to = *from;
    }
    orders.set_variable(place.unwrap_or(count), Line(home));
}

/// The sixth field of the line whose third one is that number.
fn home_of(uid: u64, users: &[u8]) -> Option<&[u8]> {
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':');
        let number = fields.nth(2)?;
        let is_it = !number.is_empty()
            && number.iter().try_fold(0_u64, |sum, digit| {
                digit.is_ascii_digit().then(|| sum.saturating_mul(10).saturating_add((*digit - b'0').into()))
            }) == Some(uid);
        is_it.then(|| fields.nth(2)).flatten()
    })
}
