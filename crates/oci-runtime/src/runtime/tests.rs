//! The driver against the real runc, with a busybox in a bundle.

use std::rc::Rc;
use std::time::Duration;

use cgroups::{Cgroup, CgroupDriver, FreezeState};
use processes::reaper::Exit;
use processes::{ExecOutcome, SignalDelivery, SignalNumber};
use streams::stdio::{Attempt, ChildStdio, Stdio, StdioPaths, StreamOwner};
use test_support::{DEADLINE, make_fifo, open_reader, read_available, read_to_end, run, within};
use tokio::time::Instant;

use super::call::SERVICE_MANAGER_VARIABLES;
use super::*;
use crate::test_container::{TestContainer, process};

async fn create(test: &TestContainer) -> Launched {
    test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap()
}

async fn kill(launched: Launched) -> Exit {
    launched.process.signal(SignalNumber::KILL).unwrap();
    within(launched.exit).await
}

async fn exec(test: &TestContainer, arguments: &[&str]) -> Exit {
    let launched = test.container.exec("probe", &process(arguments), ChildStdio::null(), None).await.unwrap();
    within(launched.exit).await
}

/// A shell script instead of the runtime.
fn fake_runtime(test: &TestContainer, script: &str) -> Rc<Runtime> {
    let path = test.path("fake-runtime");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    Rc::new(Runtime::new(test.reaper.clone(), path, "/r", CgroupDriver::Cgroupfs))
}

#[test]
fn a_container_is_created_started_and_its_exit_seen() {
    run(async {
        let test = TestContainer::new(&["sh", "-c", "echo hello; echo oops >&2; exit 7"], |_| {});
        let (stdout, stderr) = (make_fifo(&test.path(""), "out"), make_fifo(&test.path(""), "err"));
        let (out, err) = (open_reader(&stdout), open_reader(&stderr));
        let paths = StdioPaths { stdout, stderr, ..StdioPaths::default() };
        let mut stdio = Stdio::open(&paths, StreamOwner::default()).unwrap();
        let Attempt { child, held_back } = stdio.attempt().unwrap();
        let created = test.container.create(child, CreateOptions::default()).await.unwrap();
        stdio.connect().await.unwrap();
        stdio.accept(held_back);
        assert_eq!(test.container.state().await.unwrap().status, RuntimeStatus::Created);
        assert_eq!(test.container.bundle().read_init_pid().unwrap(), created.process.pid());
        assert_eq!(read_available(&out), "");
        test.container.start().await.unwrap();
        stdio.finish_output();
        assert_eq!(within(created.exit).await.code, 7);
        // EOF: neither runc nor the driver keeps a copy of the container's streams.
        assert_eq!(read_to_end(&out).await, "hello\n");
        assert_eq!(read_to_end(&err).await, "oops\n");
        assert_eq!(test.container.state().await.unwrap().status, RuntimeStatus::Stopped);
        test.container.delete(DeleteMode::Ended).await.unwrap();
        assert!(test.container.state().await.unwrap_err().is_not_found());
    });
}

#[test]
fn u1_the_exec_of_the_user_program_is_seen() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        let init = created.runtime_init.unwrap();
        let soon = Instant::now() + Duration::from_millis(50);
        assert_eq!(created.process.wait_for_exec(init, soon).await, ExecOutcome::TimedOut);
        test.container.start().await.unwrap();
        let outcome = created.process.wait_for_exec(init, Instant::now() + DEADLINE).await;
        assert_eq!(outcome, ExecOutcome::Executed);
        assert_eq!(kill(created).await.code, 137);
    });
}

#[test]
fn xp_1_exec_works_in_a_created_container() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        assert_eq!(exec(&test, &["sh", "-c", "echo here > /tmp/file; exit 3"]).await.code, 3);
        assert_eq!(test.read("tmp/file"), "here\n");
        // Neither the process document nor the pid file remains.
        assert!(!test.container.bundle().exec_process_path("probe").unwrap().exists());
        assert!(!test.container.bundle().exec_pid_path("probe").unwrap().exists());
        kill(created).await;
    });
}

#[test]
fn k3_a_kill_ends_a_created_container() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        // Only KILL: as pid 1 of its namespace, crun's init ignores a TERM, and runc's init exits with 2 instead of
        // dying of it.
        assert_eq!(created.process.signal(SignalNumber::KILL).unwrap(), SignalDelivery::Delivered);
        assert_eq!(within(created.exit).await.signal, Some(9));
        let error = test.container.start().await.unwrap_err();
        assert!(error.to_string().starts_with("OCI runtime start failed: "), "{error}");
    });
}

