//! One traced thread: ptrace(2) itself.

use std::cell::Cell;
use std::io;
use std::mem;

use anyhow::{Context, Result, bail};

/// Where a thread has stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// Before a call.
    Entry { number: i64, arguments: [u64; 6] },
    /// After it.
    Exit { value: i64 },
}

/// A thread that this thread traces. It goes on untraced when this thread ends.
#[derive(Debug)]
pub(super) struct Tracee {
    pid: libc::pid_t,
    /// What lets it go on, and with which signal: none while it runs.
    held: Cell<Option<(libc::c_uint, libc::c_int)>>,
}

impl Tracee {
    /// # Errors
    /// The kernel's: it has ended, or this process may not trace it.
    pub(super) fn seize(pid: libc::pid_t) -> Result<Self> {
        request(libc::PTRACE_SEIZE, pid, 0, libc::PTRACE_O_TRACESYSGOOD as usize).context("PTRACE_SEIZE")?;
        request(libc::PTRACE_INTERRUPT, pid, 0, 0).context("PTRACE_INTERRUPT")?;
        Ok(Self { pid, held: Cell::new(None) })
    }

    pub(super) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// The next call; `None` at the thread's end.
    pub(super) fn next(&self) -> Result<Option<Stop>> {
        loop {
            if let Some((how, signal)) = self.held.take()
                && let Err(error) = request(how, self.pid, 0, usize::try_from(signal)?)
                && error.raw_os_error() != Some(libc::ESRCH)
            {
                return Err(error).context("PTRACE_SYSCALL");
            }
            let mut status = 0;
            // SAFETY: the kernel writes one number.
            if unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } < 0 {
                let error = io::Error::last_os_error();
                match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::ECHILD) => return Ok(None),
                    _ => return Err(error).context("waitpid"),
                }
            }
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                return Ok(None);
            }
            let signal = libc::WSTOPSIG(status);
            let is_event = status >> 16 == libc::PTRACE_EVENT_STOP;
            let is_of_a_group = is_event && signal != libc::SIGTRAP;
            self.held.set(Some(match signal {
                _ if is_of_a_group => (libc::PTRACE_LISTEN, 0),
                _ if is_event || signal == libc::SIGTRAP | 0x80 => (libc::PTRACE_SYSCALL, 0),
                signal => (libc::PTRACE_SYSCALL, signal),
            }));
            if signal == libc::SIGTRAP | 0x80
                && let Some(stop) = self.call()?
            {
                return Ok(Some(stop));
            }
        }
    }

    fn call(&self) -> Result<Option<Stop>> {
        // SAFETY: plain data, for which all zeroes is a valid value.
        let mut info: libc::ptrace_syscall_info = unsafe { mem::zeroed() };
        let length = mem::size_of_val(&info);
        match request(libc::PTRACE_GET_SYSCALL_INFO, self.pid, length, (&raw mut info).expose_provenance()) {
            Ok(()) => {}
            // Killed meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(error).context("PTRACE_GET_SYSCALL_INFO"),
        }
        // SAFETY: `op` says which of the union's parts the kernel has written.
        Ok(unsafe {
            match info.op {
                libc::PTRACE_SYSCALL_INFO_ENTRY => {
                    let entry = info.u.entry;
                    Some(Stop::Entry { number: entry.nr.cast_signed(), arguments: entry.args })
                }
                libc::PTRACE_SYSCALL_INFO_EXIT => Some(Stop::Exit { value: info.u.exit.sval }),
                libc::PTRACE_SYSCALL_INFO_NONE => None,
                other => bail!("a stop of kind {other}"),
            }
        })
    }

    /// What is in its memory at `address`, as far as it is there.
    pub(super) fn memory(&self, address: u64, length: usize) -> Vec<u8> {
        const PAGE: usize = 4096;
        let Ok(address) = usize::try_from(address) else { return Vec::new() };
        let mut bytes = vec![0u8; length];
        let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
        // The kernel reads a piece as a whole or not at all, and a text may end where the memory does.
        let first = length.min(PAGE - address % PAGE);
        let piece =
            |from: usize, iov_len| libc::iovec { iov_base: std::ptr::without_provenance_mut(from), iov_len };
        let remote = [piece(address, first), piece(address + first, length - first)];
        // SAFETY: `local` is memory of this function; the kernel checks what is remote.
        let read = unsafe { libc::process_vm_readv(self.pid, &raw const local, 1, remote.as_ptr(), 2, 0) };
        bytes.truncate(usize::try_from(read).unwrap_or_default());
        bytes
    }

    /// The text at `address`, which ends with a 0.
    pub(super) fn text(&self, address: u64) -> String {
        let bytes = self.memory(address, 512);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }

    /// What a descriptor of its is, as `/proc` says it; empty for one that is not open.
    pub(super) fn descriptor(&self, number: u64) -> String {
        // The upper half of a register is not a descriptor's.
        let number = (number as u32).cast_signed();
        let link = std::fs::read_link(format!("/proc/{0}/task/{0}/fd/{number}", self.pid));
        link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
    }
}

fn request(what: libc::c_uint, pid: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    let pointer = std::ptr::with_exposed_provenance_mut::<libc::c_void>;
    // SAFETY: the only request here whose `data` is memory is PTRACE_GET_SYSCALL_INFO, with as many bytes as `address` says. (Its memory
    // outlives the call.)
    match unsafe { libc::ptrace(what, pid, pointer(address), pointer(data)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
