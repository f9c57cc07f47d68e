//! Deletes, against the real runtime.

use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use cgroups::CgroupDriver;
use serde_json::json;
use streams::stdio::ChildStdio;
use test_support::{run, within};

use super::*;
use crate::runtime::{CreateOptions, Launched, Runtime};
use crate::test_container::{TestContainer, runtime_binary};

async fn create(test: &TestContainer) -> Launched {
    test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap()
}

/// Deletes a container as an ended one; returns for each delete call of the runtime whether it had `--force`.
async fn forced_calls(test: &TestContainer) -> Vec<bool> {
    let (path, calls) = (test.path("noting-runtime"), test.path("calls"));
    let script = format!("#!/bin/sh\necho \"$*\" >>{}\nexec {} \"$@\"\n", calls.display(), runtime_binary());
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let runtime = Runtime::new(test.reaper.clone(), path, test.path("root"), CgroupDriver::Cgroupfs);
    let container = Rc::new(runtime).container(test.container.id(), test.container.bundle().clone());
    container.delete(DeleteMode::Ended).await.unwrap();
    let calls = std::fs::read_to_string(calls).unwrap();
    calls.lines().filter(|call| call.contains(" delete ")).map(|call| call.contains("--force")).collect()
}

/// runc waits 100 ms in every delete with `--force`.
#[test]
fn a_container_that_has_ended_is_deleted_without_force() {
    run(async {
        let test = TestContainer::new(&["true"], |_| {});
        let created = create(&test).await;
        test.container.start().await.unwrap();
        within(created.exit).await;
        assert_eq!(forced_calls(&test).await, [false]);
    });
}

/// The caller was wrong about its state, or its group is frozen.
#[test]
fn a_container_that_the_runtime_refuses_to_delete_is_deleted_by_force() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        test.container.start().await.unwrap();
        assert_eq!(forced_calls(&test).await, [false, true]);
        assert_eq!(within(created.exit).await.signal, Some(9));
    });
}

#[test]
fn delete_is_idempotent() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        test.container.delete(DeleteMode::Force).await.unwrap();
        assert_eq!(within(created.exit).await.signal, Some(9));
        test.container.delete(DeleteMode::Force).await.unwrap();
        test.container.delete(DeleteMode::Ended).await.unwrap();
    });
}

/// N3: containerd 1.7 removes a dead shim's bundles while the shim's containers are being ended.
#[test]
fn n3_delete_by_force_needs_no_bundle() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        std::fs::remove_dir_all(test.container.bundle().path()).unwrap();
        test.container.delete(DeleteMode::Force).await.unwrap();
        assert_eq!(within(created.exit).await.signal, Some(9));
    });
}

/// runc 1.3 reports this failure, 1.1 does not. A second delete would succeed, because nothing is left. The hook reads
/// its standard input: SIGPIPE kills crun 1.8 where a hook ends before crun has written the state to it.
#[test]
fn a_poststop_hook_that_fails_is_reported_as_the_runtime_does() {
    run(async {
        let hook = json!({"poststop": [{"path": "/bin/sh", "args": ["sh", "-c", "cat >/dev/null; exit 1"]}]});
        let test = TestContainer::new(&["true"], |spec| spec["hooks"] = hook);
        let created = create(&test).await;
        test.container.start().await.unwrap();
        within(created.exit).await;
        let by_the_runtime_alone = test.container.try_delete(DeleteMode::Ended).await.is_err();
        let created = create(&test).await;
        test.container.start().await.unwrap();
        within(created.exit).await;
        assert_eq!(test.container.delete(DeleteMode::Ended).await.is_err(), by_the_runtime_alone);
    });
}
