//! Real v1 groups of a runc container, and v2 groups as files.

use std::fs;
use std::path::Path;
use std::time::Duration;

use nix::unistd::Pid;
use processes::SignalNumber;
use test_support::{DEADLINE, run, within};
use tokio::time::Instant;

use super::*;
use oci_runtime::runtime::{CreateOptions, Launched};
use oci_runtime::test_container::TestContainer;
use streams::stdio::ChildStdio;

const HYBRID_MOUNTS: &str = "\
30 20 0:5 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:6 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:7 /outer /sys/fs/cgroup/memory rw,relatime shared:3 - cgroup cgroup rw,memory
33 30 0:8 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

/// A shell's program that the kernel kills for its memory.
const EATER: &str = "x=xxxxxxxx; while :; do x=$x$x; done";

fn limit_memory(spec: &mut serde_json::Value) {
    let memory = serde_json::json!({"limit": 16777216, "swap": 16777216});
    spec["linux"]["resources"] = serde_json::json!({"memory": memory});
}

fn soon() -> Instant {
    Instant::now() + DEADLINE
}

async fn start(test: &TestContainer) -> (Launched, Cgroup) {
    let created = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
    let cgroup = Cgroup::of_pid(created.process.pid()).unwrap();
    test.container.start().await.unwrap();
    (created, cgroup)
}

/// A container whose own program runs, and its groups: oci-runtime's are those of the library that it was built with.
pub(super) async fn running(test: &TestContainer) -> (Launched, Cgroup) {
    let (created, _) = test.start().await;
    let cgroup = Cgroup::of_pid(created.process.pid()).unwrap();
    (created, cgroup)
}

fn write(directory: &Path, files: &[(&str, &str)]) {
    for (file, content) in files {
        fs::write(directory.join(file), content).unwrap();
    }
}

/// DESIGN §5: a runtime that does not use systemd takes `slice:prefix:name` for a path below its own group. podshim
/// finds the container there.
#[test]
fn a_systemd_path_without_systemd_is_found_where_the_runtime_put_it() {
    run(async {
        let path = format!("podshim-test.slice:cri-containerd:{}", std::process::id());
        let test =
            TestContainer::new(&["sleep", "1000"], |spec| spec["linux"]["cgroupsPath"] = path.clone().into());
        let (created, theirs) = test.start().await;
        let cgroup = Cgroup::of_pid(created.process.pid()).unwrap();
        let directory = cgroup.process_directory().unwrap().to_owned();
        assert!(directory.ends_with(&path), "{}", directory.display());
        assert_eq!(cgroup.pids().into_iter().collect::<Vec<_>>(), [created.process.pid()]);
        assert!(Membership::of(&cgroup, created.process.pid()).unwrap().has(created.process.pid()));
        test.container.pause(Some(&theirs)).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        test.container.resume(Some(&theirs)).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        assert_eq!(cgroup.kill_remaining(soon()).await, KillOutcome::Empty);
        within(created.exit).await;
        test.container.delete(oci_runtime::runtime::DeleteMode::Ended).await.unwrap();
        assert!(!directory.exists(), "{}", directory.display());
    });
}

#[test]
fn hybrid_hosts_count_as_v1_and_mounted_subtrees_are_resolved() {
    let membership = "2:memory:/outer/pod/c\n1:cpu,cpuacct:/pod/c\n0::/\n";
    let Some(Cgroup::V1(found)) = Cgroup::locate(membership, &files::cgroup_mounts(HYBRID_MOUNTS)) else {
        panic!("not v1")
    };
    assert_eq!(found.memory.as_deref(), Some(Path::new("/sys/fs/cgroup/memory/pod/c")));
    assert_eq!(found.cpu.as_deref(), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct/pod/c")));
    assert_eq!(found.cpuacct, found.cpu);
    assert_eq!(found.pids, None);
}

#[test]
fn unified_hosts_have_one_directory() {
    let mounts = "30 20 0:5 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n";
    let found = Cgroup::locate("0::/kubepods.slice/c.scope\n", &files::cgroup_mounts(mounts));
    assert_eq!(found, Some(Cgroup::V2("/sys/fs/cgroup/kubepods.slice/c.scope".into())));
    assert_eq!(Cgroup::locate("0::/x\n", &[]), None);
}

/// The lookup without the mount table must find the same group.
#[test]
fn the_customary_place_of_a_group_is_the_one_in_the_table_of_mounts() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, found) = start(&test).await;
        let pid = created.process.pid();
        let membership = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(Cgroup::locate(&membership, &files::cgroup_mounts(&mountinfo)), Some(found.clone()));
        assert_eq!(Cgroup::at_customary_place(pid, &membership), Some(found));
        // For another process's group, or one shown under another name, the mount table must be read.
        assert_eq!(Cgroup::at_customary_place(nix::unistd::getpid(), &membership), None);
        let elsewhere = membership.replace("memory:/", "memory:/outer/");
        assert_eq!(Cgroup::at_customary_place(pid, &elsewhere), None);
    });
}

