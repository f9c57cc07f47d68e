//! What a helper enters, and whom it takes for the container's.

use test_support::{run, until, within};

use super::*;
use crate::tests::running;
use oci_runtime::test_container::TestContainer;

/// H5, H4: a helper enters the groups that charge, and none that stops it or counts it.
#[test]
fn h4_a_helper_is_charged_to_the_container_and_not_counted_in_it() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = running(&test).await;
        let found = Membership::of(&cgroup, created.process.pid()).unwrap();
        assert_eq!(Membership::decode(&found.encode()).as_ref(), Some(&found));
        let mut command = std::process::Command::new("sleep");
        let entering = found.clone();
        // SAFETY: no thread of the test holds a lock of the allocator.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(command.arg("1000"), move || entering.enter())
        };
        let helper = test.reaper.spawn(&mut command).unwrap();
        until(|| helper.report.is_complete()).await;
        let of = |pid: Pid| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
        let (inside, helpers, own) =
            (of(created.process.pid()), of(helper.process.pid()), of(nix::unistd::getpid()));
        for controller in ["memory", "blkio", "cpuset", "cpuacct", "cpu"] {
            assert_eq!(path_in(&helpers, controller), path_in(&inside, controller), "{controller}");
            assert_ne!(path_in(&helpers, controller), path_in(&own, controller), "{controller}");
        }
        for controller in ["freezer", "pids", "devices"] {
            assert_eq!(path_in(&helpers, controller), path_in(&own, controller), "{controller}");
        }
        found.expel(helper.process.pid());
        assert_eq!(of(helper.process.pid()), own);
        assert!(found.has(created.process.pid()) && !found.has(nix::unistd::getpid()));
        for (process, exit) in [(helper.process, helper.exit), (created.process, created.exit)] {
            process.signal(processes::SignalNumber::KILL).unwrap();
            within(exit).await;
        }
    });
}

#[test]
fn a_path_is_that_of_its_own_hierarchy_and_what_is_below_it() {
    let found = |path: &str| Membership {
        init: Pid::from_raw(1),
        controller: "devices".into(),
        path: path.into(),
        directories: Vec::new(),
        homes: Vec::new(),
    };
    let text = "3:devices:/pods/a\n2:cpu,cpuacct:/x\n0::/\n";
    assert!(found("/pods/a").is_at(text) && found("/pods").is_at(text));
    for other in ["/pods/a/b", "/pods/b", "/pod", "/x"] {
        assert!(!found(other).is_at(text), "{other}");
    }
    assert_eq!((path_in(text, "cpuacct"), path_in(text, "")), (Some("/x"), Some("/")));
}
