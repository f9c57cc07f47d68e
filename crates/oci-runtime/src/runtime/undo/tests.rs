//! Runtimes that fail after their work, in the middle of it, or never end: scripts in front of the real one.

use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;

use cgroups::{Cgroup, CgroupDriver, FreezeState};
use processes::SignalNumber;
use streams::stdio::ChildStdio;
use test_support::{run, run_for_any_time, until, until_ended, within};

use super::*;
use crate::runtime::{AfterCheckpoint, CheckpointOptions, CreateOptions, Launched, RestoreOptions, Runtime};
use crate::test_container::{TestContainer, process, runtime_binary};

/// How a runtime can end after it has done its work, and what its error says.
const LATE_ENDS: [(&str, &str); 2] =
    [("exit 1", "ended with exit status 1"), ("kill -KILL $$", "was killed by signal 9")];

/// What a runtime that has done its work can report as the new pid: an invalid one, none, that of another process.
const WRONG_PIDS: [&str; 4] =
    ["echo '-7 x' >$pid_file", "rm $pid_file", "cat $bundle/init.pid >$pid_file", "echo 1 >$pid_file"];

/// A restore for machines without criu: a create and a start.
const RESTORE: &str = "
if [ $command = restore ]; then
    globals= options=
    while [ $1 != restore ]; do globals=\"$globals $1\"; shift; done
    while [ $# -gt 1 ]; do
        case $1 in --bundle | --pid-file) options=\"$options $1 $2\"; shift ;; esac
        shift
    done
    real $globals create $options $1 && real $globals start $1 || exit
fi";

/// A container whose runtime is the real one, except for what `script` does with some commands. In it, `real` calls the
/// real runtime, `$command` is the command, and `$pid_file` and `$bundle` are the paths of those.
fn container_by(test: &TestContainer, script: &str) -> Container {
    let path = test.path("faulty-runtime");
    let head = "#!/bin/sh
before= pid_file=
for word; do [ \"$before\" != --pid-file ] || pid_file=$word; before=$word; done
for command; do
    case $command in create|start|exec|delete|pause|resume|update|state|checkpoint|restore) break ;; esac
done";
    let bundle = test.container.bundle().path().display();
    let real = format!("real() {{ {} \"$@\"; }}\nbundle={bundle}", runtime_binary());
    std::fs::write(&path, format!("{head}\n{real}\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let runtime = Runtime::new(test.reaper.clone(), path, test.path("root"), CgroupDriver::Cgroupfs);
    let container = Rc::new(runtime).container(test.container.id(), test.container.bundle().clone());
    container.in_groups(test.container.cgroups_path().map(str::to_owned))
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

/// Runs each with a reaper of its own: two in one task set would take each other's exits.
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
        // The next try can use the id.
        kill(create(&test.container).await.unwrap()).await;
    });
}

/// A create whose id is refused has made nothing: the container is another caller's.
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

/// Like the shim's death in N3: the runtime dies before it records the container.
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

/// As crun 1.21 in a pid namespace whose process 1 has just been killed (K16).
#[test]
fn k16_a_create_that_fails_leaves_no_empty_cgroup() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let group = |controller: &str| Path::new("/sys/fs/cgroup").join(controller).join(test.container.id());
        let script = format!(
            "if [ $command = create ]; then
                 mkdir {} {} && echo clone: Cannot allocate memory >&2 && exit 1
             fi
             real \"$@\"",
            group("memory").display(),
            group("pids").display()
        );
        let error = create(&container_by(&test, &script)).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Failed { .. }), "{error}");
        assert!(!group("memory").exists() && !group("pids").exists());
        // With a process in it, it is another container's.
        let other = create(&test.container).await.unwrap();
        let error = create(&container_by(&test, "[ $command != create ] || exit 1; real \"$@\"")).await;
        assert!(matches!(error.unwrap_err(), RuntimeError::Failed { .. }));
        assert!(group("memory").exists() && other.process.is_running());
        kill(other).await;
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