#[test]
fn a_real_container_has_v1_numbers() {
    run(async {
        let script = "x=0; while [ $x -lt 20000 ]; do x=$((x+1)); done; sleep 1000 & exec sleep 1000";
        let test = TestContainer::new(&["sh", "-c", script], |spec| {
            spec["linux"]["resources"] =
                serde_json::json!({"memory": {"limit": 67108864}, "pids": {"limit": 50}});
        });
        let (created, cgroup) = start(&test).await;
        test_support::until(|| cgroup.pids().len() == 2).await;
        assert!(cgroup.pids().contains(&created.process.pid()));
        let Stats::V1(stats) = cgroup.stats() else { panic!("this test knows cgroup v1 only") };
        let (memory, cpu) = (stats.memory.unwrap(), stats.cpu.unwrap());
        assert_eq!(memory.usage.limit, 67108864);
        assert!(memory.usage.usage > 0 && memory.usage.max >= memory.usage.usage);
        assert_eq!(memory.detail.hierarchical_memory_limit, 67108864);
        assert!(memory.detail.total_pgfault > 0);
        assert!(cpu.total > 0);
        assert_eq!(stats.pids.unwrap(), v1::PidsStats { current: 2, limit: 50 });
        assert_eq!(stats.memory_oom_control.unwrap().oom_kill, 0);
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
    });
}

/// Lets processes that the container's init leaves behind live on, as in a pod with a shared pid namespace.
pub(super) fn share_pid_namespace(spec: &mut serde_json::Value) {
    let namespaces = spec["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|namespace| namespace["type"] != "pid");
    // runc needs a /proc mount, and a new proc needs a pid namespace of the container's own.
    let proc = serde_json::json!({"destination": "/proc", "type": "bind", "source": "/proc",
        "options": ["rbind"]});
    spec["mounts"] = serde_json::json!([proc]);
}

#[test]
fn r6_what_an_init_leaves_in_a_shared_pid_namespace_is_killed() {
    run(async {
        let script = "sleep 1000 & sleep 1000 & exit 0";
        let test = TestContainer::new(&["sh", "-c", script], share_pid_namespace);
        let (created, cgroup) = start(&test).await;
        assert_eq!(within(created.exit).await.code, 0);
        assert_eq!(cgroup.pids().len(), 2);
        let KillOutcome::Remaining(left) = cgroup.kill_remaining(Instant::now()).await else {
            panic!("a deadline that has passed leaves them alone")
        };
        assert_eq!(left.len(), 2);
        assert_eq!(cgroup.kill_remaining(soon()).await, KillOutcome::Empty);
        assert!(cgroup.pids().is_empty());
    });
}

/// `runc kill --all` of runc 1.2 and later only signals the init.
#[test]
fn k14_a_signal_to_all_members_reaches_each_once() {
    run(async {
        let script = "trap 'exit 7' TERM; sleep 1000 & sleep 1000 & while :; do wait; done";
        let test = TestContainer::new(&["sh", "-c", script], share_pid_namespace);
        let (created, cgroup) = start(&test).await;
        // Wait for the programs: a shell that has forked and not yet exec'd would run its parent's trap for the signal.
        let sleeps =
            |pid: &_| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n");
        test_support::until(|| cgroup.pids().into_iter().filter(sleeps).count() == 2).await;
        cgroup.signal_members(SignalNumber::new(15).unwrap()).await.unwrap();
        assert_eq!(within(created.exit).await.code, 7);
        test_support::until(|| cgroup.pids().is_empty()).await;
        // The test's own group is not a container's group.
        let own = Cgroup::of_pid(nix::unistd::getpid()).unwrap();
        assert!(own.signal_members(SignalNumber::new(15).unwrap()).await.is_err());
    });
}

/// A group whose processes fork and exit without end: no pid lives longer than a millisecond or two.
async fn start_relays(test: &TestContainer) -> Cgroup {
    fs::write(test.container.bundle().rootfs().join("relay"), "sh /relay & exit 0").unwrap();
    let (created, cgroup) = start(test).await;
    within(created.exit).await;
    let first = cgroup.pids();
    test_support::until(|| {
        let now = cgroup.pids();
        !now.is_empty() && now.is_disjoint(&first)
    })
    .await;
    cgroup
}

const RELAYS: [&str; 3] = ["sh", "-c", "i=0; while [ $i -lt 20 ]; do sh /relay & i=$((i+1)); done; exit 0"];

/// One signal to each must be enough: there is no second round, as there is for SIGKILL.
#[test]
fn k14_processes_that_fork_and_exit_for_ever_do_not_outrun_a_signal_to_all() {
    run(async {
        let test = TestContainer::new(&RELAYS, share_pid_namespace);
        let cgroup = start_relays(&test).await;
        cgroup.signal_members(SignalNumber::TERM).await.unwrap();
        test_support::until(|| cgroup.pids().is_empty()).await;
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
    });
}

/// K17: only SIGKILL thaws the group.
#[test]
fn k14_a_signal_to_all_of_a_paused_container_waits_for_its_resume() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], share_pid_namespace);
        let (created, cgroup) = start(&test).await;
        test.container.pause(None).await.unwrap();
        cgroup.signal_members(SignalNumber::TERM).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        assert!(created.process.is_running());
        test.container.resume(None).await.unwrap();
        assert_eq!(within(created.exit).await.signal, Some(15));
    });
}

