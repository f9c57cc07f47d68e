//! Programs of the node that may not take longer than a limit.
//!
//! Owns the wait for them. A program that is late is killed, and so is one that still runs when a signal arrives.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use crate::signals::{Signals, WaitResult};

/// For a program that usually ends at once. It may wait for a service that hangs.
const USUAL_LIMIT: Duration = Duration::from_secs(30);
/// How often to see whether it has ended: at first, and later.
const FIRST_CHECK: Duration = Duration::from_millis(1);
const CHECK: Duration = Duration::from_millis(50);

/// How long to wait for a program.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// At most so long.
    pub limit: Duration,
    /// And not after one of these, if the command has taken them. Else they end the command.
    pub signals: Option<&'a Signals>,
}

impl<'a> Bound<'a> {
    /// For a program that usually ends at once.
    pub fn usual(signals: Option<&'a Signals>) -> Self {
        Self { limit: USUAL_LIMIT, signals }
    }
}

/// Why a wait for a program is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The program has ended.
    Ended(ExitStatus),
    /// It is late.
    Late,
    /// A signal has arrived.
    BySignal,
}

/// Runs a program.
///
/// # Errors
/// The system's error.
#[expect(
    clippy::disallowed_methods,
    reason = "the reaper and the clock are the shim's; this is another program"
)]
/// Runs the program until it ends, or until the bound or a signal ends it.
///
/// # Errors
/// The program cannot be started or waited for.
pub fn run(command: &mut Command, bound: Bound<'_>) -> io::Result<WaitEnd> {
    let begin = Instant::now();
    let mut running = Running { child: command.spawn()? };
    let mut pause = FIRST_CHECK;
    loop {
        if let Some(status) = running.child.try_wait()? {
            return Ok(WaitEnd::Ended(status));
        }
        let left = bound.limit.saturating_sub(begin.elapsed());
        if left.is_zero() {
            return Ok(WaitEnd::Late);
        }
        match bound.signals {
            Some(signals) if signals.wait(left.min(pause))? == WaitResult::BySignal => {
                return Ok(WaitEnd::BySignal);
            }
            Some(_) => {}
            None => thread::sleep(left.min(pause)),
        }
        pause = CHECK.min(pause * 2);
    }
}

/// A program that ends with this value.
struct Running {
    child: Child,
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has the command's signal mask, so no other signal would end it. Where the kernel cannot end it at once, it is
        // reaped when the command ends.
        let _ = self.child.kill();
        let _ = self.child.try_wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> WaitEnd {
        let mut command = Command::new("sh");
        run(command.args(["-c", script]), Bound { limit, signals: None }).expect("it runs")
    }

    #[test]
    fn a_program_that_is_late_is_killed() {
        let directory = tempfile::tempdir().expect("a directory");
        let pid = directory.path().join("pid");
        let script = format!("echo $$ >{} && exec sleep 1000", pid.display());
        assert_eq!(shell(&script, Duration::from_secs(3)), WaitEnd::Late);
        let pid = std::fs::read_to_string(pid).expect("it has run within 3 s");
        let stat = format!("/proc/{}/stat", pid.trim());
        let runs = || std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
        // The kernel may need a moment for the kill.
        for _ in 0..1000 {
            if !runs() {
                return;
            }
            thread::sleep(CHECK);
        }
        panic!("it still runs");
    }

    #[test]
    fn a_program_within_its_limit_gives_its_exit_code() {
        let WaitEnd::Ended(status) = shell("exit 7", Duration::from_secs(100)) else {
            panic!("it is not late")
        };
        assert_eq!(status.code(), Some(7));
    }
}
