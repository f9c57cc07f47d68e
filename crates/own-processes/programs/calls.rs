//! System calls without a library, for the programs beside.

use core::arch::asm;

#[cfg(target_arch = "x86_64")]
pub mod abi {
    pub const WRITE: u32 = 1;
    pub const CLOSE: u32 = 3;
    pub const LSEEK: u32 = 8;
    pub const MMAP: u32 = 9;
    pub const RT_SIGPROCMASK: u32 = 14;
    pub const CLONE: u32 = 56;
    pub const EXECVE: u32 = 59;
    pub const FCNTL: u32 = 72;
    pub const WAIT4: u32 = 61;
    pub const GETCWD: u32 = 79;
    pub const CHDIR: u32 = 80;
    pub const FCHOWN: u32 = 93;
    pub const UMASK: u32 = 95;
    pub const SETSID: u32 = 112;
    pub const SCHED_SETAFFINITY: u32 = 203;
    pub const STATX: u32 = 332;
    pub const SETGROUPS: u32 = 116;
    pub const SETRESUID: u32 = 117;
    pub const SETRESGID: u32 = 119;
    pub const CAPSET: u32 = 126;
    pub const RT_SIGTIMEDWAIT: u32 = 128;
    pub const PRCTL: u32 = 157;
    pub const READ: u32 = 0;
    pub const EXIT_GROUP: u32 = 231;
    pub const KEYCTL: u32 = 250;
    pub const OPENAT: u32 = 257;
    pub const PRLIMIT64: u32 = 302;
    pub const SETNS: u32 = 308;
    /// `AUDIT_ARCH_X86_64`.
    pub const AUDIT_ARCH: u32 = 0xc000_003e;
}

#[cfg(target_arch = "aarch64")]
pub mod abi {
    pub const GETCWD: u32 = 17;
    pub const FCNTL: u32 = 25;
    pub const CHDIR: u32 = 49;
    pub const FCHOWN: u32 = 55;
    pub const OPENAT: u32 = 56;
    pub const CLOSE: u32 = 57;
    pub const LSEEK: u32 = 62;
    pub const READ: u32 = 63;
    pub const WRITE: u32 = 64;
    pub const CAPSET: u32 = 91;
    pub const EXIT_GROUP: u32 = 94;
    pub const RT_SIGPROCMASK: u32 = 135;
    pub const RT_SIGTIMEDWAIT: u32 = 137;
    pub const SETRESUID: u32 = 147;
    pub const SETRESGID: u32 = 149;
    pub const SCHED_SETAFFINITY: u32 = 122;
    pub const SETSID: u32 = 157;
    pub const STATX: u32 = 291;
    pub const SETGROUPS: u32 = 159;
    pub const UMASK: u32 = 166;
    pub const PRCTL: u32 = 167;
    pub const KEYCTL: u32 = 219;
    pub const CLONE: u32 = 220;
    pub const EXECVE: u32 = 221;
    pub const MMAP: u32 = 222;
    pub const WAIT4: u32 = 260;
    pub const PRLIMIT64: u32 = 261;
    pub const SETNS: u32 = 268;
    /// `AUDIT_ARCH_AARCH64`.
    pub const AUDIT_ARCH: u32 = 0xc000_00b7;
}

/// `clone3`, with one number for all architectures.
pub const CLONE3: u32 = 435;
/// As above.
pub const CLOSE_RANGE: u32 = 436;

/// A system call with the arguments that it has; returns what the kernel does.
///
/// # Safety
/// As the call's own.
#[cfg(target_arch = "x86_64")]
pub unsafe fn call<const COUNT: usize>(number: u32, arguments: [usize; COUNT]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = padded(arguments);
    // SAFETY: the kernel clobbers rcx and r11 alone, and what the caller passes.
    unsafe {
        asm!(
            "syscall", inlateout("rax") number as isize => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") f, lateout("rcx") _, lateout("r11") _, options(nostack)
        );
    }
    result
}

/// As above.
///
/// # Safety
/// As the call's own.
#[cfg(target_arch = "aarch64")]
pub unsafe fn call<const COUNT: usize>(number: u32, arguments: [usize; COUNT]) -> isize {
    let result: isize;
    let [a, b, c, d, e, f] = padded(arguments);
    // SAFETY: the kernel clobbers nothing but the result and what the caller passes.
    unsafe {
        asm!(
            "svc 0", in("x8") number as usize, inlateout("x0") a => result, in("x1") b, in("x2") c, in("x3") d,
            in("x4") e, in("x5") f, options(nostack)
        );
    }
    result
}

fn padded<const COUNT: usize>(arguments: [usize; COUNT]) -> [usize; 6] {
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    all
}

pub fn exit(code: usize) -> ! {
    loop {
        // SAFETY: the process ends.
        unsafe { call(abi::EXIT_GROUP, [code]) };
    }
}
