//! Runtimes that fail after their work, in the middle of it, or never come to an end: in front of the real one.

use std::{os::unix::fs::PermissionsExt, rc::Rc};

use super::*;
use crate::{
    runtime::{CgroupDriver, CreateOptions, Launched, Runtime},
    stdio::ChildStdio,
    test_support::{TestContainer, process, run, run_for_any_time, runtime_binary, until, within},
};

/// How a runtime can end that has done its work, and what is said of it.
const LATE_ENDS: [(&str, &str); 2] =
    [("exit 1", "ended with exit status 1"), ("kill -KILL $$", "was killed by signal 9")];

/// The container of a test, by a runtime that is the real one but for what `script` does to some commands. There `real`
/// calls that one, and `$command` is the command.
fn container_by(test: &TestContainer, script: &str) -> Container {
    let path = test.path("faulty-runtime");
    let head = "#!/bin/sh\nfor command; do case $command in create|start|exec|delete|pause|resume) break ;; esac; done";
    let real = format!("real() {{ {} \"$@\"; }}", runtime_binary());
    std::fs::write(&path, format!("{head}\n{real}\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let runtime = Runtime::new(test.reaper.clone(), path, test.path("root"), CgroupDriver::Cgroupfs);
    Rc::new(runtime).container(test.container.id(), test.container.bundle().clone())
}

fn failing_after(test: &TestContainer, command: &str, end: &str) -> Container {
    container_by(test, &format!("real \"$@\" || exit\nif [ $command = {command} ]; then {end}; fi"))
}

async fn create(container: &Container) -> Result<Launched, RuntimeError> {
    container.create(ChildStdio::null(), CreateOptions::default()).await
}

async fn started(test: &TestContainer) -> (Launched, Cgroup) {
    let created = create(&test.container).await.unwrap();
    test.container.start().await.unwrap();
    let cgroup = Cgroup::of_pid(created.process.pid()).unwrap();
    (created, cgroup)
}

async fn kill(launched: Launched) {
    launched.process.signal(SignalNumber::KILL).unwrap();
    within(launched.exit).await;
}

/// Each with a reaper of its own: two in one task set would take each other's exits.
fn for_each_late_end(test: impl AsyncFn(&str, &str)) {
    for (end, words) in LATE_ENDS {
        run(test(end, words));
    }
}

#[test]
fn a_create_that_fails_after_its_work_leaves_no_container() {
    for_each_late_end(async |end, words| {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let error = create(&failing_after(&test, "create", end)).await.unwrap_err().to_string();
        assert!(error.starts_with("OCI runtime create failed: ") && error.contains(words), "{error}");
        assert!(test.container.state().await.unwrap_err().is_not_found());
        assert!(!test.container.bundle().init_pid_path().exists());
        // And the next try has the id.
        kill(create(&test.container).await.unwrap()).await;
    });
}

/// One that is refused the id has made nothing: the container is another's.
#[test]
fn a_create_that_is_refused_leaves_the_container_that_is_there() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let first = create(&test.container).await.unwrap();
        create(&test.container).await.unwrap_err();
        assert!(first.process.is_running());
        kill(first).await;
    });
}

/// As N3 has it for the shim: the runtime dies before it notes the container.
#[test]
fn a_create_that_is_killed_in_the_middle_leaves_no_cgroup() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let id = test.container.id();
        let script = format!(
            "if [ $command = create ]; then
                 sleep 1000 >/dev/null 2>&1 &
                 for controller in memory pids; do
                     mkdir /sys/fs/cgroup/$controller/{id}
                     echo $! >/sys/fs/cgroup/$controller/{id}/cgroup.procs
                 done
                 echo $! >{bundle}/half-made
                 kill -KILL $$
             fi
             real \"$@\"",
            bundle = test.container.bundle().path().display()
        );
        let error = create(&container_by(&test, &script)).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Killed { .. }), "{error}");
        for controller in ["memory", "pids"] {
            assert!(!Path::new("/sys/fs/cgroup").join(controller).join(id).exists(), "{controller}");
        }
        let half_made = std::fs::read_to_string(test.container.bundle().path().join("half-made")).unwrap();
        until(|| !Path::new("/proc").join(half_made.trim()).exists()).await;
    });
}

#[test]
fn an_exec_that_fails_after_its_work_leaves_no_process() {
    for_each_late_end(async |end, words| {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = started(&test).await;
        let container = failing_after(&test, "exec", end);
        let failed = container.exec("e", &process(&["sleep", "900"]), ChildStdio::null(), None).await;
        let error = failed.unwrap_err().to_string();
        assert!(error.starts_with("OCI runtime exec failed: ") && error.contains(words), "{error}");
        until(|| cgroup.pids().len() == 1).await;
        assert!(created.process.is_running());
        kill(created).await;
    });
}

#[test]
fn a_pause_that_fails_after_its_work_leaves_everybody_running() {
    for_each_late_end(async |end, words| {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = started(&test).await;
        let error = failing_after(&test, "pause", end).pause(Some(&cgroup)).await.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        kill(created).await;
    });
}

/// K17: else nothing could ever end it.
#[test]
fn k17_a_container_is_thawed_whatever_its_runtime_does() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = started(&test).await;
        test.container.pause(Some(&cgroup)).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        let container = container_by(&test, "[ $command != resume ] || exit 1\nreal \"$@\"");
        container.resume(Some(&cgroup)).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        // One that is not paused is refused in the runtime's words, as ever.
        assert!(container.resume(Some(&cgroup)).await.is_err());
        kill(created).await;
    });
}

/// A hook is what hangs most easily: it is ended with the runtime that waits for it.
#[test]
fn a_create_that_never_ends_is_killed_with_what_it_waits_for() {
    run_for_any_time(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let hook = test.container.bundle().path().join("hook");
        let script = format!(
            "if [ $command = create ]; then sleep 1000 & echo $! >{hook}; wait; fi\nreal \"$@\"",
            hook = hook.display()
        );
        let container = container_by(&test, &script);
        let limit = Operation::Create.time_limit();
        let in_time = async {
            until(|| std::fs::read_to_string(&hook).is_ok_and(|pid| !pid.is_empty())).await;
            tokio::time::pause();
            tokio::time::advance(limit).await;
            tokio::time::resume();
        };
        let (created, ()) = tokio::join!(create(&container), in_time);
        let error = created.unwrap_err();
        assert!(matches!(error, RuntimeError::TimedOut { .. }), "{error}");
        let hook = std::fs::read_to_string(&hook).unwrap();
        let is_alive = || std::fs::read_to_string(format!("/proc/{}/stat", hook.trim()));
        until(|| is_alive().map_or(true, |stat| stat.contains(") Z "))).await;
        assert!(test.container.state().await.unwrap_err().is_not_found());
    });
}