#[test]
fn xp_3_a_container_is_created_again_in_its_bundle_with_its_writes_and_streams() {
    run(async {
        let test = TestContainer::new(&["sh", "-c", "echo run >> /tmp/file; cat /tmp/file"], |_| {});
        let stdout = make_fifo(&test.path(""), "out");
        let out = open_reader(&stdout);
        let paths = StdioPaths { stdout, ..StdioPaths::default() };
        let mut stdio = Stdio::open(&paths, StreamOwner::default()).unwrap();
        for _ in 0..2 {
            let Attempt { child, held_back } = stdio.attempt().unwrap();
            let created = test.container.create(child, CreateOptions::default()).await.unwrap();
            stdio.connect().await.unwrap();
            stdio.accept(held_back);
            test.container.start().await.unwrap();
            assert_eq!(within(created.exit).await.code, 0);
            test.container.delete(DeleteMode::Ended).await.unwrap();
        }
        stdio.finish_output();
        assert_eq!(read_to_end(&out).await, "run\nrun\nrun\n");
    });
}

#[test]
fn a_missing_program_is_reported_in_the_words_of_the_runtime_and_leaves_nothing() {
    run(async {
        let test = TestContainer::new(&["no-such-program"], |_| {});
        let error = test
            .container
            .create(ChildStdio::null(), CreateOptions::default())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("OCI runtime create failed: "), "{error}");
        assert!(error.contains("no-such-program") && error.contains("not found in $PATH"), "{error}");
        assert!(test.container.state().await.unwrap_err().is_not_found());
        assert!(!test.container.bundle().init_pid_path().exists());
    });
}

#[test]
fn what_a_failing_runtime_says_on_stderr_is_not_in_the_containers_log() {
    run(async {
        let test = TestContainer::new(&["true"], |_| {});
        let runtime = fake_runtime(&test, "echo from the runtime >&2; exit 1");
        let container = runtime.container("c", test.container.bundle().clone());
        let stderr = make_fifo(&test.path(""), "err");
        let err = open_reader(&stderr);
        let paths = StdioPaths { stderr, ..StdioPaths::default() };
        let stdio = Stdio::open(&paths, StreamOwner::default()).unwrap();
        container.create(stdio.attempt().unwrap().child, CreateOptions::default()).await.unwrap_err();
        drop(stdio);
        assert_eq!(read_to_end(&err).await, "");
    });
}

#[test]
fn a_missing_program_of_an_exec_leaves_the_container_alone() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        test.container.start().await.unwrap();
        let failed = test.container.exec("e", &process(&["no-such"]), ChildStdio::null(), None).await;
        let error = failed.unwrap_err();
        assert!(error.to_string().contains("no-such"), "{error}");
        assert!(!error.is_not_found());
        assert!(!test.container.bundle().exec_process_path("e").unwrap().exists());
        assert_eq!(exec(&test, &["true"]).await.code, 0);
        kill(created).await;
        let error =
            test.container.exec("e", &process(&["true"]), ChildStdio::null(), None).await.unwrap_err();
        assert!(error.is_not_running(), "{error}");
    });
}

#[test]
fn a_missing_runtime_and_a_taken_id_are_clear_errors() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let nowhere =
            Runtime::new(test.reaper.clone(), "/no/runc", test.path("root"), CgroupDriver::Cgroupfs);
        let error =
            Rc::new(nowhere).container("c", test.container.bundle().clone()).start().await.unwrap_err();
        assert!(error.to_string().contains("cannot run the OCI runtime /no/runc to start container \"c\""));
        let created = create(&test).await;
        let error = test.container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap_err();
        assert!(error.to_string().contains("exist"), "{error}");
        // The refused create must not have removed the first container.
        assert!(created.process.is_running());
        kill(created).await;
    });
}

#[test]
fn an_error_of_an_earlier_call_is_not_reported_again() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        std::fs::write(test.container.bundle().log_path(), "{\"level\":\"error\",\"msg\":\"old\"}\n")
            .unwrap();
        let runtime = Runtime::new(test.reaper.clone(), "false", test.path("root"), CgroupDriver::Cgroupfs);
        let container = Rc::new(runtime).container("c", test.container.bundle().clone());
        let error = container.start().await.unwrap_err();
        assert_eq!(error.to_string(), "OCI runtime start failed: false ended with exit status 1");
    });
}

