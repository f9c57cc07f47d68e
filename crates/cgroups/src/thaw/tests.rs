//! Frozen groups of a real container on cgroup v1, and of a process in the v2 hierarchy of a hybrid host.

use std::cell::Cell;
use std::path::Path;

use processes::{Process, SignalNumber};
use test_support::{DEADLINE, run, until, within};
use tokio::time::Instant;

use super::*;
use crate::tests::running;
use crate::{FreezeState, KillOutcome};
use oci_runtime::runtime::Launched;
use oci_runtime::test_container::TestContainer;

const PARENT_AND_CHILD: [&str; 3] = ["sh", "-c", "sleep 1000 & exec sleep 1000"];

fn freezer_of(cgroup: &Cgroup) -> PathBuf {
    cgroup.subtree_freezer().unwrap().directory
}

async fn freeze(group: &Path) {
    fs::write(group.join("freezer.state"), "FROZEN").unwrap();
    until(|| fs::read_to_string(group.join("freezer.state")).unwrap().trim() == "FROZEN").await;
}

/// A group two levels inside, with the container's child in it, frozen.
async fn freeze_a_child(created: &Launched, cgroup: &Cgroup) -> PathBuf {
    until(|| cgroup.pids().len() == 2).await;
    let child = cgroup.pids().into_iter().find(|pid| *pid != created.process.pid()).unwrap();
    let inner = freezer_of(cgroup).join("a/b");
    fs::create_dir_all(&inner).unwrap();
    fs::write(inner.join("cgroup.procs"), child.to_string()).unwrap();
    freeze(&inner).await;
    inner
}

/// Process 1 of a pid namespace is gone when all others are.
#[test]
fn d1_k17_groups_inside_are_thawed_and_those_above_are_not() {
    run(async {
        let id = std::process::id();
        let test = TestContainer::new(&PARENT_AND_CHILD, |spec| {
            spec["linux"]["cgroupsPath"] = format!("/podshim-above-{id}/inner").into();
        });
        let (created, cgroup) = running(&test).await;
        freeze_a_child(&created, &cgroup).await;
        let own = freezer_of(&cgroup);
        freeze(&own).await;
        created.process.signal(SignalNumber::KILL).unwrap();
        let above = own.parent().unwrap().to_owned();
        freeze(&above).await;
        let asked = Cell::new(0);
        // The administrator's freeze above keeps it from acting, and stays.
        cgroup
            .thaw_while(|| {
                asked.set(asked.get() + 1);
                asked.get() < 4
            })
            .await;
        assert!(created.process.is_running());
        assert_eq!(fs::read_to_string(own.join("freezer.self_freezing")).unwrap().trim(), "0");
        fs::write(above.join("freezer.state"), "THAWED").unwrap();
        assert_eq!(within(created.exit).await.signal, Some(9));
        test.container.delete(oci_runtime::runtime::DeleteMode::Ended).await.unwrap();
        for mount in crate::cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap()) {
            let _ = fs::remove_dir(mount.directory_of(&format!("/podshim-above-{id}")));
        }
    });
}

