//! Becomes a process of a container, as an OCI runtime's exec makes one, and executes a program there.
//!
//! `build.rs` links it without any library; the shim carries it in its own file, and executes it from a sealed file in memory: what a
//! container reaches of it (`/proc/<pid>/exe`, also by executing it) cannot be changed, and is not the node's.
//!
//! It enters the container in two parts. The first process is in the node's pid namespace, where no process of the container sees it:
//! it joins the others, and gives its rights up. The second one is born into the container's pid namespace with the rights that its
//! program is to have, with its streams and one pipe, and has nothing left to do but to execute it.
//!
//! Exit codes: 0 when another process goes on; 1 with a note of why not.

#![no_std]
#![no_main]

use core::arch::global_asm;
use core::panic::PanicInfo;

use calls::abi::{
    CAPSET, CHDIR, CLONE, CLOSE, EXECVE, FCHOWN, FCNTL, GETCWD, KEYCTL, LSEEK, MMAP, OPENAT, PRCTL, PRLIMIT64, READ,
    SETGROUPS, SETNS, SETRESGID, SETRESUID, SETSID, UMASK, WRITE,
};
use calls::{CLONE3, CLOSE_RANGE, call, exit};
use orders::{FAILED, MADE, MOVED, NUMBERS, Number, Step, TEXTS, Text};

#[expect(dead_code, reason = "the other program makes other calls")]
mod calls;
#[expect(dead_code, reason = "the shim needs more of it")]
mod orders;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {main}", main = sym main
);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x0, sp", "bl {main}", main = sym main);

const AT_FDCWD: usize = -100_isize as usize;
const O_RDONLY_NONBLOCK_CLOEXEC: usize = 0o2_004_000;
/// A process of the container may have a lease on a file of its groups: then this fails at once.
const O_WRONLY_NONBLOCK_CLOEXEC: usize = 0o2_004_001;
const F_SETFD: usize = 2;
const F_DUPFD_CLOEXEC: usize = 1030;
const FD_CLOEXEC: usize = 1;
const CLOSE_RANGE_CLOEXEC: usize = 4;
/// More than the shim has open while it starts this.
const MOST_FILES: usize = 1024;
const SEEK_END: usize = 2;
const PROT_READ_WRITE: usize = 3;
const MAP_PRIVATE: usize = 2;
const MAP_ANONYMOUS: usize = 0x20;
const CLONE_PARENT: usize = 0x8000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_NEWUSER: usize = 0x1000_0000;
const SIGCHLD: usize = 17;
/// That of runc and crun.
const USUAL_UMASK: usize = 0o022;
const KEYCTL_JOIN_SESSION_KEYRING: usize = 1;
const CAPABILITY_VERSION: u32 = 0x2008_0522;
const LAST_CAPABILITY: usize = 63;

const PR_SET_DUMPABLE: usize = 4;
const PR_SET_KEEPCAPS: usize = 8;
const PR_SET_NAME: usize = 15;
const PR_CAPBSET_DROP: usize = 24;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const PR_CAP_AMBIENT: usize = 47;
const PR_CAP_AMBIENT_RAISE: usize = 2;
const PR_CAP_AMBIENT_CLEAR_ALL: usize = 4;

const ENOENT: isize = -2;
const EACCES: isize = -13;
const EBUSY: isize = -16;
const ENOTDIR: isize = -20;
const EINVAL: isize = -22;
const EROFS: isize = -30;
const EPERM: isize = -1;
const E2BIG: isize = -7;
const ENOSYS: isize = -38;
const ENAMETOOLONG: isize = -36;

/// The longest path that the kernel takes, and the end of it.
const PATH_LONGEST: usize = 4096;
/// The most that is read of a container's list of users.
const USERS_LONGEST: usize = 1 << 20;

/// What could not be done, and the kernel's answer.
struct Failure(Step, isize);

/// A text with a NUL byte at its end, among the orders.
#[derive(Clone, Copy)]
struct Line(*const u8);

