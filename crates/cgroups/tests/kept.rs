//! Groups of a real container on cgroup v1, over a delete and a create of its OCI runtime.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::fs;
use std::path::PathBuf;

use cgroups::{Cgroup, CgroupMount, FreezeState, KeptGroups, Stats, cgroup_mounts};
use oci_runtime::runtime::{CreateOptions, DeleteMode, GroupsLeft, Launched};
use oci_runtime::test_container::TestContainer;
use processes::SignalNumber;
use streams::stdio::ChildStdio;
use test_support::{run, within};

fn in_a_pod(name: &str) -> String {
    format!("/podshim-kept-{}/{name}", std::process::id())
}

fn remove_pod() {
    for mount in cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap()) {
        let _ = fs::remove_dir(mount.directory_of(&format!("/podshim-kept-{}", std::process::id())));
    }
}

fn container(name: &str) -> TestContainer {
    let script = ["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; sleep 1000"];
    TestContainer::new(&script, |spec| {
        spec["linux"]["cgroupsPath"] = in_a_pod(name).into();
        spec["linux"]["resources"] = serde_json::json!({
            "cpu": {"quota": 50000, "period": 100000, "shares": 512},
            "memory": {"limit": 67108864},
            "pids": {"limit": 50},
        });
    })
}

async fn end(launched: Launched) {
    launched.process.signal(SignalNumber::KILL).unwrap();
    within(launched.exit).await;
}

fn used(cgroup: &Cgroup) -> u64 {
    let Stats::V1(stats) = cgroup.stats() else { panic!("this test knows cgroup v1 only") };
    stats.cpu.unwrap().total
}

/// A file of the container's group of one controller.
fn file(container: &str, controller: &str, name: &str) -> PathBuf {
    let mounts = cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap());
    let has_it = |mount: &&CgroupMount| mount.controllers.iter().any(|one| one == controller);
    mounts.iter().find(has_it).unwrap().directory_of(&in_a_pod(container)).join(name)
}

#[test]
fn d2_r6_groups_stay_with_their_counters_and_with_what_was_written_past_the_shim() {
    run(async {
        let test = container("a");
        let (created, cgroup) = test.start().await;
        let written = [
            ("cpu", "cpu.cfs_quota_us", "33000"),
            ("cpu", "cpu.shares", "77"),
            ("memory", "memory.limit_in_bytes", "134217728"),
            ("pids", "pids.max", "51"),
        ];
        for (controller, name, value) in written {
            fs::write(file("a", controller, name), value).unwrap();
        }
        // A group that the container has made, and a freezer that another process has closed.
        let inner = file("a", "freezer", "inner/most");
        fs::create_dir_all(&inner).unwrap();
        end(created).await;
        fs::write(file("a", "freezer", "freezer.state"), "FROZEN").unwrap();
        let (before, group) = (used(&cgroup), cgroup.identity());
        assert!(before > 0 && group.is_some());

        let kept = KeptGroups::of(&in_a_pod("a"), &cgroup).await.unwrap();
        assert!(!inner.parent().unwrap().exists());
        assert_eq!(test.container.delete_all_but(&kept).await.unwrap(), GroupsLeft::All);
        assert!(test.container.state().await.unwrap_err().is_not_found());
        let (created, again) = test.start().await;
        assert_eq!((&again, again.identity()), (&cgroup, group));
        assert_eq!(again.freeze_state(), FreezeState::Thawed);
        assert!(used(&again) >= before);
        // The runtime has written those of its spec.
        assert_eq!(fs::read_to_string(file("a", "cpu", "cpu.cfs_quota_us")).unwrap().trim(), "50000");
        kept.restore().await;
        for (controller, name, value) in written {
            assert_eq!(fs::read_to_string(file("a", controller, name)).unwrap().trim(), value, "{name}");
        }
        end(created).await;
        test.container.delete(DeleteMode::Ended).await.unwrap();
        assert!(!again.exists());
        remove_pod();
    });
}

/// T10: a restart in place that is given up before it has made the next process leaves no group once its container is deleted.
#[test]
fn r6_t10_a_restart_that_is_given_up_leaves_no_group() {
    run(async {
        let test = container("given-up");
        let (created, cgroup) = test.start().await;
        end(created).await;
        let kept = KeptGroups::of(&in_a_pod("given-up"), &cgroup).await.unwrap();
        assert_eq!(test.container.delete_all_but(&kept).await.unwrap(), GroupsLeft::All);
        assert!(cgroup.exists());
        test.container.delete(DeleteMode::Ended).await.unwrap();
        assert!(!kept.exist() && !cgroup.exists());
        remove_pod();
    });
}

/// A create that fails leaves no group; the next try gets new ones.
#[test]
fn r6_a_create_that_fails_in_kept_groups_removes_them() {
    run(async {
        let test = container("b");
        let (created, cgroup) = test.start().await;
        end(created).await;
        let kept = KeptGroups::of(&in_a_pod("b"), &cgroup).await.unwrap();
        assert_eq!(test.container.delete_all_but(&kept).await.unwrap(), GroupsLeft::All);
        let config = test.container.bundle().path().join("config.json");
        let spec = fs::read_to_string(&config).unwrap();
        fs::write(&config, spec.replace("\"sh\"", "\"not-there\"")).unwrap();
        let failed = test.container.create(ChildStdio::null(), CreateOptions::default()).await;
        assert!(failed.is_err() || test.container.start().await.is_err());
        let _ = test.container.delete(DeleteMode::Force).await;
        assert!(!cgroup.exists());
        fs::write(&config, spec).unwrap();
        let (created, again) = test.start().await;
        end(created).await;
        assert!(again.exists());
        test.container.delete(DeleteMode::Ended).await.unwrap();
        remove_pod();
    });
}

/// Where the groups cannot be hidden alone, or are others, the runtime removes them as ever.
#[test]
fn r6_groups_that_are_not_the_containers_own_are_not_kept() {
    run(async {
        let test = container("c");
        let (created, cgroup) = test.start().await;
        let own = Cgroup::of_pid(nix::unistd::getpid()).unwrap();
        for (path, cgroup) in [
            ("kubepods.slice:cri-containerd:c", &cgroup),
            (&*in_a_pod("never-made"), &cgroup),
            (&*in_a_pod("c"), &own),
        ] {
            assert!(KeptGroups::of(path, cgroup).await.is_none(), "{path}");
        }
        end(created).await;
        test.container.delete(DeleteMode::Ended).await.unwrap();
        assert!(KeptGroups::of(&in_a_pod("c"), &cgroup).await.is_none());
        remove_pod();
    });
}
