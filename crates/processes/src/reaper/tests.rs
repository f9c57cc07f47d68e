//! The reaper with real processes. Each test needs a process of its own (SIGCHLD and the subreaper attribute belong to
//! the process): run them with nextest.

use std::cell::Cell;
use std::io::{Read, Write};

use test_support::{run, until, within};

use super::seen::peek;
use super::*;
use crate::process::{SignalDelivery, SignalNumber};

fn shell(script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    command
}

/// Spawns a shell that leaves `script` behind, and returns the orphan's pid.
///
/// The orphan waits until the shell is gone; otherwise the shell would reap it.
async fn orphan(reaper: &Reaper, script: &str) -> Pid {
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

/// A process that looks at as many names below /proc as it may have files, and then does `end`.
async fn reads_many_names(reaper: &Reaper, end: &str) -> Pid {
    let script = r#"
import os, resource, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null = os.open("/dev/null", os.O_RDONLY)
for number in range(min(hard - 20, 30000)): os.dup(null)
numbers = os.listdir("/proc/self/fd")
for directory in ("/proc/self", f"/proc/self/task/{os.getpid()}"):
    for part in ("fd", "fdinfo"):
        for number in numbers:
            try: os.lstat(f"{directory}/{part}/{number}")
            except OSError: pass
"#;
    orphan(reaper, &format!("exec python3 -c '{script}{end}'")).await
}

/// H3: the kernel keeps a name for each file below /proc/PID that a container has looked at, and drops them when the process is released.
/// On 981875e7 the thread that answers containerd did that.
#[test]
fn h3_the_release_of_a_containers_process_does_not_take_this_threads_time() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let pid = reads_many_names(&reaper, "os.kill(os.getpid(), 9)").await;
        let (_, exit) = reaper.adopt(&subscription, pid).unwrap();
        let mut other = reaper.spawn(&mut shell("exec sleep 1000")).unwrap();
        assert_eq!(within(exit).await.code, 137);
        // Another exit is seen while it is released.
        other.process.signal(SignalNumber::KILL).unwrap();
        let mut longest = Duration::ZERO;
        let begun = tokio::time::Instant::now();
        let mut seen = None;
        while reaper.table.borrow().recorded.contains(&pid) {
            let round = tokio::time::Instant::now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            longest = longest.max(round.elapsed());
            if seen.is_none() && tokio::time::timeout(Duration::ZERO, &mut other.exit).await.is_ok() {
                seen = Some(begun.elapsed());
            }
        }
        let released = begun.elapsed();
        println!("released in {released:?}: away for {longest:?}, another exit after {seen:?}");
        assert!(released > Duration::from_millis(40), "{released:?} shows nothing");
        assert!(longest < released / 2, "away for {longest:?} of {released:?}");
        assert!(seen.is_some_and(|seen| seen < released / 2), "{seen:?} of {released:?}");
    });
}

/// H3: of two exits behind one SIGCHLD the second is not seen only when the first process has been released.
#[test]
fn h3_the_second_exit_behind_one_signal_is_seen_at_once() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let end = format!("open(\"{}\", \"w\"); time.sleep(1000)", ready.display());
        let pid = reads_many_names(&reaper, &end).await;
        let (process, exit) = reaper.adopt(&subscription, pid).unwrap();
        until(|| ready.exists()).await;
        // Later than the first among the children of this process.
        let later = orphan(&reaper, "exec sleep 1000").await;
        let (other, mut seen) = reaper.adopt(&subscription, later).unwrap();
        for process in [&process, &other] {
            process.signal(SignalNumber::KILL).unwrap();
            // Without the reaper.
            while process.is_running() {
                std::thread::yield_now();
            }
        }
        within(exit).await;
        within(&mut seen).await;
        assert!(reaper.table.borrow().recorded.contains(&pid), "seen after the release of the first");
    });
}

/// The thread that releases, if it is there: its descriptors.
fn descriptors_of_release() -> Option<Vec<String>> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut tasks = tasks.map(|task| task.path());
    let task = tasks
        .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "release\n"))?;
    let links = std::fs::read_dir(task.join("fd")).ok()?.flatten();
    Some(links.filter_map(|link| Some(std::fs::read_link(link.path()).ok()?.display().to_string())).collect())
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// H1, H3: a killed shim's files are closed when no thread has the same table any more. That of a release works in the kernel for seconds.
#[test]
fn h3_the_thread_that_releases_keeps_no_connection_and_no_lock_of_the_shim() {
    run(async {
        let lock = tempfile::NamedTempFile::new().unwrap();
        let reaper = Reaper::start().unwrap();
        orphan(&reaper, "exit 0").await;
        let lock = lock.path().display().to_string();
        // The bell, and the standard three, which are the null device in the shim.
        let has_few = |all: &Vec<String>| (1..=4).contains(&all.len()) && !all.contains(&lock);
        until(|| descriptors_of_release().as_ref().is_some_and(has_few)).await;
    });
}

/// The budget of threads: one more while processes of containers end and for a moment after that, however many end.
#[test]
fn the_thread_that_releases_is_one_and_ends() {
    run(async {
        let reaper = Reaper::start().unwrap();
        for _ in 0..3 {
            let before = threads();
            let mut most = 0;
            for _ in 0..5 {
                orphan(&reaper, "exit 0").await;
                most = most.max(threads());
            }
            assert!(most <= before + 1, "{most} threads, {before} before");
            until(|| threads() == before).await;
        }
    });
}