/// The orders, in this process's memory.
struct Orders {
    numbers: *mut u64,
    /// The texts, one pointer for each, and an empty one at the end of the arguments and of the variables.
    lines: *mut Line,
}

extern "C" fn main(stack: *const usize) -> ! {
    // SAFETY: the kernel puts the number of arguments there, and pointers to them.
    let argument = unsafe { if *stack < 2 { exit(1) } else { Line(*stack.add(2) as *const u8) } };
    prctl(PR_SET_NAME, c"podshim-exec".as_ptr().addr(), 0);
    close_memory();
    let orders = match Orders::read(argument.number()) {
        Ok(orders) => orders,
        // There is no place for a note.
        Err(_) => exit(1),
    };
    keep_streams_alone(&orders);
    if let Err(Failure(step, answer)) = obey(&orders) {
        orders.note(FAILED | step as u32, -answer);
        exit(1);
    }
    exit(0)
}

/// Returns when another process goes on, or never but with an error.
fn obey(orders: &Orders) -> Result<(), Failure> {
    if enter_groups(orders)? == Goes::OnElsewhere {
        return Ok(());
    }
    write_if_any("/proc/self/oom_score_adj\0", orders.text(Text::OomScore), Step::SetOomScore)?;
    label(orders)?;
    set_limits(orders)?;
    join(orders)?;
    become_user(orders)?;
    // SAFETY: as fork: the child has a copy of this memory, and its own stack.
    let child = unsafe { call(CLONE, [CLONE_PARENT | SIGCHLD, 0, 0, 0, 0]) };
    if child < 0 {
        return Err(Failure(Step::Fork, child));
    }
    if child > 0 {
        orders.note(MADE, child);
        return Ok(());
    }
    // SAFETY: no pointers.
    unsafe { call(SETSID, []) };
    Err(Failure(Step::Execute, execute(orders)))
}

/// The container's program has only its streams, and a table that is as small as from an OCI runtime.
fn keep_streams_alone(orders: &Orders) {
    let notes = orders.number(Number::Notes) as usize;
    // SAFETY: no pointers; the numbers are this process's own.
    unsafe {
        let low = call(FCNTL, [notes, F_DUPFD_CLOEXEC, 3]);
        if low >= 0 {
            close(notes);
            orders.numbers.add(Number::Notes as usize).write(low as u64);
        }
        // Linux 5.11.
        if call(CLOSE_RANGE, [3, u32::MAX as usize, CLOSE_RANGE_CLOEXEC]) < 0 {
            for file in 3..MOST_FILES {
                call(FCNTL, [file, F_SETFD, FD_CLOEXEC]);
            }
        }
    }
}

#[derive(PartialEq)]
enum Goes {
    On,
    OnElsewhere,
}

/// First of all: from here on it is the container that pays. v2: by a clone, which makes no other process of the node wait
/// (Linux 5.7). v1: by a write.
fn enter_groups(orders: &Orders) -> Result<Goes, Failure> {
    let entered = enter_group(orders)?;
    if entered == Goes::OnElsewhere {
        return Ok(entered);
    }
    for file in 0..orders.length(Number::Files) {
        checked(write(AT_FDCWD, orders.file(file), Line(c"0".as_ptr().cast())), Step::EnterGroup)?;
    }
    Ok(Goes::On)
}

fn enter_group(orders: &Orders) -> Result<Goes, Failure> {
    let groups = [orders.number(Number::Group), orders.number(Number::GroupOfInit)];
    let mut refused = 0;
    for group in groups.into_iter().filter(|group| *group != 0) {
        let mut arguments = [0_u64; 11];
        (arguments[0], arguments[10]) = (CLONE_INTO_CGROUP | CLONE_PARENT as u64, group - 1);
        // SAFETY: clone_args of its last version so far; as fork.
        refused = unsafe { call(CLONE3, [arguments.as_ptr().addr(), size_of_val(&arguments)]) };
        if matches!(refused, ENOSYS | E2BIG | EINVAL) {
            let file = Line(c"cgroup.procs".as_ptr().cast());
            refused = write(group as usize - 1, file, Line(c"0".as_ptr().cast()));
        } else if refused > 0 {
            orders.note(MOVED, refused);
            return Ok(Goes::OnElsewhere);
        }
        // Else the container has groups of its own below this one.
        if refused != EBUSY {
            break;
        }
    }
    checked(refused, Step::EnterGroup)?;
    Ok(Goes::On)
}