/// K17: otherwise nothing could ever end it.
#[test]
fn k17_a_container_is_thawed_whatever_its_runtime_does() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, cgroup) = started(&test).await;
        test.container.pause(Some(&cgroup)).await.unwrap();
        // crun answers before the kernel has frozen the last thread (cgroup v1).
        until(|| cgroup.freeze_state() == FreezeState::Frozen).await;
        let container = container_by(&test, "[ $command != resume ] || exit 1\nreal \"$@\"");
        container.resume(Some(&cgroup)).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        // For a container that is not paused, the runtime's own refusal is returned, as usual.
        assert!(container.resume(Some(&cgroup)).await.is_err());
        kill(created).await;
    });
}

/// A hook hangs most easily: it is killed together with the runtime that waits for it.
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
        until_ended(&hook).await;
        assert!(test.container.state().await.unwrap_err().is_not_found());
    });
}

#[test]
fn an_exec_whose_process_is_not_named_leaves_none() {
    for wrong in WRONG_PIDS {
        for end in ["exit 0", "exit 1"] {
            run(async {
                let test = TestContainer::new(&["sleep", "1000"], |_| {});
                let (created, cgroup) = started(&test).await;
                let container = failing_after(&test, "exec", &format!("{wrong}; {end}"));
                let failed = container.exec("e", &process(&["sleep", "900"]), ChildStdio::null(), None).await;
                let error = failed.unwrap_err().to_string();
                assert!(error.starts_with("OCI runtime exec "), "{error}");
                until(|| cgroup.pids().len() == 1).await;
                assert!(created.process.is_running(), "{wrong}");
                kill(created).await;
            });
        }
    }
}

/// An exec fails while another one is still running, whose runtime has not reported its process yet either; that one
/// then ends with `end`. Returns its result, the container's first process and its groups.
async fn beside_a_slow_exec(
    test: &TestContainer,
    end: &str,
) -> (Result<Launched, RuntimeError>, Launched, Cgroup) {
    let (created, cgroup) = started(test).await;
    let slow = format!("while ! [ -e $bundle/go ]; do sleep 0.01; done; {end}; exit 0");
    let program = process(&["sleep", "900"]);
    let slow = failing_after(test, "exec", &slow);
    let other = slow.exec("other", &program, ChildStdio::null(), None);
    let wrong = async {
        // The slow script has been read by now: both runtimes of this test are the same file.
        until(|| cgroup.pids().len() == 2).await;
        let wrong = failing_after(test, "exec", "rm $pid_file; exit 0");
        wrong.exec("wrong", &program, ChildStdio::null(), None).await.unwrap_err();
        assert_eq!(cgroup.pids().len(), 3, "no call can claim them yet");
        std::fs::write(test.container.bundle().path().join("go"), "").unwrap();
    };
    let (other, ()) = tokio::join!(other, wrong);
    (other, created, cgroup)
}

#[test]
fn an_exec_whose_process_is_not_named_does_no_harm_to_another() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (other, created, cgroup) = beside_a_slow_exec(&test, "true").await;
        let other = other.unwrap();
        until(|| cgroup.pids().len() == 2).await;
        assert!(other.process.is_running() && created.process.is_running());
        kill(other).await;
        kill(created).await;
    });
}

/// Neither waits for the subscription of the other exec.
#[test]
fn two_execs_whose_processes_are_not_named_leave_none() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (other, created, cgroup) = beside_a_slow_exec(&test, "rm $pid_file").await;
        other.unwrap_err();
        until(|| cgroup.pids().len() == 1).await;
        assert!(created.process.is_running());
        kill(created).await;
    });
}

async fn restore(container: &Container) -> Result<Launched, RuntimeError> {
    let options = RestoreOptions {
        image_path: Path::new("/nonexistent"),
        parent_path: None,
        work_path: None,
        criu_path: None,
        create: CreateOptions::default(),
    };
    container.restore(ChildStdio::null(), options).await
}

