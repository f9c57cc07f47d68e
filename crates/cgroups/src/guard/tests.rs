//! Leases on a group's files, taken by the test's own process: the kernel makes no difference.

use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::time::Duration;

use processes::SignalNumber;
use test_support::{run, within};
use tokio::time::Instant;

use super::*;
use crate::tests::running;
use crate::{FreezeState, KillOutcome, OomWatch, Stats};
use oci_runtime::test_container::TestContainer;

/// Far less than `fs.lease-break-time`, and more than the limits of what is called.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Leases on all files of a group that can be had.
struct Leases {
    held: Vec<PathBuf>,
    _files: Vec<File>,
}

impl Leases {
    fn on(directories: &[&Path]) -> Self {
        // SAFETY: ignoring a signal installs no handler. The kernel sends it when it breaks a lease.
        unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
        let (mut held, mut files) = (Vec::new(), Vec::new());
        for path in directories.iter().flat_map(|directory| fs::read_dir(directory).unwrap()) {
            let path = path.unwrap().path();
            let Ok(file) = at_once::open(&path, File::options().read(true)) else { continue };
            if take(&file, libc::F_WRLCK) || take(&file, libc::F_RDLCK) {
                held.push(path);
                files.push(file);
            }
        }
        Self { held, _files: files }
    }

    fn has(&self, name: &str) -> bool {
        self.held.iter().any(|path| path.ends_with(name))
    }
}

fn take(file: &File, kind: i32) -> bool {
    // SAFETY: only numbers are passed.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 }
}

fn directories(cgroup: &Cgroup) -> Vec<&Path> {
    match cgroup {
        Cgroup::V1(groups) => groups.directories().collect(),
        Cgroup::V2(group) => vec![group],
    }
}

/// Without what is kept open: figures and lists are missing then, and no caller waits.
#[test]
fn a_lease_on_a_groups_files_keeps_no_caller_waiting() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = running(&test).await;
        let leases = Leases::on(&directories(&cgroup));
        assert!(leases.has("cgroup.procs") && leases.has("memory.stat") && leases.has("freezer.state"));
        let begun = Instant::now();
        let Stats::V1(stats) = cgroup.stats() else { panic!("this test knows cgroup v1 only") };
        assert_eq!((stats.memory, stats.pids), (None, None));
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        assert!(OomWatch::new(&cgroup, created.process.pid()).is_err());
        assert!(cgroup.thaw().is_err());
        cgroup.thaw_while(|| false).await;
        cgroup.signal_members(SignalNumber::TERM).await.unwrap();
        cgroup.kill_all_once().await;
        // What cannot be listed is not taken for gone.
        assert!(cgroup.pids().is_empty());
        let soon = Instant::now() + Duration::from_millis(100);
        assert_eq!(cgroup.kill_remaining(soon).await, KillOutcome::Unlisted);
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        drop(leases);
        assert_eq!(cgroup.kill_remaining(soon + AT_ONCE).await, KillOutcome::Empty);
        within(created.exit).await;
    });
}

#[test]
fn what_is_kept_open_can_be_opened_again_whatever_leases_there_are() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = running(&test).await;
        let _guard = Guard::of(&cgroup);
        let leases = Leases::on(&directories(&cgroup));
        assert!(leases.has("memory.limit_in_bytes"), "{:?}", leases.held);
        let Stats::V1(stats) = cgroup.stats() else { panic!("this test knows cgroup v1 only") };
        assert!(stats.memory.unwrap().usage.usage > 0 && stats.cpu.unwrap().total > 0);
        assert_eq!(stats.pids.unwrap().current, 1);
        assert_eq!(stats.memory_oom_control.unwrap().oom_kill, 0);
        let frozen = cgroup.freeze().await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        drop(frozen);
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        let soon = Instant::now() + AT_ONCE;
        assert_eq!(cgroup.kill_remaining(soon).await, KillOutcome::Empty);
        within(created.exit).await;
    });
}

/// What froze a group thaws it, also where no file is kept open: a lease that is taken meanwhile is refused.
#[test]
fn a_frozen_group_is_thawed_whatever_leases_there_are() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = running(&test).await;
        let frozen = cgroup.freeze().await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        let leases = Leases::on(&directories(&cgroup));
        drop(frozen);
        drop(leases);
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// cgroup v2 without controllers, as a hybrid node has it beside v1.
#[test]
fn on_v2_a_group_is_ended_whatever_leases_there_are() {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let Some(mount) = crate::cgroup_mounts(&text).into_iter().find(|mount| mount.is_v2()) else {
        println!("no cgroup v2 here");
        return;
    };
    run(async {
        let group = mount.directory_of(&format!("/podshim-guard-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        let reaper = processes::reaper::Reaper::start().unwrap();
        let child = reaper.spawn(std::process::Command::new("sleep").arg("1000")).unwrap();
        fs::write(group.join("cgroup.procs"), child.process.pid().to_string()).unwrap();
        let cgroup = Cgroup::V2(group.clone());
        let _guard = Guard::of(&cgroup);
        let leases = Leases::on(&[&group]);
        assert!(leases.has("cgroup.type"), "{:?}", leases.held);
        let frozen = cgroup.freeze().await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        drop(frozen);
        let soon = Instant::now() + AT_ONCE;
        assert_eq!(cgroup.kill_remaining(soon).await, KillOutcome::Empty);
        assert_eq!(within(child.exit).await.signal, Some(9));
        drop(leases);
        fs::remove_dir(&group).unwrap();
    });
}