/// For the next exec, also of a child. In the node's own /proc: the container's may be anything.
fn label(orders: &Orders) -> Result<(), Failure> {
    let profile = orders.text(Text::AppArmor);
    // Since Linux 5.8 AppArmor has files of its own beside those of the first security module.
    match write_if_any("/proc/self/attr/apparmor/exec\0", profile, Step::SetLabel) {
        Err(Failure(_, ENOENT)) => write_if_any("/proc/self/attr/exec\0", profile, Step::SetLabel),
        answer => answer,
    }
}

fn set_limits(orders: &Orders) -> Result<(), Failure> {
    let first = NUMBERS + orders.length(Number::Groups);
    for limit in 0..orders.length(Number::Limits) {
        let at = |place| orders.at(first + 3 * limit + place);
        let limits = [at(1), at(2)];
        // SAFETY: the kernel reads two numbers.
        let set = unsafe { call(PRLIMIT64, [0, at(0) as usize, limits.as_ptr().addr(), 0]) };
        checked(set, Step::SetLimit)?;
    }
    Ok(())
}

/// Joins the namespaces of the container's init, all at once. Then nothing of the node's is open any more.
fn join(orders: &Orders) -> Result<(), Failure> {
    let (init, flags) = (orders.number(Number::Init) as usize, orders.number(Number::Namespaces) as usize);
    if flags != 0 {
        // SAFETY: no pointers.
        checked(unsafe { call(SETNS, [init, flags]) }, Step::Join)?;
    }
    // The table of files of the program's process has room for what is open now (Linux 5.9).
    // SAFETY: no pointers.
    unsafe { call(CLOSE_RANGE, [orders.number(Number::Notes) as usize + 1, u32::MAX as usize, 0]) };
    let groups = [orders.number(Number::Group), orders.number(Number::GroupOfInit)];
    for group in groups.into_iter().filter(|group| *group != 0) {
        close(group as usize - 1);
    }
    close(init);
    if flags & CLONE_NEWUSER != 0 {
        // SAFETY: no pointers.
        unsafe {
            checked(call(SETRESGID, [0, 0, 0]), Step::BecomeRoot)?;
            checked(call(SETRESUID, [0, 0, 0]), Step::BecomeRoot)?;
        }
        close_memory();
    }
    let keyring = orders.text(Text::Keyring);
    if !keyring.is_empty() {
        // SAFETY: the kernel reads the name.
        match unsafe { call(KEYCTL, [KEYCTL_JOIN_SESSION_KEYRING, keyring.0.addr()]) } {
            // A kernel without keyrings has nothing to keep apart.
            ENOSYS => {}
            answer => checked(answer, Step::MakeKeyring)?,
        }
    }
    Ok(())
}

