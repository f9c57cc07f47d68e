//! What waitid(2) shows of the shim's children.
//!
//! Only looks: what is dead stays so.

use std::io;
use std::time::{Duration, SystemTime};

use nix::unistd::Pid;

/// How and when a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// The exit status as containerd reports it: the process's own code, or 128 + the signal.
    pub code: u8,
    /// The signal that ended it, if one did.
    pub signal: Option<u8>,
    /// Wall clock time at which the shim saw the exit.
    pub at: SystemTime,
}

/// A child that waitid(2) shows.
pub(super) enum Seen {
    /// With the processor time that it has used, with that of the processes it waited for itself.
    Exited(Pid, Exit, Duration),
    /// It has stopped because it asked its parent to trace it: that is shown whatever the parent waits for.
    Traced(Pid),
}

/// Finds an exited child and leaves it a zombie, so that its pid stays taken until the exit is recorded.
pub(super) fn peek(which: libc::idtype_t, id: u32) -> io::Result<Option<Seen>> {
    // nix's waitid fails on real-time signals, which have no name in its Signal enum: hence libc.
    // SAFETY: siginfo_t and rusage are plain data for which all zeroes is a valid value.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // The raw system call, because libc's function leaves the usage out.
    // SAFETY: both are valid for the kernel to fill.
    let found = unsafe { libc::syscall(libc::SYS_waitid, which, id, &raw mut info, flags, &raw mut usage) };
    if found < 0 {
        return match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            error => Err(error),
        };
    }
    // SAFETY: waitid succeeded, so the child fields are set, or all zero when no child has exited.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    #[expect(clippy::disallowed_methods, reason = "the reaper is where an exit gets its time")]
    let at = SystemTime::now();
    // waitid gives the bare signal number or exit code (0 to 255): never more than 8 bits.
    let status = status as u8;
    let exit = match info.si_code {
        libc::CLD_KILLED | libc::CLD_DUMPED => Exit { code: 128 + status, signal: Some(status), at },
        libc::CLD_EXITED => Exit { code: status, signal: None, at },
        _ => return Ok(Some(Seen::Traced(Pid::from_raw(pid)))),
    };
    let time = |time: libc::timeval| {
        Duration::new(time.tv_sec.unsigned_abs(), 0) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok(Some(Seen::Exited(Pid::from_raw(pid), exit, time(usage.ru_utime) + time(usage.ru_stime))))
}

/// Whether it is a child of the shim, alive or not yet reaped: until the next await its number is no other process's.
pub fn is_our_child(pid: Pid) -> bool {
    // SAFETY: as in peek().
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid siginfo_t for the kernel to fill; WNOWAIT leaves the child as it is.
    unsafe { libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, &mut info, flags) == 0 }
}
