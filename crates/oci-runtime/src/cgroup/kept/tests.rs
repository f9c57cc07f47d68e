//! Groups of a real container on cgroup v1, over a delete and a create of its OCI runtime.

use processes::SignalNumber;
use test_support::{run, within};

use super::*;
use crate::cgroup::{FreezeState, Stats};
use crate::runtime::{CreateOptions, DeleteMode, GroupsLeft, Launched};
use crate::stdio::ChildStdio;
use crate::test_container::TestContainer;

fn in_a_pod(name: &str) -> String {
    format!("/podshim-kept-{}/{name}", std::process::id())
}

fn remove_pod() {
    for mount in super::super::cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo").unwrap()) {
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

fn file(cgroup: &Cgroup, controller: &str, name: &str) -> PathBuf {
    let Cgroup::V1(hierarchies) = cgroup else { panic!("this test knows cgroup v1 only") };
    let directory = match controller {
        "cpu" => hierarchies.cpu.clone(),
        "memory" => hierarchies.memory.clone(),
        "pids" => hierarchies.pids.clone(),
        _ => hierarchies.freezer.clone(),
    };
    directory.unwrap().join(name)
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
            fs::write(file(&cgroup, controller, name), value).unwrap();
        }
        // A group that the container has made, and a freezer that another process has closed.
        let inner = file(&cgroup, "freezer", "inner/most");
        fs::create_dir_all(&inner).unwrap();
        end(created).await;
        fs::write(file(&cgroup, "freezer", "freezer.state"), "FROZEN").unwrap();
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
        assert_eq!(fs::read_to_string(file(&again, "cpu", "cpu.cfs_quota_us")).unwrap().trim(), "50000");
        kept.restore().await;
        for (controller, name, value) in written {
            assert_eq!(fs::read_to_string(file(&again, controller, name)).unwrap().trim(), value, "{name}");
        }
        end(created).await;
        test.container.delete(DeleteMode::Ended).await.unwrap();
        assert!(!again.exists());
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

/// One that the kernel refuses is logged; the others are written.
#[test]
fn r6_limits_that_bound_each_other_are_written_in_the_order_that_the_kernel_takes() {
    run(async {
        let test = container("d");
        let (created, cgroup) = test.start().await;
        let limit =
            |name: &str, text: &str| Limit { path: file(&cgroup, "memory", name), text: format!("{text}\n") };
        // With swap accounting the second must be raised before the first.
        let mut limits = vec![limit("memory.limit_in_bytes", "268435456")];
        if limits[0].path.with_file_name("memory.memsw.limit_in_bytes").exists() {
            fs::write(file(&cgroup, "memory", "memory.memsw.limit_in_bytes"), "67108864").unwrap();
            limits.push(limit("memory.memsw.limit_in_bytes", "268435456"));
        }
        limits.insert(0, limit("memory.swappiness", "never a number"));
        limits.push(limit("memory.never_there", "1"));
        restore(&limits);
        assert_eq!(fs::read_to_string(&limits[1].path).unwrap(), limits[1].text);
        end(created).await;
        test.container.delete(DeleteMode::Ended).await.unwrap();
        remove_pod();
    });
}