#[test]
fn a_restore_that_goes_wrong_leaves_nothing_and_can_be_tried_again() {
    let wrong = WRONG_PIDS.map(|wrong| format!("{wrong}; exit 0"));
    let late = LATE_ENDS.map(|(end, _)| end.to_owned());
    let script = |end: &str| format!("{RESTORE}\nif [ $command = restore ]; then {end}; fi\nreal \"$@\"");
    // Runtimes that fail before their work too; what they write into the pid file may be invalid then as well.
    let early = LATE_ENDS.map(|(end, _)| end).into_iter().chain(["echo '-7 x' >$pid_file; exit 1"]);
    let early = early.map(|end| format!("if [ $command = restore ]; then {end}; fi\nreal \"$@\""));
    for faulty in late.iter().chain(&wrong).map(|end| script(end)).chain(early) {
        run(async {
            let test = TestContainer::new(&["sleep", "1000"], |_| {});
            let error = restore(&container_by(&test, &faulty)).await.unwrap_err().to_string();
            assert!(error.starts_with("OCI runtime restore "), "{error}");
            assert!(test.container.state().await.unwrap_err().is_not_found(), "{faulty}");
            assert!(!Path::new("/sys/fs/cgroup/memory").join(test.container.id()).exists(), "{faulty}");
            kill(restore(&container_by(&test, &script("exit 0"))).await.unwrap()).await;
        });
    }
}

/// A half-made container as in N3, made by a restore.
#[test]
fn a_restore_that_is_killed_in_the_middle_leaves_no_cgroup() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let group = Path::new("/sys/fs/cgroup/memory").join(test.container.id());
        let script = format!(
            "if [ $command = restore ]; then
                 sleep 1000 >/dev/null 2>&1 &
                 mkdir {group} && echo $! >{group}/cgroup.procs && kill -KILL $$
             fi
             real \"$@\"",
            group = group.display()
        );
        let error = restore(&container_by(&test, &script)).await.unwrap_err();
        assert!(matches!(error, RuntimeError::Killed { .. }), "{error}");
        assert!(!group.exists());
    });
}

/// K17: criu freezes the container for its work.
#[test]
fn k17_a_checkpoint_that_goes_wrong_leaves_everybody_running() {
    for (end, words) in LATE_ENDS {
        for freezes in ["false", "true"] {
            run(async {
                let test = TestContainer::new(&["sleep", "1000"], |_| {});
                let (created, cgroup) = started(&test).await;
                let (root, id) = (test.path("root"), test.container.id());
                let script = format!(
                    "if [ $command = checkpoint ]; then
                         mkdir $bundle/criu-work
                         if {freezes}; then real --root {root} pause {id}; fi
                         {end}
                     fi
                     real \"$@\"",
                    root = root.display()
                );
                let container = container_by(&test, &script);
                let options = CheckpointOptions {
                    after: AfterCheckpoint::LeaveRunning,
                    ..CheckpointOptions::default()
                };
                let image = test.path("image");
                let error =
                    container.checkpoint(&image, &options, Some(&cgroup)).await.unwrap_err().to_string();
                assert!(error.contains(words), "{error}");
                assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
                assert!(!test.container.bundle().path().join("criu-work").exists());
                assert!(created.process.is_running());
                kill(created).await;
            });
        }
    }
}

/// Advances the clock when the runtime hangs, which the runtime shows by a file. Returns the call's result when the
/// process that the runtime waited for is gone.
async fn hung<T>(test: &TestContainer, operation: Operation, call: impl Future<Output = T>) -> T {
    let child = test.container.bundle().path().join("hanging");
    let in_time = async {
        until(|| std::fs::read_to_string(&child).is_ok_and(|pid| pid.ends_with('\n'))).await;
        tokio::time::pause();
        tokio::time::advance(operation.time_limit()).await;
        tokio::time::resume();
    };
    let (answer, ()) = tokio::join!(call, in_time);
    until_ended(&std::fs::read_to_string(&child).unwrap()).await;
    std::fs::remove_file(child).unwrap();
    answer
}