#[test]
fn r6_processes_that_fork_and_exit_for_ever_do_not_outrun_the_killing() {
    run(async {
        let test = TestContainer::new(&RELAYS, share_pid_namespace);
        let cgroup = start_relays(&test).await;
        // Check the freezing itself: without it the killing might win too, by chance.
        let frozen = cgroup.freeze().await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        drop(frozen);
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        assert_eq!(cgroup.kill_remaining(soon()).await, KillOutcome::Empty);
        // Neither filled again nor frozen.
        assert!(cgroup.pids().is_empty());
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
    });
}

#[test]
fn r6_what_is_left_in_a_paused_container_is_killed_too() {
    run(async {
        let test = TestContainer::new(&["sh", "-c", "sleep 1000 & exec sleep 1000"], share_pid_namespace);
        let (created, cgroup) = start(&test).await;
        test_support::until(|| cgroup.pids().len() == 2).await;
        test.container.pause(None).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        assert_eq!(cgroup.kill_remaining(soon()).await, KillOutcome::Empty);
        assert_eq!(within(created.exit).await.signal, Some(9));
    });
}

#[test]
fn a_group_that_is_also_the_shims_is_never_emptied() {
    run(async {
        let own = Cgroup::of_pid(nix::unistd::getpid()).unwrap();
        assert!(matches!(own.kill_remaining(soon()).await, KillOutcome::Remaining(_)));
    });
}

#[test]
fn numbers_of_a_group_that_is_gone_are_absent_not_errors() {
    run(async {
        let test = TestContainer::new(&["true"], |_| {});
        let (created, cgroup) = start(&test).await;
        within(created.exit).await;
        test.container.delete(oci_runtime::runtime::DeleteMode::Ended).await.unwrap();
        let Stats::V1(stats) = cgroup.stats() else { panic!("this test knows cgroup v1 only") };
        assert_eq!(*stats, v1::Stats { cpu: stats.cpu.clone(), ..v1::Stats::default() });
        assert_eq!(cgroup.kill_remaining(soon()).await, KillOutcome::Empty);
        assert!(Cgroup::of_pid(created.process.pid()).is_err());
        assert!(OomWatch::new(&cgroup, created.process.pid()).is_err());
    });
}

