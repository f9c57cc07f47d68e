//! The lock that the kernel has for all writes of `oom_score_adj`, kept by many writers.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use processes::helper_process;
use test_support::{run, within};
use threads::busy::RunQueue;
use tokio::time::Instant;

use super::*;
use crate::tests::running;
use oci_runtime::test_container::TestContainer;

const WRITERS: u32 = 1200;
/// More than the head's thread may be away, and shows that the lock was busy.
const LONG: Duration = Duration::from_millis(100);

/// Processes that write their own score again and again, as long as their parent is there.
fn write_scores() -> u8 {
    // SAFETY: only system calls, on memory of their own.
    unsafe {
        for _ in 0..WRITERS {
            if libc::fork() == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let file = libc::open(c"/proc/self/oom_score_adj".as_ptr(), libc::O_WRONLY);
                loop {
                    libc::pwrite(file, c"1000".as_ptr().cast(), 4, 0);
                }
            }
        }
        loop {
            libc::pause();
        }
    }
}

/// N8: what keeps the kernel's lock keeps a thread that has nothing else to do.
#[test]
fn n8_writers_of_oom_scores_do_not_take_this_threads_time() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = running(&test).await;
        let pid = created.process.pid();
        fs::write(format!("/proc/{pid}/oom_score_adj"), "1000").unwrap();
        let null = File::open("/dev/null").unwrap();
        assert!(null.as_fd().as_raw_fd() > 2);
        // SAFETY: the job makes only system calls.
        let writers =
            unsafe { helper_process::run(&test.reaper, c"podshim-test", &[null.as_fd()], write_scores) };
        let (writers, ended) = writers.unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let queue = RunQueue::of_this_thread();
        let (mut waited, mut away) = (Duration::ZERO, Duration::ZERO);
        let (began, mut score) = (Instant::now(), 1000);
        // Until one write has waited for long, or for a time: on a machine with few processors each of them takes a quarter of a second.
        while waited < LONG && began.elapsed() < Duration::from_secs(5) {
            score -= 1;
            let (begun, mut in_polls) = (Instant::now(), Duration::ZERO);
            let mut lowered = std::pin::pin!(cgroup.limit_oom_score_of(pid, score));
            let lowered = std::future::poll_fn(|context| {
                let (begun, queued) = (Instant::now(), queue.time());
                let result = lowered.as_mut().poll(context);
                // Not the time in which the writers had the processor.
                in_polls += begun.elapsed().saturating_sub(queue.time().saturating_sub(queued));
                result
            });
            lowered.await.unwrap();
            if begun.elapsed() > waited {
                (waited, away) = (begun.elapsed(), in_polls);
            }
        }
        drop(writers);
        within(ended).await;
        println!("one write took {waited:?}, this thread was away for {away:?}");
        assert!(waited > LONG * 2 / 5, "{waited:?} shows nothing");
        assert!(away < waited / 2, "away for {away:?} of {waited:?}");
        created.process.signal(processes::SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}
