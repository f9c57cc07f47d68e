//! The reaper with real processes. Each test needs a process of its own (SIGCHLD and the subreaper attribute belong to
//! the process): run them with nextest.

use std::cell::Cell;

use test_support::{run, until, within};

use super::seen::peek;
use super::*;
use crate::process::{SignalDelivery, SignalNumber};

pub(super) fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

/// Spawns a shell that leaves `script` behind, and returns the orphan's pid.
///
/// The orphan waits until the shell is gone; otherwise the shell would reap it.
pub(super) async fn orphan(reaper: &Reaper, script: &str) -> Pid {
    let directory = tempfile::tempdir().unwrap();
    let pid_file = directory.path().join("pid");
    let script =
        format!("(while kill -0 $$ 2>/dev/null; do :; done; {script}) & echo $! > {}", pid_file.display());
    let child = reaper.spawn(&mut shell(&script)).unwrap();
    assert_eq!(within(child.exit).await.code, 0);
    Pid::from_raw(std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap())
}

#[test]
fn exit_codes_and_signals_are_reported_as_containerd_wants_them() {
    run(async {
        let reaper = Reaper::start().unwrap();
        for (script, code, signal) in
            [("exit 0", 0, None), ("exit 7", 7, None), ("exit 255", 255, None), ("kill -9 $$", 137, Some(9))]
        {
            let exit = within(reaper.spawn(&mut shell(script)).unwrap().exit).await;
            assert_eq!((exit.code, exit.signal), (code, signal), "{script}");
        }
        // A real-time signal has no name; nix's waitid fails on it.
        let exit = within(reaper.spawn(&mut shell("kill -40 $$")).unwrap().exit).await;
        assert_eq!((exit.code, exit.signal), (168, Some(40)));
    });
}

/// A pod is served between two spawns of one moment.
#[test]
fn spawns_of_one_moment_have_a_round_each() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let spawned = Rc::new(Cell::new(0));
        for _ in 0..10 {
            let (reaper, spawned) = (reaper.clone(), spawned.clone());
            tokio::task::spawn_local(async move {
                let _permit = reaper.spawn_permit().await;
                spawned.set(spawned.get() + 1);
            });
        }
        let mut before = 0;
        while before < 10 {
            tokio::task::yield_now().await;
            let now = spawned.get();
            assert!(now <= before + 1, "{} of them in one round", now - before);
            before = now;
        }
    });
}

#[test]
fn an_exit_before_adoption_is_kept_for_a_subscription() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let pid = orphan(&reaper, "exit 3").await;
        until(|| reaper.table.borrow().early_exits.contains_key(&pid)).await;
        let (process, exit) = reaper.adopt(&subscription, pid).unwrap();
        assert_eq!(within(exit).await.code, 3);
        assert!(!process.is_running());
        assert_eq!(process.signal(SignalNumber::KILL).unwrap(), SignalDelivery::AlreadyGone);
        // Only once.
        assert_eq!(reaper.adopt(&subscription, pid).unwrap_err().kind(), io::ErrorKind::NotFound);
    });
}

/// An exec that ends at once and leaves a child: its pid still names the child's session, and then the kernel does not
/// always answer that the process does not exist.
#[test]
fn an_exit_before_adoption_is_found_though_its_session_lives_on() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let pid = orphan(&reaper, "exec setsid sh -c 'sleep 1000 & exit 3'").await;
        until(|| reaper.table.borrow().early_exits.contains_key(&pid)).await;
        nix::sys::signal::killpg(pid, None).expect("its session lives on");
        let adopted = reaper.adopt(&subscription, pid);
        nix::sys::signal::killpg(pid, Signal::SIGKILL).unwrap();
        assert_eq!(within(adopted.unwrap().1).await.code, 3);
    });
}

#[test]
fn a_living_grandchild_is_adopted_and_its_exit_delivered() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let pid = orphan(&reaper, "exec sleep 1000").await;
        let (process, exit) = reaper.adopt(&subscription, pid).unwrap();
        drop(subscription);
        assert!(process.is_running());
        assert_eq!(process.signal(SignalNumber::TERM).unwrap(), SignalDelivery::Delivered);
        assert_eq!(within(exit).await.signal, Some(15));
        assert_eq!(process.signal(SignalNumber::TERM).unwrap(), SignalDelivery::AlreadyGone);
    });
}

#[test]
fn a_double_forked_process_that_ends_at_once_is_not_lost() {
    run(async {
        let reaper = Reaper::start().unwrap();
        for round in 0..20 {
            let subscription = reaper.subscribe();
            let pid = orphan(&reaper, "exit 5").await;
            let (_process, exit) = reaper.adopt(&subscription, pid).unwrap();
            assert_eq!(within(exit).await.code, 5, "round {round}");
        }
    });
}

#[test]
fn processes_that_are_not_ours_are_refused() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let parent = nix::unistd::getppid();
        assert_eq!(reaper.adopt(&subscription, parent).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let child = reaper.spawn(&mut shell("exec sleep 1000")).unwrap();
        let again = reaper.adopt(&subscription, child.process.pid()).unwrap_err();
        assert!(again.to_string().contains("already belongs"), "{again}");
        child.process.signal(SignalNumber::KILL).unwrap();
        within(child.exit).await;
    });
}

