//! What a child has, and hears, until it executes its program.

use std::io::{Read, Write};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use test_support::{run, until, within};

use super::*;
use crate::reaper::Reaper;
use crate::reaper::seen::peek;
use crate::reaper::tests::shell;

/// The head serves its pod while a child does not get to its program.
#[test]
fn a_command_that_waits_before_its_exec_does_not_keep_this_thread() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let (mut gate, opener) = std::io::pipe().unwrap();
        let mut command = shell("exit 4");
        // SAFETY: one system call. The closure has the only copy of the reading end that is read.
        unsafe { command.pre_exec(move || gate.read_exact(&mut [0])) };
        let mut child = reaper.spawn(&mut command).unwrap();
        assert!(tokio::time::timeout(Duration::from_millis(50), &mut child.exit).await.is_err());
        (&opener).write_all(b"1").unwrap();
        assert_eq!(within(child.exit).await.code, 4);
        assert!(child.report.failure().is_none());
    });
}

#[test]
fn a_missing_binary_is_an_error_and_leaves_no_zombie() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let child = reaper.spawn(&mut Command::new("/nonexistent")).unwrap();
        assert_eq!(within(child.exit).await.code, 1);
        assert_eq!(child.report.failure().unwrap().kind(), io::ErrorKind::NotFound);
        until(|| reaper.table.borrow().recorded.is_empty()).await;
        assert!(reaper.table.borrow().watched.is_empty());
        assert!(matches!(peek(libc::P_ALL, 0), Ok(None)));
    });
}

#[test]
fn children_do_not_inherit_ignored_or_blocked_signals() {
    run(async {
        let reaper = Reaper::start().unwrap();
        for signal in [libc::SIGPIPE, 40] {
            // SAFETY: ignoring a signal installs no handler.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGUSR1);
        blocked.thread_block().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let status = directory.path().join("status");
        let mut command = Command::new("cat");
        command.arg("/proc/self/status").stdout(std::fs::File::create(&status).unwrap());
        within(reaper.spawn(&mut command).unwrap().exit).await;
        let status = std::fs::read_to_string(status).unwrap();
        for field in ["SigBlk", "SigIgn"] {
            let line = status.lines().find_map(|line| line.strip_prefix(&format!("{field}:\t"))).unwrap();
            // 32 and 33 belong to libc; the test's parent may have left them in any state.
            let reserved = 0b11 << 31;
            assert_eq!(u64::from_str_radix(line, 16).unwrap() & !reserved, 0, "{field}");
        }
    });
}

#[test]
fn children_get_huge_pages_although_the_shim_has_none() {
    run(async {
        let enabled = |status: &str| {
            status.lines().find_map(|line| line.strip_prefix("THP_enabled:")).unwrap().trim().to_owned()
        };
        crate::process::disable_huge_pages().unwrap();
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("status");
        let mut command = Command::new("cat");
        command.arg("/proc/self/status").stdout(std::fs::File::create(&path).unwrap());
        within(reaper.spawn(&mut command).unwrap().exit).await;
        assert_eq!(enabled(&std::fs::read_to_string(path).unwrap()), "1");
        assert_eq!(enabled(&std::fs::read_to_string("/proc/self/status").unwrap()), "0");
    });
}

#[test]
fn children_keep_the_limit_of_open_files_that_the_shim_raises() {
    run(async {
        let limit = || {
            let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
            let line =
                limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap().to_owned();
            line.split_whitespace().map(str::to_owned).take(2).collect::<Vec<_>>()
        };
        let hard = limit()[1].clone();
        let lower = libc::rlimit { rlim_cur: 300, rlim_max: hard.parse().unwrap() };
        // SAFETY: the kernel reads one rlimit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &lower) }, 0);
        crate::process::use_all_open_files().unwrap();
        assert_eq!(limit(), [hard.as_str(), &hard]);
        let reaper = Reaper::start().unwrap();
        let exit = within(reaper.spawn(&mut shell("test $(ulimit -Sn) = 300")).unwrap().exit).await;
        assert_eq!(exit.code, 0);
    });
}