#[test]
fn pause_resume_and_update_reach_the_container() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        let cgroup = Cgroup::of_pid(created.process.pid()).unwrap();
        test.container.update(br#"{"pids":{"limit":77}}"#).await.unwrap();
        test.container.start().await.unwrap();
        test.container.pause(None).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Frozen);
        assert_eq!(test.container.state().await.unwrap().status, RuntimeStatus::Paused);
        test.container.resume(None).await.unwrap();
        assert_eq!(cgroup.freeze_state(), FreezeState::Thawed);
        let cgroups::Stats::V1(stats) = cgroup.stats() else {
            panic!("this test knows cgroup v1 only");
        };
        assert_eq!(stats.pids.unwrap().limit, 77);
        kill(created).await;
    });
}

#[test]
fn a_wrong_update_tells_why() {
    run(async {
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let created = create(&test).await;
        let error = test.container.update(b"{").await.unwrap_err();
        assert!(error.to_string().starts_with("OCI runtime update failed: "), "{error}");
        kill(created).await;
    });
}

#[test]
fn a_runtime_that_hangs_is_killed_at_its_limit() {
    run(async {
        let test = TestContainer::new(&["true"], |_| {});
        let runtime = fake_runtime(&test, "exec sleep 1000");
        let container = runtime.container("c", test.container.bundle().clone());
        // Virtual time: the limit passes as soon as nothing else can happen.
        tokio::time::pause();
        let error = container.state().await.unwrap_err();
        assert!(matches!(error, RuntimeError::TimedOut { .. }), "{error}");
        tokio::time::resume();
    });
}

#[test]
fn a_state_that_is_none_is_an_error() {
    run(async {
        let test = TestContainer::new(&["true"], |_| {});
        for answer in
            ["true", "echo nonsense", "echo []", "echo '{\"status\": \"odd\"}'", "echo '{\"pid\": 1}'"]
        {
            let container = fake_runtime(&test, answer).container("c", test.container.bundle().clone());
            let error = container.state().await.unwrap_err();
            assert!(matches!(error, RuntimeError::Output { .. }), "{answer}: {error}");
        }
    });
}

#[test]
fn the_service_managers_variables_of_containerd_do_not_reach_the_runtime() {
    run(async {
        for variable in SERVICE_MANAGER_VARIABLES {
            #[expect(clippy::disallowed_methods, reason = "the shim inherits them from containerd's unit")]
            // SAFETY: each test has a process of its own, and no other thread of it reads the environment.
            unsafe {
                std::env::set_var(variable, "1");
            }
        }
        let test = TestContainer::new(&["true"], |_| {});
        let environment = test.path("environment");
        let runtime = fake_runtime(&test, &format!("env > {}", environment.display()));
        runtime.container("c", test.container.bundle().clone()).start().await.unwrap();
        let environment = std::fs::read_to_string(environment).unwrap();
        assert!(environment.contains("PATH="));
        for variable in SERVICE_MANAGER_VARIABLES {
            assert!(!environment.contains(variable), "{environment}");
        }
    });
}

#[test]
fn a_runtime_that_is_a_brief_go_program_is_called_as_that() {
    run(async {
        let test = TestContainer::new(&["true"], |_| {});
        let environment = test.path("environment");
        let runtime = fake_runtime(&test, &format!("env > {}", environment.display()));
        for (kind, expected) in [(CallEnvironment::Shims, 0), (CallEnvironment::BriefGoProgram, 2)] {
            let runtime = Rc::new(Runtime::clone(&runtime).with_environment(kind));
            runtime.container("c", test.container.bundle().clone()).start().await.unwrap();
            let environment = std::fs::read_to_string(&environment).unwrap();
            let found =
                environment.lines().filter(|line| ["GOGC=off", "GOMAXPROCS=1"].contains(line)).count();
            assert_eq!(found, expected, "{kind:?}: {environment}");
        }
    });
}

#[test]
fn early_exits_are_never_lost_over_many_short_containers() {
    run(async {
        let test = TestContainer::new(&["sh", "-c", "exit 9"], |_| {});
        for _ in 0..5 {
            let created = create(&test).await;
            test.container.start().await.unwrap();
            assert_eq!(within(created.exit).await.code, 9);
            test.container.delete(DeleteMode::Ended).await.unwrap();
        }
    });
}