#[test]
fn coalesced_signals_of_many_children_lose_none() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let children: Vec<_> = (0..100)
            .map(|number| (number, reaper.spawn(&mut shell(&format!("exit {number}"))).unwrap()))
            .collect();
        for (number, child) in children {
            assert_eq!(within(child.exit).await.code, number);
        }
        assert!(reaper.table.borrow().watched.is_empty());
    });
}

#[test]
fn orphans_are_reaped_and_forgotten() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let pid = orphan(&reaper, "exit 0").await;
        until(|| Process::open(pid).is_err()).await;
        let subscription = reaper.subscribe();
        assert_eq!(reaper.adopt(&subscription, pid).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(reaper.table.borrow().early_exits.is_empty());
    });
}

#[test]
fn early_exits_go_with_the_last_subscription() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let (first, second) = (reaper.subscribe(), reaper.subscribe());
        let pid = orphan(&reaper, "exit 0").await;
        until(|| reaper.table.borrow().early_exits.contains_key(&pid)).await;
        drop(first);
        assert!(reaper.table.borrow().early_exits.contains_key(&pid));
        drop(second);
        assert!(reaper.table.borrow().early_exits.is_empty());
    });
}

#[test]
fn a_held_number_is_not_freed_and_its_exit_is_known() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let held = reaper.hold_pids();
        let pid = orphan(&reaper, "exit 3").await;
        until(|| reaper.table.borrow().early_exits.contains_key(&pid)).await;
        let (_, exit) = reaper.adopt(&subscription, pid).unwrap();
        assert_eq!(within(exit).await.code, 3);
        assert!(Process::open(pid).is_ok());
        drop(held);
        until(|| Process::open(pid).is_err()).await;
    });
}

/// DESIGN §6: the processor time of commands is measured, with that of their children.
#[test]
fn the_processor_time_of_commands_is_known() {
    run(async {
        let reaper = Reaper::start().unwrap();
        assert_eq!(reaper.processor_time(), std::time::Duration::ZERO);
        let spin = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        within(reaper.spawn(&mut shell(&format!("({spin}); {spin}"))).unwrap().exit).await;
        until(|| !reaper.processor_time().is_zero()).await;
        let used = reaper.processor_time();
        assert!((10..5000).contains(&used.as_millis()), "{used:?}");
        let probes = reaper.charged_to(Charge::Probes);
        within(probes.spawn(&mut shell(spin)).unwrap().exit).await;
        until(|| reaper.processor_time() > used).await;
        assert_eq!(reaper.processor_time_for(Charge::Requests), used);
        assert_eq!(used + reaper.processor_time_for(Charge::Probes), reaper.processor_time());
    });
}

/// What an exec does before it is in its cgroup is work of its command, also if it ends at once.
#[test]
fn the_beginning_of_an_exec_counts_as_its_commands() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let probes = reaper.charged_to(Charge::Probes);
        let spin = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        for then in ["exit 3", "exec sleep 1000"] {
            let before = reaper.processor_time_for(Charge::Probes);
            let subscription = reaper.subscribe();
            let pid = orphan(&reaper, &format!("{spin}; {then}")).await;
            until(|| reaper.table.borrow().early_exits.contains_key(&pid) || program(pid) == "sleep").await;
            let _adopted = probes.adopt_exec(&subscription, pid).unwrap();
            let used = reaper.processor_time_for(Charge::Probes) - before;
            assert!((10..5000).contains(&used.as_millis()), "{then}: {used:?}");
            let _ = nix::sys::signal::kill(pid, Signal::SIGKILL);
        }
    });
}

fn program(pid: Pid) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

#[test]
fn a_dropped_watch_does_not_disturb_others() {
    run(async {
        let reaper = Reaper::start().unwrap();
        drop(reaper.spawn(&mut shell("exit 1")).unwrap().exit);
        for _ in 0..3 {
            within(reaper.spawn(&mut shell("exit 0")).unwrap().exit).await;
        }
        until(|| reaper.table.borrow().watched.is_empty()).await;
    });
}

#[test]
fn the_change_of_program_is_seen_and_so_is_an_exit_before_it() {
    use crate::process::ExecOutcome;
    run(async {
        let reaper = Reaper::start().unwrap();
        let soon = || tokio::time::Instant::now() + test_support::DEADLINE;
        let directory = tempfile::tempdir().unwrap();
        let gate = test_support::make_fifo(directory.path(), "gate");
        let open_gate = || std::fs::OpenOptions::new().read(true).write(true).open(&gate).unwrap();
        let held = open_gate();

        let child = reaper.spawn(&mut shell(&format!("read line < {gate}; exec sleep 1000"))).unwrap();
        until(|| child.report.is_complete()).await;
        let before = child.process.executable().unwrap();
        let short = tokio::time::Instant::now() + std::time::Duration::from_millis(20);
        assert_eq!(child.process.wait_for_exec(before, short).await, ExecOutcome::TimedOut);
        std::io::Write::write_all(&mut &held, b"go\n").unwrap();
        assert_eq!(child.process.wait_for_exec(before, soon()).await, ExecOutcome::Executed);
        child.process.signal(SignalNumber::KILL).unwrap();
        within(child.exit).await;

        let child = reaper.spawn(&mut shell(&format!("read line < {gate}; exit 0"))).unwrap();
        until(|| child.report.is_complete()).await;
        let before = child.process.executable().unwrap();
        std::io::Write::write_all(&mut &held, b"go\n").unwrap();
        assert_eq!(child.process.wait_for_exec(before, soon()).await, ExecOutcome::Exited);
    });
}