#[test]
fn an_oom_kill_in_a_v1_container_is_reported() {
    run(async {
        let script = format!("while [ ! -e /tmp/go ]; do sleep 0.01; done; sh -c '{EATER}'; exec sleep 1000");
        let test = TestContainer::new(&["sh", "-c", &script], limit_memory);
        let (created, cgroup) = start(&test).await;
        let mut watch = OomWatch::new(&cgroup, created.process.pid()).unwrap();
        fs::write(test.container.bundle().rootfs().join("tmp/go"), "").unwrap();
        assert!(within(watch.next()).await.unwrap() >= 1);
        assert!(created.process.is_running());
        created.process.signal(SignalNumber::KILL).unwrap();
        within(created.exit).await;
        test.container.delete(oci_runtime::runtime::DeleteMode::Ended).await.unwrap();
        // The kernel signals the removal of the group: the watch ends by itself.
        while within(watch.next()).await.is_some() {}
    });
}

#[test]
fn an_oom_kill_in_a_v2_group_is_reported_once() {
    run(async {
        let directory = tempfile::tempdir().unwrap();
        let set =
            |kills: u64| write(directory.path(), &[("memory.events", &format!("oom 9\noom_kill {kills}\n"))]);
        set(2);
        let mut watch = OomWatch::new(&Cgroup::V2(directory.path().to_owned()), Pid::this()).unwrap();
        set(5);
        assert_eq!(within(watch.next()).await, Some(3));
        let again = tokio::time::timeout(Duration::from_millis(20), watch.next()).await;
        assert!(again.is_err());
        set(6);
        assert_eq!(within(watch.next()).await, Some(1));
        set(8);
        assert_eq!((watch.new_kills(), watch.new_kills()), (2, 0));
        fs::remove_file(directory.path().join("memory.events")).unwrap();
        assert_eq!(within(watch.next()).await, None);
    });
}

/// systemd had removed the scope before the shim could read why its only process died; CRI then reported Error instead
/// of OOMKilled.
#[test]
fn an_oom_kill_in_a_scope_that_is_gone_is_read_from_its_slice() {
    run(async {
        for below_scope in ["", "container"] {
            let slice = tempfile::tempdir().unwrap();
            let scope = slice.path().join("cri-containerd-1.scope");
            let group = scope.join(below_scope);
            fs::create_dir_all(&group).unwrap();
            let set = |directory: &Path, kills: u64| {
                write(directory, &[("memory.events", &format!("max 1\noom_kill {kills}\n"))]);
            };
            set(&group, 0);
            let watched = |kills: u64| {
                set(slice.path(), kills);
                OomWatch::new(&Cgroup::V2(group.clone()), Pid::this()).unwrap()
            };
            let mut killed = watched(3);
            // The kernel notifies that the limit was reached, and delays the notification of the kill.
            set(&group, 0);
            let reported = tokio::time::timeout(Duration::from_millis(20), killed.next()).await;
            assert!(reported.is_err());
            fs::remove_dir_all(&scope).unwrap();
            set(slice.path(), 4);
            // Reported before the exit is seen.
            assert_eq!(within(killed.next()).await, Some(1), "{below_scope:?}");
            assert_eq!(killed.new_kills(), 0);
            fs::create_dir_all(&group).unwrap();
            set(&group, 0);
            let mut quiet = watched(4);
            fs::remove_dir_all(&scope).unwrap();
            set(slice.path(), 5);
            assert_eq!(quiet.new_kills(), 0, "it never reached its limit: another was killed");
        }
    });
}

/// Once, in a virtual machine of one busy processor, podshim did not report a kill. Likely systemd had removed the scope
/// before the kernel's queue of notifications got to it.
#[test]
fn an_oom_kill_that_was_not_notified_is_read_from_the_kernels_log() {
    run(async {
        let test = TestContainer::new(&["sh", "-c", EATER], limit_memory);
        let victim = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap();
        test.container.start().await.unwrap();
        let pid = victim.process.pid();
        assert_eq!(within(victim.exit).await.signal, Some(9));
        test.container.delete(oci_runtime::runtime::DeleteMode::Ended).await.unwrap();

        let slice = tempfile::tempdir().unwrap();
        let scope = slice.path().join("cri-containerd-1.scope");
        let set = |directory: &Path, kills: u64| {
            write(directory, &[("memory.events", &format!("oom_kill {kills}\n"))]);
        };
        for (pid, kills) in [(pid, 1), (Pid::this(), 0)] {
            fs::create_dir(&scope).unwrap();
            set(&scope, 0);
            set(slice.path(), 3);
            let mut watch = OomWatch::new(&Cgroup::V2(scope.clone()), pid).unwrap();
            fs::remove_dir_all(&scope).unwrap();
            set(slice.path(), 4);
            assert_eq!((watch.new_kills(), watch.new_kills()), (kills, 0));
        }
    });
}