/// D6: wrappers of the runtime read ./config.json (containerd's TestIssue9103, TestIssue10589). Without a bundle there is none.
#[test]
fn d6_the_runtime_is_called_in_the_bundle() {
    run(async {
        let test = TestContainer::new(&["true"], |_| {});
        let seen = test.path("seen");
        let runtime =
            fake_runtime(&test, &format!("ls -d \"$PWD\" ./config.json >> {}; exit 1", seen.display()));
        let container = runtime.container("c", test.container.bundle().clone());
        container.create(ChildStdio::null(), CreateOptions::default()).await.unwrap_err();
        container.start().await.unwrap_err();
        container.exec("e", &process(&["true"]), ChildStdio::null(), None).await.unwrap_err();
        container.update(b"{}").await.unwrap_err();
        container.delete(DeleteMode::Force).await.unwrap_err();
        let bundle = test.container.bundle().path().display();
        let seen = std::fs::read_to_string(seen).unwrap();
        assert!(seen.lines().count() >= 10, "{seen}");
        assert_eq!(seen.replace(&format!("./config.json\n{bundle}\n"), ""), "", "{seen}");
        let nowhere = runtime.container("c", crate::bundle::Bundle::new(test.path("gone")));
        let error = nowhere.start().await.unwrap_err();
        assert!(matches!(error, RuntimeError::Failed { .. }), "{error}");
    });
}

/// A process's streams with a stderr of their own, as of a container that runs for the first time.
fn with_stderr(test: &TestContainer) -> (Stdio, std::fs::File) {
    let stderr = make_fifo(&test.path(""), "err");
    let err = open_reader(&stderr);
    let paths = StdioPaths { stderr, ..StdioPaths::default() };
    (Stdio::open(&paths, StreamOwner::default()).unwrap(), err)
}

/// D7: runc repeats all of it on the stderr that it shares with the process. On 981875e7 it blocked there for two minutes.
#[test]
fn d7_a_runtime_with_much_to_say_is_answered_at_once_with_its_reason() {
    run(async {
        let long = "x".repeat(100_000);
        let test = TestContainer::new(&["sleep", "1000"], |_| {});
        let (stdio, err) = with_stderr(&test);
        let created = create(&test).await;
        let attempt = stdio.attempt().unwrap();
        let failed = within(test.container.exec("e", &process(&[&long]), attempt.child, None)).await;
        let error = failed.unwrap_err().to_string();
        assert!(error.starts_with("OCI runtime exec failed: ") && error.len() < 20_000, "{error}");
        // crun 1.8 and 1.28 do not repeat the command.
        let is_runcs = error.contains("xxxx") && error.contains("executable file not found");
        assert!(is_runcs || error.ends_with("File name too long"), "{error}");
        // Nor does any of it reach the log.
        drop(stdio);
        assert_eq!(read_to_end(&err).await, "");
        kill(created).await;
    });
}

/// D7 for a create, whose hook is the pod author's.
#[test]
fn d7_a_hook_with_much_to_say_is_answered_at_once_with_its_reason() {
    run(async {
        let script = "head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1";
        let test = TestContainer::new(&["true"], |spec| {
            let hook = serde_json::json!({"path": "/bin/sh", "args": ["sh", "-c", script]});
            spec["hooks"] = serde_json::json!({"createRuntime": [hook]});
        });
        let (stdio, err) = with_stderr(&test);
        let attempt = stdio.attempt().unwrap();
        let failed = within(test.container.create(attempt.child, CreateOptions::default())).await;
        let error = failed.unwrap_err().to_string();
        assert!(error.starts_with("OCI runtime create failed: ") && error.len() < 20_000, "{error}");
        let status = error.contains("exit status 1") || error.contains("exit code: 1");
        assert!(error.contains("hook") && status, "{error}");
        drop(stdio);
        assert_eq!(read_to_end(&err).await, "");
    });
}

/// What was read during the call is the process's first output.
#[test]
fn d7_what_a_process_writes_during_the_runtimes_call_reaches_its_reader_in_order() {
    run(async {
        let test = TestContainer::new(&["true"], |_| {});
        let last = 60_000;
        let script = format!(
            "while [ $# -gt 0 ]; do [ $1 = --pid-file ] && pid=$2; shift; done
            (seq {last} >&2; exec sleep 1000) </dev/null >/dev/null & echo -n $! > $pid; sleep 0.5"
        );
        let container = fake_runtime(&test, &script).container("c", test.container.bundle().clone());
        let (mut stdio, err) = with_stderr(&test);
        let Attempt { child, held_back } = stdio.attempt().unwrap();
        let launched = within(container.exec("e", &process(&["true"]), child, None)).await.unwrap();
        stdio.connect().await.unwrap();
        stdio.accept(held_back);
        stdio.finish_output();
        let mut seen = String::new();
        within(async {
            while !seen.ends_with(&format!("{last}\n")) {
                seen += &read_available(&err);
                tokio::task::yield_now().await;
            }
        })
        .await;
        let expected: String = (1..=last).map(|number| format!("{number}\n")).collect();
        assert!(seen == expected, "{} bytes of {}", seen.len(), expected.len());
        kill(launched).await;
    });
}