/// It asks its parent to trace it and sends itself a signal that it handles, again and again; then it waits for SIGTERM.
fn traced(times: u32) -> Command {
    let mut command = Command::new("python3");
    command.arg("-c").arg(format!(
        r#"
import ctypes, os, signal, sys
seen = 0
def count(*_):
    global seen
    seen += 1
signal.signal(signal.SIGUSR1, count)
signal.signal(signal.SIGTERM, lambda *_: os._exit(3))
libc = ctypes.CDLL(None)
for _ in range({times}):
    libc.ptrace(0, 0, 0, 0)
    os.kill(os.getpid(), signal.SIGUSR1)
if seen != {times}: os._exit(4)
libc.ptrace(0, 0, 0, 0)
print("asked", flush=True)
while True: signal.pause()
"#
    ));
    command
}

/// A process that asks to be traced has not ended when it stops at a signal, and gets that signal. waitid(2) shows such a stop to the
/// parent like an exit.
#[test]
fn a_process_that_asks_to_be_traced_gets_its_signals_and_has_not_ended() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("output");
        let mut command = traced(50);
        command.stdout(std::fs::File::create(&path).unwrap());
        let mut child = reaper.spawn(&mut command).unwrap();
        let asked = until(|| std::fs::read_to_string(&path).is_ok_and(|output| output == "asked\n"));
        tokio::select! {
            () = asked => {}
            exit = &mut child.exit => panic!("{exit:?}"),
        }
        child.process.signal(SignalNumber::TERM).unwrap();
        assert_eq!(within(child.exit).await.code, 3);
    });
}

/// What a container may do to its parent without an end: children that are the shim's (`CLONE_PARENT`) and end at once.
fn make_siblings() -> u8 {
    loop {
        // SAFETY: as fork(2), without memory that is shared.
        let pid = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) };
        if pid == 0 {
            // SAFETY: ends the process at once.
            unsafe { libc::_exit(0) };
        }
    }
}

/// The same with one child that stops and goes on.
fn stop_a_sibling() -> u8 {
    // SAFETY: as above.
    let pid = unsafe { libc::syscall(libc::SYS_clone, libc::CLONE_PARENT | libc::SIGCHLD, 0, 0, 0, 0) };
    let pid = libc::pid_t::try_from(pid).unwrap_or_default();
    loop {
        // SAFETY: only numbers are passed. With SIGKILL to the parent, the child's death signal comes.
        unsafe {
            match pid {
                0 => drop((libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL), libc::pause())),
                _ => drop((libc::kill(pid, libc::SIGSTOP), libc::kill(pid, libc::SIGCONT))),
            }
        }
    }
}

/// In a storm of children and of their stops an exit that a caller waits for is seen at once, and afterwards nothing is left of it. What
/// it costs is a test's with a shim, whose first thread has the reaper and the signals.
#[test]
fn a_storm_of_children_delays_no_exit_and_leaves_nothing() {
    for storm in [make_siblings, stop_a_sibling] {
        run(async {
            let reaper = Reaper::start().unwrap();
            let null = std::fs::File::open("/dev/null").unwrap();
            // SAFETY: the jobs make only system calls.
            let stormy = unsafe {
                crate::helper_process::run(
                    &reaper,
                    c"podshim-storm",
                    &[std::os::fd::AsFd::as_fd(&null)],
                    storm,
                )
            };
            let (helper, ended) = stormy.unwrap();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let begun = tokio::time::Instant::now();
            let mut longest = Duration::ZERO;
            while begun.elapsed() < Duration::from_secs(2) {
                let child = reaper.spawn(&mut shell("exec sleep 1000")).unwrap();
                tokio::time::sleep(Duration::from_millis(50)).await;
                child.process.signal(SignalNumber::KILL).unwrap();
                let killed = tokio::time::Instant::now();
                within(child.exit).await;
                longest = longest.max(killed.elapsed());
            }
            drop(helper);
            within(ended).await;
            // What the storm has left is not in the way for long.
            let (stopped, table) = (tokio::time::Instant::now(), &reaper.table);
            until(|| table.borrow().recorded.is_empty() && matches!(peek(libc::P_ALL, 0), Ok(None))).await;
            println!(
                "an exit was seen after {longest:?} at the latest; the rest took {:?}",
                stopped.elapsed()
            );
            assert!(longest < Duration::from_millis(150), "{longest:?}");
        });
    }
}