#[test]
fn d1_k17_a_group_that_is_frozen_again_is_thawed_again() {
    run(async {
        let test = TestContainer::new(&PARENT_AND_CHILD, |_| {});
        let (created, cgroup) = running(&test).await;
        let inner = freeze_a_child(&created, &cgroup).await;
        let freezes_again = std::thread::spawn(move || {
            for _ in 0..2000 {
                if fs::write(inner.join("freezer.state"), "FROZEN").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        created.process.signal(SignalNumber::KILL).unwrap();
        let process = &created.process;
        cgroup.thaw_while(|| process.is_running()).await;
        assert_eq!(within(created.exit).await.signal, Some(9));
        freezes_again.join().unwrap();
    });
}

/// R6, N10: without a pid namespace of the container's own its process 1 ends by itself, and what is frozen stays.
#[test]
fn d1_r6_a_frozen_group_inside_is_emptied_too() {
    run(async {
        let script = ["sh", "-c", "sleep 1000 & exec sleep 1000"];
        let test = TestContainer::new(&script, crate::tests::share_pid_namespace);
        let (created, cgroup) = running(&test).await;
        let inner = freeze_a_child(&created, &cgroup).await;
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
        let outcome = cgroup.kill_remaining(Instant::now() + DEADLINE / 4).await;
        let _ = fs::write(inner.join("freezer.state"), "THAWED");
        assert_eq!(outcome, KillOutcome::Empty);
        test.container.delete(oci_runtime::runtime::DeleteMode::Ended).await.unwrap();
    });
}

/// A container without groups of its own is in the shim's.
#[test]
fn d1_a_group_that_holds_the_shim_is_never_thawed() {
    let own = Cgroup::of_pid(getpid()).unwrap().subtree_freezer().unwrap();
    assert!(own.holds_the_shim());
    let above = Freezer { directory: own.directory.parent().unwrap_or(&own.directory).to_owned(), ..own };
    assert!(above.holds_the_shim());
    assert_eq!(above.thaw_all().unwrap(), 0);
}

/// Whether a process has a handler for SIGTERM, by its `/proc/PID/status`.
fn catches_term(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & (1 << 14) != 0
}

/// cgroup v2, by the kernel's own files, where a v2 hierarchy is mounted. Its freezer lets SIGKILL through, and what the program has no
/// handler for; a signal with one waits.
#[test]
fn d1_k17_on_v2_a_signal_acts_when_its_group_is_thawed() {
    run(async {
        let mounts = crate::cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap());
        let Some(mount) = mounts.iter().find(|mount| mount.is_v2()) else { return };
        let outer = mount.point.join(format!("podshim-thaw-{}", std::process::id()));
        let inner = outer.join("inner");
        fs::create_dir_all(&inner).unwrap();
        for (signal, thaws) in [(SignalNumber::TERM, true), (SignalNumber::KILL, false)] {
            #[expect(
                clippy::disallowed_methods,
                reason = "this process is no container's, and no reaper runs here"
            )]
            let mut child = std::process::Command::new("sh")
                .args(["-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done"])
                .spawn()
                .unwrap();
            let status = format!("/proc/{}/status", child.id());
            until(|| catches_term(&fs::read_to_string(&status).unwrap())).await;
            fs::write(inner.join("cgroup.procs"), child.id().to_string()).unwrap();
            let process = Process::open(nix::unistd::Pid::from_raw(child.id().cast_signed())).unwrap();
            fs::write(inner.join("cgroup.freeze"), "1").unwrap();
            let (group, cgroup) = (Cgroup::V2(inner.clone()), Cgroup::V2(outer.clone()));
            until(|| group.freeze_state() == FreezeState::Frozen).await;
            process.signal(signal).unwrap();
            if thaws {
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert!(process.is_running(), "it acted on its signal while it was frozen");
                cgroup.thaw_while(|| process.is_running()).await;
            }
            until(|| !process.is_running()).await;
            #[expect(
                clippy::disallowed_methods,
                reason = "this process is no container's, and no reaper runs here"
            )]
            child.wait().unwrap();
            fs::write(inner.join("cgroup.freeze"), "0").unwrap();
        }
        fs::remove_dir(&inner).unwrap();
        fs::remove_dir(&outer).unwrap();
    });
}

/// For each SIGKILL two calls of the kernel's, and no thread, where nothing is frozen.
#[test]
fn d1_a_container_with_no_groups_inside_needs_no_walk() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = running(&test).await;
        let freezer = cgroup.subtree_freezer().unwrap();
        assert!(!freezer.may_be_frozen());
        fs::create_dir(freezer.directory.join("inner")).unwrap();
        assert!(freezer.may_be_frozen());
        fs::remove_dir(freezer.directory.join("inner")).unwrap();
        freeze(&freezer.directory).await;
        assert!(freezer.may_be_frozen());
        created.process.signal(SignalNumber::KILL).unwrap();
        cgroup.thaw_while(|| created.process.is_running()).await;
        within(created.exit).await;
    });
}
