//! The part of a thread's stack that is not in use, which the kernel keeps in memory for as long as the thread is there.

use std::ptr;

/// What is given back at the most: deeper calls are rare.
const DEPTH: usize = 128 * 1024;
/// What stays, for the calls that are made all the time.
const KEPT: usize = 8 * 1024;
const PAGE: usize = 4096;

/// Gives the pages below this call back to the kernel: futures are made on the stack, 70 kB of it for an operation, and each pod would
/// keep that. Does so on the main thread alone: below its stack there is nothing.
// Inlined, its variable could be anywhere in its caller's part of the stack.
#[inline(never)]
pub fn give_back() {
    // By the number of the call: the standard library declares `gettid` as one that may be missing, and linked with musl it is.
    // SAFETY: both take nothing and cannot fail.
    if unsafe { libc::syscall(libc::SYS_gettid) != libc::c_long::from(libc::getpid()) } {
        return;
    }
    let here = 0_u8;
    let end = ((&raw const here).addr() - KEPT) & !(PAGE - 1);
    // SAFETY: nothing that lives is below the stack's end, but for a signal handler's frame while it runs, which this call does not.
    // What fails, as where the stack has never been, changes nothing.
    unsafe { libc::madvise(ptr::without_provenance_mut(end - DEPTH), DEPTH, libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn deep(value: u8) -> usize {
        let room = std::hint::black_box([value; 64 * 1024]);
        room.iter().map(|byte| usize::from(*byte)).sum()
    }

    fn private_kb() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// In a child of a fork, whose only thread is its main one.
    #[test]
    fn what_a_deep_call_has_used_is_given_back_and_can_be_used_again() {
        // SAFETY: the child reads a file, allocates, whose lock the fork takes, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            private_kb();
            let before = private_kb();
            let sum = deep(1);
            let after = private_kb();
            give_back();
            let left = private_kb();
            let fails = [sum != 64 * 1024, after < before + 40, left + 40 > after, deep(2) != 2 * sum];
            let code = fails.iter().position(|fails| *fails).map_or(0, |number| number + 1);
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(i32::try_from(code).unwrap_or(9)) }
        }
        let mut status = 0;
        // SAFETY: a child of this test.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 0, "the number of what failed, from 1");
    }
}
