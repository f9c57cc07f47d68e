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
    CLONE, EXECVE, FCNTL, KEYCTL, PRLIMIT64, SCHED_SETAFFINITY, SETNS, SETRESGID, SETRESUID, SETSID,
};
use calls::{CLONE3, CLOSE_RANGE, call, exit};
use form::{FAILED, MADE, MOVED, NUMBERS, Number, Step, Text};
use kernel::{
    AT_FDCWD, E2BIG, EACCES, EBUSY, EINVAL, ENAMETOOLONG, ENOENT, ENOSYS, ENOTDIR, Failure, Line,
    PATH_LONGEST, checked, close, close_memory, prctl, write, write_if_any,
};
use orders::Orders;
use user::become_user;

#[expect(dead_code, reason = "the other program makes other calls")]
mod calls;
#[expect(dead_code, reason = "the shim needs more of it")]
#[path = "exec/form.rs"]
mod form;
#[path = "exec/kernel.rs"]
mod kernel;
#[path = "exec/orders.rs"]
mod orders;
#[path = "exec/user.rs"]
mod user;

#[cfg(target_arch = "x86_64")]
global_asm!(
    ".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "and rsp, -16", "call {main}", main = sym main
);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "mov x0, sp", "bl {main}", main = sym main);

const F_SETFD: usize = 2;
const F_DUPFD_CLOEXEC: usize = 1030;
const FD_CLOEXEC: usize = 1;
const CLOSE_RANGE_CLOEXEC: usize = 4;
/// Of what the shim has open all is closed by the exec, but what it passes on; that has lower numbers.
const MOST_FILES: usize = 1024;
const CLONE_PARENT: usize = 0x8000;
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
const CLONE_NEWUSER: usize = 0x1000_0000;
const SIGCHLD: usize = 17;
const KEYCTL_JOIN_SESSION_KEYRING: usize = 1;

const PR_SET_NAME: usize = 15;

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
    use_all_processors();
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

/// Those that the container's groups allow, and not those of the node's services (runc 1.2 and later).
fn use_all_processors() {
    let all = [u8::MAX; 1024];
    // SAFETY: the kernel reads the set.
    unsafe { call(SCHED_SETAFFINITY, [0, all.len(), all.as_ptr().addr()]) };
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

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(1)
}