/// Every command that hangs is killed after its limit, and the container can be used and ended as before.
#[test]
fn a_command_that_never_ends_is_killed_and_changes_nothing() {
    run_for_any_time(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let hanging = |operation: Operation| {
            let script = "sleep 1000 & echo $! >$bundle/hanging; wait";
            container_by(&test, &format!("if [ $command = {operation} ]; then {script}; fi\nreal \"$@\""))
        };
        let timed_out = |answer: Result<(), RuntimeError>, operation: Operation| {
            let error = answer.unwrap_err();
            assert!(matches!(error, RuntimeError::TimedOut { .. }), "{error}");
            let expected =
                format!("OCI runtime {operation} of container {:?} took more than", test.container.id());
            assert!(error.to_string().starts_with(&expected), "{error}");
        };
        let container = hanging(Operation::Restore);
        timed_out(hung(&test, Operation::Restore, restore(&container)).await.map(drop), Operation::Restore);
        assert!(test.container.state().await.unwrap_err().is_not_found());

        let created = create(&test.container).await.unwrap();
        let cgroup = Cgroup::of_pid(created.process.pid()).unwrap();
        let container = hanging(Operation::Start);
        timed_out(hung(&test, Operation::Start, container.start()).await, Operation::Start);
        test.container.start().await.unwrap();
        let container = hanging(Operation::Update);
        timed_out(hung(&test, Operation::Update, container.update(b"{}")).await, Operation::Update);
        let container = hanging(Operation::State);
        timed_out(hung(&test, Operation::State, container.state()).await.map(drop), Operation::State);
        let container = hanging(Operation::Pause);
        timed_out(hung(&test, Operation::Pause, container.pause(Some(&cgroup))).await, Operation::Pause);
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        let container = hanging(Operation::Checkpoint);
        let (image, options) = (test.path("image"), CheckpointOptions::default());
        let checkpoint = container.checkpoint(&image, &options, Some(&cgroup));
        timed_out(hung(&test, Operation::Checkpoint, checkpoint).await, Operation::Checkpoint);
        // K17: podshim thaws it without the runtime.
        test.container.pause(Some(&cgroup)).await.unwrap();
        let container = hanging(Operation::Resume);
        hung(&test, Operation::Resume, container.resume(Some(&cgroup))).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        let container = hanging(Operation::Exec);
        let program = process(&["true"]);
        let exec = container.exec("e", &program, ChildStdio::null(), None);
        timed_out(hung(&test, Operation::Exec, exec).await.map(drop), Operation::Exec);
        assert_eq!(cgroup.pids().len(), 1);
        let container = hanging(Operation::Delete);
        timed_out(
            hung(&test, Operation::Delete, container.delete(DeleteMode::Force)).await,
            Operation::Delete,
        );
        assert!(created.process.is_running());
        kill(created).await;
        test.container.delete(DeleteMode::Force).await.unwrap();
    });
}

/// H3, T6, trap 7: the container's exit is reported after those of its execs; that must not take two minutes.
#[test]
fn an_exec_that_never_ends_is_killed_when_its_container_has_ended() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (created, _) = started(&test).await;
        let child = test.container.bundle().path().join("hanging");
        let container = container_by(&test, "sleep 1000 & echo $! >$bundle/hanging; wait");
        let program = process(&["true"]);
        let exec = container.exec("e", &program, ChildStdio::null(), None);
        let (failed, ()) = tokio::join!(exec, async {
            until(|| std::fs::read_to_string(&child).is_ok_and(|pid| pid.ends_with('\n'))).await;
            kill(created).await;
        });
        let error = failed.unwrap_err();
        assert!(matches!(error, RuntimeError::Outlived { .. }), "{error}");
        until_ended(&std::fs::read_to_string(&child).unwrap()).await;
    });
}
