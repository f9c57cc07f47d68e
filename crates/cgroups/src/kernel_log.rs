//! What the kernel's log says of a process that is gone.
//!
//! Only reads, and only when no control group can tell any more: the log is the whole node's.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;

use nix::libc;
use nix::unistd::Pid;

/// The longest record (`CONSOLE_EXT_LOG_MAX`): a shorter buffer makes the read fail.
const LONGEST_RECORD: usize = 8192;

/// More than the log holds. A log that is written as fast as it is read has no end.
const MOST_RECORDS: usize = 1 << 16;

/// Whether the kernel has killed a process because its control group, or the node, had no memory left. Where the log cannot
/// be read, or has other numbers for processes (in a pid namespace of the node's own), no.
pub(super) fn has_killed_for_memory(pid: Pid) -> bool {
    let log = File::options().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
    log.is_ok_and(|log| names_victim(log, pid))
}

/// Reads the log to its end, one record a read: milliseconds.
fn names_victim(mut log: impl Read, pid: Pid) -> bool {
    let words = format!("of memory: Killed process {pid} (");
    let mut record = [0; LONGEST_RECORD];
    for _ in 0..MOST_RECORDS {
        match log.read(&mut record) {
            Ok(0) => return false,
            Ok(length) if String::from_utf8_lossy(&record[..length]).contains(&words) => return true,
            Ok(_) => {}
            // The kernel has written over the next record; the one after it follows.
            Err(error) if [ErrorKind::BrokenPipe, ErrorKind::Interrupted].contains(&error.kind()) => {}
            Err(_) => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;

    use super::*;

    /// As /dev/kmsg: each read is one record, or an error.
    struct Log(VecDeque<io::Result<&'static str>>);

    impl Read for Log {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.0
                .pop_front()
                .unwrap_or(Err(ErrorKind::WouldBlock.into()))
                .and_then(|text| text.as_bytes().read(buffer))
        }
    }

    /// A log without an end.
    struct Flood;

    impl Read for Flood {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            b"6,1,1,-;x\n".as_slice().read(buffer)
        }
    }

    #[test]
    fn the_kernels_log_names_whom_it_killed() {
        let log = || {
            Log(VecDeque::from([
                Ok(
                    "6,86508,17034823700,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=pod-member,pid=168350,uid=0\n",
                ),
                Err(ErrorKind::BrokenPipe.into()),
                Ok(
                    "3,86510,17034823839,-;Memory cgroup out of memory: Killed process 16835 (pod-member) total-vm:66600kB\n",
                ),
            ]))
        };
        for (pid, is_victim) in [(16835, true), (1683, false), (6835, false), (168_350, false)] {
            assert_eq!(names_victim(log(), Pid::from_raw(pid)), is_victim, "{pid}");
        }
        assert!(!names_victim(Flood, Pid::from_raw(1)));
    }
}