/// The order is runc's: the directory may be one that only root reaches, or only the user.
fn become_user(orders: &Orders) -> Result<(), Failure> {
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

/// As runc: the program may open its streams by their names. Of a file system that is read-only, or of another user namespace, it may
/// not be.
fn own_streams(uid: usize) {
    for stream in 0..=2 {
        // SAFETY: no pointers. The group stays.
        match unsafe { call(FCHOWN, [stream, uid, usize::MAX]) } {
            EINVAL | EPERM | EROFS => {}
            _ => {}
        }
    }
}

/// HOME from the container's list of users, where the variables have none; `/` for a user who is not in it.
fn find_home(orders: &Orders) {
    let is_home = |line: &Line| line.begins_with(b"HOME=");
    let count = orders.length(Number::Variables);
    if (0..count).any(|variable| is_home(&orders.variable(variable))) {
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
    let (users, place) =
        unsafe { (core::slice::from_raw_parts(users, length), core::slice::from_raw_parts_mut(home, PATH_LONGEST)) };
    let found = home_of(orders.number(Number::Uid), users);
    let found = found.filter(|found| !found.is_empty() && found.len() < PATH_LONGEST - 6).unwrap_or(b"/");
    for (to, from) in place.iter_mut().zip(b"HOME=".iter().chain(found)) {
        *to = *from;
    }
    orders.add_variable(Line(home));
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

/// Returns only with an error. The container's own PATH is searched, in its absolute folders, as runc does.
fn execute(orders: &Orders) -> isize {
    let (arguments, variables) = (orders.arguments(), orders.variables());
    // SAFETY: there is at least one argument.
    let program = unsafe { *arguments };
    // SAFETY: both lists end with an empty pointer.
    let run = |path: Line| unsafe { call(EXECVE, [path.0.addr(), arguments.addr(), variables.addr()]) };
    if program.bytes().any(|byte| byte == b'/') {
        return run(program);
    }
    let count = orders.length(Number::Variables);
    let Some(folders) =
        (0..count).map(|variable| orders.variable(variable)).find(|line| line.begins_with(b"PATH="))
    else {
        return ENOENT;
    };
    let mut answer = ENOENT;
    let mut place = [0_u8; PATH_LONGEST];
    let mut length = 0;
    // SAFETY: skips the name.
    let folders = Line(unsafe { folders.0.add(5) });
    for byte in folders.bytes().chain([b':']) {
        if byte != b':' {
            if length < PATH_LONGEST {
                place[length] = byte;
            }
            length += 1;
            continue;
        }
        let whole = length.saturating_add(1 + program.bytes().count());
        if length > 0 && place[0] == b'/' && whole < PATH_LONGEST {
            let rest = [b'/'].into_iter().chain(program.bytes()).chain([0]);
            for (to, from) in place[length..].iter_mut().zip(rest) {
                *to = from;
            }
            match run(Line(place.as_ptr())) {
                ENOENT | ENOTDIR | ENAMETOOLONG => {}
                // Another folder may have one that can be executed.
                EACCES => answer = EACCES,
                refused => return refused,
            }
        }
        length = 0;
    }
    answer
}

impl Orders {
    fn read(file: usize) -> Result<Self, Failure> {
        let failed = |answer| Failure(Step::ReadOrders, answer);
        // SAFETY: the memory is this process's own from now on; the file stays as it is, for it is sealed.
        let (bytes, length) = unsafe {
            let length = call(LSEEK, [file, 0, SEEK_END]);
            if length < (8 * NUMBERS) as isize {
                return Err(failed(EINVAL));
            }
            let bytes = call(MMAP, [0, length as usize, PROT_READ_WRITE, MAP_PRIVATE, file, 0]);
            (bytes, length as usize)
        };
        if (-4095..0).contains(&bytes) {
            return Err(failed(bytes));
        }
        close(file);
        let numbers = bytes as *mut u64;
        let orders = Self { numbers, lines: core::ptr::null_mut() };
        let numbers_count =
            NUMBERS + orders.length(Number::Groups) + 3 * orders.length(Number::Limits);
        let (arguments, variables) = (orders.length(Number::Arguments), orders.length(Number::Variables));
        let before = TEXTS + orders.length(Number::Files);
        // Empty pointers behind either list, and a place for one more variable.
        let lines = map((before + arguments + variables + 3) * size_of::<Line>()).ok_or(failed(EINVAL))?;
        let orders = Self { lines: lines.cast(), ..orders };
        let mut text = (bytes as usize + 8 * numbers_count) as *const u8;
        let end = (bytes as usize + length) as *const u8;
        for place in 0..before + arguments + variables {
            let place = if place < before + arguments { place } else { place + 1 };
            // SAFETY: the place is within the map, and the text within the orders.
            unsafe {
                orders.lines.add(place).write(Line(text));
                while text < end && *text != 0 {
                    text = text.add(1);
                }
                if text >= end {
                    return Err(failed(EINVAL));
                }
                text = text.add(1);
            }
        }
        Ok(orders)
    }

    fn at(&self, place: usize) -> u64 {
        // SAFETY: the shim has written as many numbers as it says.
        unsafe { *self.numbers.add(place) }
    }

    fn number(&self, number: Number) -> u64 {
        self.at(number as usize)
    }

    fn length(&self, list: Number) -> usize {
        self.number(list) as usize
    }

    fn line(&self, place: usize) -> Line {
        // SAFETY: within the map.
        unsafe { *self.lines.add(place) }
    }

    fn text(&self, text: Text) -> Line {
        self.line(text as usize)
    }

    fn file(&self, file: usize) -> Line {
        self.line(TEXTS + file)
    }

    fn arguments(&self) -> *const Line {
        // SAFETY: within the map.
        unsafe { self.lines.add(TEXTS + self.length(Number::Files)) }
    }

    fn variables(&self) -> *const Line {
        // SAFETY: within the map; the empty pointer of the arguments comes before.
        unsafe { self.arguments().add(self.length(Number::Arguments) + 1) }
    }

    fn variable(&self, variable: usize) -> Line {
        // SAFETY: within the list.
        unsafe { *self.variables().add(variable) }
    }

    /// At the end, once.
    fn add_variable(&self, line: Line) {
        // SAFETY: there is a place for one more, and an empty pointer behind it.
        unsafe { self.variables().cast_mut().add(self.length(Number::Variables)).write(line) };
    }

    fn note(&self, kind: u32, number: isize) {
        let mut note = [0_u8; orders::NOTE];
        note[..4].copy_from_slice(&kind.to_ne_bytes());
        note[4..].copy_from_slice(&(number as i32).to_ne_bytes());
        // SAFETY: the kernel reads the note.
        unsafe { call(WRITE, [self.number(Number::Notes) as usize, note.as_ptr().addr(), note.len()]) };
    }
}

impl Line {
    fn bytes(self) -> impl Iterator<Item = u8> {
        // SAFETY: it ends with a NUL byte.
        (0..).map(move |place| unsafe { *self.0.add(place) }).take_while(|byte| *byte != 0)
    }

    fn is_empty(self) -> bool {
        self.bytes().next().is_none()
    }

    fn begins_with(self, beginning: &[u8]) -> bool {
        self.bytes().zip(beginning).filter(|(byte, wanted)| byte == *wanted).count() == beginning.len()
    }

    fn number(self) -> usize {
        self.bytes().fold(0, |sum, digit| sum * 10 + usize::from(digit.wrapping_sub(b'0')))
    }
}

fn checked(answer: isize, step: Step) -> Result<(), Failure> {
    if answer < 0 { Err(Failure(step, answer)) } else { Ok(()) }
}

fn prctl(option: usize, argument: usize, more: usize) -> isize {
    // SAFETY: pointers among the arguments are to constants.
    unsafe { call(PRCTL, [option, argument, more, 0, 0]) }
}

/// To other processes of the same user. The kernel opens it again with each change of the user where `fs.suid_dumpable` is 1.
fn close_memory() {
    prctl(PR_SET_DUMPABLE, 0, 0);
}

fn close(file: usize) {
    // SAFETY: no pointers.
    unsafe { call(CLOSE, [file]) };
}

/// Empty memory.
fn map(length: usize) -> Option<*mut u8> {
    // SAFETY: a new place.
    let place = unsafe {
        call(MMAP, [0, length, PROT_READ_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, usize::MAX, 0])
    };
    (!(-4095..0).contains(&place)).then_some(place as *mut u8)
}

fn write_if_any(path: &'static str, text: Line, step: Step) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    checked(write(AT_FDCWD, Line(path.as_ptr()), text), step)
}

/// Opens the file, which is below that folder, writes the text, closes it.
fn write(folder: usize, path: Line, text: Line) -> isize {
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

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(1)
}
