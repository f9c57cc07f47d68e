//! The program of a pod's sandbox: it keeps the pod's namespaces, reaps what is left to it where the containers share a pid
//! namespace, and ends at SIGTERM and SIGINT.
//!
//! `build.rs` links it without any library, and the shim carries it in its own file. A container that shares its pid
//! namespace can see it and may be hostile, so it has nothing (no file, no environment, no capability), and from its
//! third system call on it can do nothing but wait, reap and exit: the kernel refuses all other calls.
//!
//! Exit codes: 0 after a signal; 1 if the kernel refuses a call that it needs.

#![no_std]
#![no_main]

use core::arch::global_asm;
use core::panic::PanicInfo;

use calls::abi::{AUDIT_ARCH, EXIT_GROUP, PRCTL, RT_SIGPROCMASK, RT_SIGTIMEDWAIT, WAIT4};
use calls::{call, exit};

#[expect(dead_code, reason = "the other program makes more calls")]
mod calls;

const PR_SET_DUMPABLE: usize = 4;
const PR_SET_NAME: usize = 15;
const PR_SET_SECCOMP: usize = 22;
const PR_SET_NO_NEW_PRIVS: usize = 38;
const SECCOMP_MODE_FILTER: usize = 2;
const SIG_SETMASK: usize = 2;
const SIGINT: isize = 2;
const SIGTERM: isize = 15;
const WNOHANG: usize = 1;
/// The kernel's sigset_t: a bit for each of 64 signals.
const SIGSET_SIZE: usize = 8;
const EINTR: isize = -4;

#[cfg(target_arch = "x86_64")]
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "and rsp, -16", "call {main}", main = sym main);
#[cfg(target_arch = "aarch64")]
global_asm!(".globl _start", "_start:", "mov x29, xzr", "bl {main}", main = sym main);

/// `struct sock_filter`.
#[repr(C)]
struct Instruction(u16, u8, u8, u32);

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    length: u16,
    instructions: *const Instruction,
}

/// Load a word of `struct seccomp_data`.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
/// Return EPERM.
const REFUSE: u32 = 0x0005_0001;

/// Waiting for a signal, reaping, and the end. Everything else is refused, also every call of another architecture.
static FILTER: [Instruction; 8] = [
    Instruction(LOAD, 0, 0, 4),
    Instruction(JUMP_IF_EQUAL, 0, 4, AUDIT_ARCH),
    Instruction(LOAD, 0, 0, 0),
    Instruction(JUMP_IF_EQUAL, 3, 0, RT_SIGTIMEDWAIT),
    Instruction(JUMP_IF_EQUAL, 2, 0, WAIT4),
    Instruction(JUMP_IF_EQUAL, 1, 0, EXIT_GROUP),
    Instruction(RETURN, 0, 0, REFUSE),
    Instruction(RETURN, 0, 0, ALLOW),
];

extern "C" fn main() -> ! {
    let all_signals = u64::MAX;
    let all_signals = (&raw const all_signals).addr();
    let program = Program { length: FILTER.len() as u16, instructions: FILTER.as_ptr() };
    let prctl = |option, argument, more| {
        // SAFETY: pointers among the arguments are to constants and to `program`, which the kernel copies.
        unsafe { call(PRCTL, [option, argument, more, 0, 0]) }
    };
    // The name is for people; a debugger or a container with the same user may not look into this process.
    prctl(PR_SET_NAME, c"pause".as_ptr().addr(), 0);
    let mut refused = prctl(PR_SET_DUMPABLE, 0, 0) | prctl(PR_SET_NO_NEW_PRIVS, 1, 0);
    // Process 1 ignores signals that have no handler. Blocked ones, which it waits for, arrive.
    // SAFETY: the set outlives the call.
    refused |= unsafe { call(RT_SIGPROCMASK, [SIG_SETMASK, all_signals, 0, SIGSET_SIZE, 0]) };
    refused |= prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (&raw const program).addr());
    if refused != 0 {
        exit(1);
    }
    loop {
        // SAFETY: the set outlives the call; no answer but the number is asked for.
        match unsafe { call(RT_SIGTIMEDWAIT, [all_signals, 0, 0, SIGSET_SIZE, 0]) } {
            SIGINT | SIGTERM => exit(0),
            EINTR => {}
            error if error < 0 => exit(1),
            // SIGCHLD is one signal for many ends.
            // SAFETY: no status is asked for.
            _ => while unsafe { call(WAIT4, [usize::MAX, 0, WNOHANG, 0, 0]) } > 0 {},
        }
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    exit(1)
}