#[test]
fn files_of_v2_become_numbers() {
    let directory = tempfile::tempdir().unwrap();
    write(
        directory.path(),
        &[
            ("pids.current", "3\n"),
            ("pids.max", "max\n"),
            ("cpu.stat", "usage_usec 10\nuser_usec 6\nsystem_usec 4\nnr_throttled 2\nnr_bursts 1\n"),
            ("cpu.pressure", "some avg10=1.50 avg60=0.00 avg300=0.00 total=77\n"),
            ("memory.current", "4096\n"),
            ("memory.max", "max\n"),
            ("memory.peak", "8192\n"),
            ("memory.swap.max", "100\n"),
            ("memory.stat", "anon 1\nfile 2\nworkingset_refault_anon 3\nworkingset_refault_file 4\n"),
            ("memory.events", "low 0\noom_kill 5\n"),
            ("io.stat", "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n254:1\n"),
            ("hugetlb.2MB.current", "0\n"),
            ("hugetlb.2MB.max", "max\n"),
            ("hugetlb.2MB.rsvd.max", "max\n"),
            ("hugetlb.2MB.events", "max 9\n"),
            ("rdma.current", "mlx4_0 hca_handle=2 hca_object=2000\n"),
            ("rdma.max", "mlx4_0 hca_handle=max hca_object=max\n"),
        ],
    );
    let Stats::V2(stats) = Cgroup::V2(directory.path().to_owned()).stats() else { panic!("not v2") };
    assert_eq!(stats.pids.unwrap(), v2::PidsStats { current: 3, limit: u64::MAX });
    let cpu = stats.cpu.unwrap();
    assert_eq!((cpu.detail.usage_usec, cpu.detail.nr_throttled, cpu.detail.nr_bursts), (10, 2, 1));
    let pressure = cpu.pressure.unwrap();
    assert_eq!((pressure.some.average_10, pressure.some.total), (1.5, 77));
    assert_eq!(pressure.full, v2::Pressure::default());
    let memory = stats.memory.unwrap();
    assert_eq!((memory.usage, memory.usage_limit, memory.max_usage), (4096, u64::MAX, 8192));
    assert_eq!((memory.swap_limit, memory.detail.anon, memory.detail.workingset_refault), (100, 1, 7));
    assert_eq!(stats.memory_events.unwrap().oom_kill, 5);
    let io = stats.io.unwrap();
    let first = v2::IoEntry { major: 8, minor: 0, read_bytes: 1, written_bytes: 2, reads: 3, writes: 4 };
    assert_eq!(io.usage[0], first);
    assert_eq!(stats.hugetlb.len(), 1);
    assert_eq!((stats.hugetlb[0].max, stats.hugetlb[0].failure_count), (u64::MAX, 9));
    assert_eq!((stats.rdma.current[0].hca_objects, stats.rdma.limit[0].hca_handles), (2000, u32::MAX));
}

#[test]
fn freezing_in_v2_is_not_frozen() {
    let directory = tempfile::tempdir().unwrap();
    let cgroup = Cgroup::V2(directory.path().to_owned());
    assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
    for (freeze, frozen, expected) in [
        ("0", "frozen 0", FreezeState::Thawed),
        ("1", "frozen 0", FreezeState::Freezing),
        ("1", "frozen 1", FreezeState::Frozen),
        ("0", "frozen 1", FreezeState::Frozen),
    ] {
        write(directory.path(), &[("cgroup.freeze", freeze), ("cgroup.events", frozen)]);
        assert_eq!(cgroup.freeze_state(), expected);
    }
}

/// As runc and crun answer a pause: when the last process has stopped.
#[test]
fn a_group_stays_frozen_only_if_all_of_it_freezes() {
    let directory = tempfile::tempdir().unwrap();
    let cgroup = Cgroup::V2(directory.path().to_owned());
    for (events, asked) in [("frozen 0", "0"), ("frozen 1", "1")] {
        write(directory.path(), &[("cgroup.freeze", "0"), ("cgroup.events", events)]);
        let frozen = run(async { cgroup.freeze_until_thaw().await });
        assert_eq!(frozen.is_ok(), asked == "1", "{events}: {frozen:?}");
        assert_eq!(fs::read_to_string(directory.path().join("cgroup.freeze")).unwrap(), asked, "{events}");
    }
}
