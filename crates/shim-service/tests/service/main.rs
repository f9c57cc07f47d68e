//! The Task service over a real socket, with a shell script as OCI runtime: answers, codes, the order of events, and
//! effects that outlive their caller.

#![expect(clippy::unwrap_used, reason = "a test's harness fails by panicking")]

mod checkpoint;
mod control;
mod given_up;
mod gone;
mod hostile;
mod node;
mod options;
#[path = "../recorded/mod.rs"]
mod recorded;
mod refused;
mod sandbox;
mod streams;
mod support;
mod traces;
mod traps;

use std::fs;
use std::path::Path;
use std::time::Duration;

use containerd_shim_protos::shim::shim::*;
use containerd_shim_protos::types::task::Status;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;
use support::{context, refusal, with_pod};
use tokio::time::timeout;
use ttrpc::Code;
use ttrpc::context::with_duration;

const PLAN: (&str, &str) = ("podshim.io/plan", "proxy=sidecar, app=main");

/// A created container waits for ever for its start: a test that leaves one behind would leave a process on the machine.
#[test]
fn a_test_leaves_no_process() {
    let mut pids = Vec::new();
    with_pod(async |pod| {
        pod.bundle("created", "exit 0", &[]);
        pids.push(pod.create("created").await.unwrap().pid);
        pod.run("running", "sleep 60; exit 0", &[]).await;
        pids.push(pod.state("running").await.unwrap().pid);
    });
    assert_eq!(pids.len(), 2);
    for pid in pids {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid}");
    }
}

/// CONTRACT §6: each event once, in this order; TaskExit only after TaskStart, however short the program.
#[test]
fn a_short_life_has_all_its_events_in_order() {
    with_pod(async |mut pod| {
        pod.run("c", "exit 7", &[]).await;
        assert_eq!(pod.wait("c").await.unwrap().exit_status, 7);
        let state = pod.state("c").await.unwrap();
        assert_eq!((state.status.enum_value(), state.exit_status), (Ok(Status::STOPPED), 7));
        assert_eq!(pod.delete("c").await.unwrap().exit_status, 7);
        let events = pod.events(4).await;
        assert_eq!(events, ["/tasks/create c", "/tasks/start c", "/tasks/exit c", "/tasks/delete c"]);
        assert_eq!(refusal(pod.state("c").await).0, Code::NOT_FOUND);
    });
}

/// CONTRACT §9.
#[test]
fn refusals_have_the_codes_that_containerd_acts_on() {
    with_pod(async |pod| {
        assert_eq!(refusal(pod.kill("ghost", 15).await).0, Code::NOT_FOUND);
        assert_eq!(refusal(pod.delete("ghost").await).0, Code::NOT_FOUND);
        pod.run("c", "exec sleep 60", &[]).await;
        assert_eq!(refusal(pod.create("c").await).0, Code::ALREADY_EXISTS);
        assert_eq!(refusal(pod.start("c").await).0, Code::FAILED_PRECONDITION);
        assert_eq!(refusal(pod.delete("c").await).0, Code::FAILED_PRECONDITION);
        assert_eq!(refusal(pod.kill("c", 99).await).0, Code::INVALID_ARGUMENT);
        pod.kill("c", 9).await.unwrap();
        assert_eq!(pod.wait("c").await.unwrap().exit_status, 137);
        let (code, text) = refusal(pod.kill("c", 9).await);
        assert_eq!(code, Code::NOT_FOUND);
        assert!(text.contains("process already finished"), "{text}");
        // Connect answers for unknown ids too.
        let connect = ConnectRequest { id: "ghost".to_owned(), ..Default::default() };
        assert_eq!(pod.client.connect(context(), &connect).await.unwrap().task_pid, 0);
    });
}

/// CONTRACT §0: ttrpc drops a handler at its caller's deadline. What it has begun goes on, and State shows the result.
#[test]
fn a_create_goes_on_when_its_caller_has_gone() {
    with_pod(async |mut pod| {
        let bundle = pod.bundle("c", "exec sleep 60", &[]);
        fs::write(bundle.join("slow.create"), "1").unwrap();
        let hasty =
            pod.client.create(with_duration(Duration::from_millis(200)), &pod.create_request("c")).await;
        assert!(hasty.is_err());
        assert_eq!(pod.events(1).await, ["/tasks/create c"]);
        assert_eq!(pod.state("c").await.unwrap().status.enum_value(), Ok(Status::CREATED));
        pod.delete("c").await.unwrap();
    });
}

/// CONTRACT §1.8: when the caller of a Create is gone, containerd sends one Delete, then Shutdown, and does not come back.
#[test]
fn a_delete_during_the_create_takes_effect_when_it_ends() {
    with_pod(async |pod| {
        let bundle = pod.bundle("c", "exec sleep 60", &[]);
        fs::write(bundle.join("slow.create"), "1").unwrap();
        let hasty =
            pod.client.create(with_duration(Duration::from_millis(200)), &pod.create_request("c")).await;
        assert!(hasty.is_err());
        let delete = DeleteRequest { id: "c".to_owned(), ..Default::default() };
        let given_up = pod.client.delete(with_duration(Duration::from_millis(200)), &delete).await;
        assert!(given_up.is_err());
        let shutdown = ShutdownRequest { id: "c".to_owned(), ..Default::default() };
        pod.client.shutdown(context(), &shutdown).await.unwrap();
        let calls = bundle.join("calls");
        let kept = pod.directory.path().join("calls");
        fs::hard_link(&calls, &kept).unwrap();
        fs::remove_dir_all(&bundle).unwrap();
        timeout(Duration::from_secs(10), pod.served).await.expect("the server ends").unwrap().unwrap();
        assert!(fs::read_to_string(kept).unwrap().starts_with("create\n"));
    });
}

/// F13, N1: containerd 1.7 and 2.x end a task without processes when they restart, before CRI has asked for its exit.
#[test]
fn f13_what_has_ended_shows_its_pid_until_it_is_deleted() {
    with_pod(async |pod| {
        pod.run("c", "exit 3", &[]).await;
        pod.wait("c").await.unwrap();
        let pids = PidsRequest { id: "c".to_owned(), ..Default::default() };
        let processes = pod.client.pids(context(), &pids).await.unwrap().processes;
        let shown: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        assert_eq!(shown, [pod.state("c").await.unwrap().pid]);
        pod.delete("c").await.unwrap();
        assert_eq!(refusal(pod.client.pids(context(), &pids).await).0, Code::NOT_FOUND);
    });
}

/// A failed create leaves nothing behind: its id is free, and the caller gets the OCI runtime's error.
#[test]
fn a_failed_create_tells_the_runtimes_words_and_frees_the_id() {
    with_pod(async |pod| {
        let bundle = pod.bundle("c", "exit 0", &[]);
        fs::write(bundle.join("fail.create"), "exec: no such program").unwrap();
        let (_, text) = refusal(pod.create("c").await);
        assert_eq!(text, "OCI runtime create failed: exec: no such program");
        assert_eq!(refusal(pod.state("c").await).0, Code::NOT_FOUND);
        fs::remove_file(bundle.join("fail.create")).unwrap();
        pod.create("c").await.unwrap();
    });
}

/// S5, 11.4: a wrong annotation is answered at Create, with key and value, before the runtime is called.
#[test]
fn s5_a_wrong_annotation_is_an_error_before_any_process() {
    with_pod(async |pod| {
        pod.bundle("c", "exit 0", &[PLAN, ("podshim.io/ready.prxy", "tcp::80")]);
        let (code, text) = refusal(pod.create("c").await);
        assert_eq!(code, Code::INVALID_ARGUMENT);
        assert!(
            text.contains(r#"podshim.io/ready.prxy"#) && text.contains(r#"did you mean "proxy"?"#),
            "{text}"
        );
        assert_eq!(pod.calls("c"), [""; 0]);
    });
}

/// U7, F11, F13: a held main is started for its caller, runs nothing, and has a process in Pids.
#[test]
fn u7_a_held_main_is_running_for_its_caller() {
    with_pod(async |mut pod| {
        let name = |name: &'static str| ("io.kubernetes.cri.container-name", name);
        let ran = pod.directory.path().join("ran");
        pod.run("c-app", &format!("touch {}; exec sleep 60", ran.display()), &[PLAN, name("app")]).await;
        assert_eq!(pod.state("c-app").await.unwrap().status.enum_value(), Ok(Status::RUNNING));
        let pids = PidsRequest { id: "c-app".to_owned(), ..Default::default() };
        assert!(!pod.client.pids(context(), &pids).await.unwrap().processes.is_empty());
        assert_eq!(pod.calls("c-app"), ["create"]);
        assert!(!ran.exists());
        pod.run("c-proxy", "exec sleep 60", &[PLAN, name("proxy")]).await;
        let events = pod.events(4).await;
        assert_eq!(
            events,
            ["/tasks/create c-app", "/tasks/start c-app", "/tasks/create c-proxy", "/tasks/start c-proxy"]
        );
        timeout(Duration::from_secs(10), async {
            while !ran.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the gate opened");
        // T1: both are asked to stop; the sidecar's program ends after the main's.
        pod.kill("c-proxy", 15).await.unwrap();
        pod.kill("c-app", 15).await.unwrap();
        assert_eq!(pod.wait("c-app").await.unwrap().exit_status, 143);
        assert_eq!(pod.wait("c-proxy").await.unwrap().exit_status, 0);
        assert_eq!(pod.events(2).await, ["/tasks/exit c-app", "/tasks/exit c-proxy"]);
    });
}

/// R1, R6: a sidecar that exits is restarted under its id, without an event. Its last limits are applied, except those of an
/// Update that failed.
#[test]
fn r6_a_sidecar_comes_back_in_place() {
    with_pod(async |pod| {
        let name = ("io.kubernetes.cri.container-name", "proxy");
        let go = pod.directory.path().join("go");
        let program = format!(
            "test -e {go} && exec sleep 60; while ! test -e {go}; do sleep 0.01; done",
            go = go.display()
        );
        pod.run("c", &program, &[PLAN, name]).await;
        let first = pod.state("c").await.unwrap().pid;
        let update = async |resources: &str| {
            let resources = Any { value: resources.as_bytes().to_vec(), ..Any::default() };
            let resources = MessageField::some(resources);
            let update = UpdateTaskRequest { id: "c".to_owned(), resources, ..Default::default() };
            pod.client.update(context(), &update).await
        };
        let limits = r#"{"pids":{"limit":7}}"#;
        update(limits).await.unwrap();
        let bundle = pod.directory.path().join("c");
        fs::write(bundle.join("fail.update"), "no such controller").unwrap();
        assert_eq!(refusal(update(r#"{"pids":{"limit":9}}"#).await).0, Code::UNKNOWN);
        fs::remove_file(bundle.join("fail.update")).unwrap();
        fs::write(&go, "").unwrap();
        timeout(Duration::from_secs(10), async {
            while pod.state("c").await.unwrap().pid == first {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("a new process");
        assert_eq!(pod.state("c").await.unwrap().status.enum_value(), Ok(Status::RUNNING));
        timeout(Duration::from_secs(10), async {
            while pod.calls("c").last().is_none_or(|call| call != "start") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("a second start");
        assert_eq!(
            pod.calls("c"),
            ["create", "start", "update", "update", "delete", "create", "update", "start"]
        );
        assert_eq!(fs::read_to_string(bundle.join("resources.json")).unwrap(), limits);
    });
}

/// R6: limits that are set while the process is replaced are applied before the next program runs (VPA after an OOM kill), and
/// so are those whose Update was overtaken by the exit.
#[test]
fn r6_an_update_during_a_restart_is_the_next_processs() {
    with_pod(async |pod| {
        let name = ("io.kubernetes.cri.container-name", "proxy");
        pod.run("c", "echo one >>$0.runs; exec sleep 60", &[PLAN, name]).await;
        let bundle = pod.directory.path().join("c");
        let update = async |limit: &str| {
            let resources = Any { value: limit.as_bytes().to_vec(), ..Any::default() };
            let resources = MessageField::some(resources);
            let update = UpdateTaskRequest { id: "c".to_owned(), resources, ..Default::default() };
            pod.client.update(context(), &update).await
        };
        let called = async |calls: &[&str]| {
            let reached = async {
                while pod.calls("c") != calls {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let in_time = timeout(Duration::from_secs(10), reached).await;
            assert!(in_time.is_ok(), "{:?}, not {calls:?}", pod.calls("c"));
        };
        let kill = |pid: u32| {
            let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        };
        // A program that is killed before its first command leaves no line, and a start whose process is killed before its program
        // runs would wait for it.
        let ran = async |times: usize| {
            let runs =
                || fs::read_to_string(bundle.join("program.sh.runs")).unwrap_or_default().lines().count();
            let reached = async {
                while runs() < times {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let in_time = timeout(Duration::from_secs(10), reached).await;
            assert!(in_time.is_ok(), "{} runs, not {times}", runs());
        };
        ran(1).await;
        fs::write(bundle.join("slow.create"), "0.5").unwrap();
        kill(pod.state("c").await.unwrap().pid);
        called(&["create", "start", "delete", "create"]).await;
        update("1").await.unwrap();
        update("2").await.unwrap();
        called(&["create", "start", "delete", "create", "update", "start"]).await;
        assert_eq!(fs::read_to_string(bundle.join("resources.json")).unwrap(), "2");
        ran(2).await;
        // An Update during the exit: the OCI runtime refuses it, as the container does not run.
        fs::write(bundle.join("slow.update"), "0.5").unwrap();
        fs::write(bundle.join("fail.update"), "container not running").unwrap();
        let (pid, before) = (pod.state("c").await.unwrap().pid, pod.calls("c").len());
        let (updated, ()) = tokio::join!(update("3"), async {
            while pod.calls("c").len() == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            fs::write(bundle.join("slow.delete"), "0.8").unwrap();
            kill(pid);
            tokio::time::sleep(Duration::from_millis(600)).await;
            fs::remove_file(bundle.join("fail.update")).unwrap();
        });
        updated.unwrap();
        called(&[
            "create", "start", "delete", "create", "update", "start", "update", "delete", "create", "update",
            "start",
        ])
        .await;
        assert_eq!(fs::read_to_string(bundle.join("resources.json")).unwrap(), "3");
    });
}

/// K5: when a caller has the answer to Start, its signals reach the program. The OCI runtime's init would end in its own way,
/// or not at all: runc's hung on a SIGSEGV.
#[test]
fn k5_a_signal_right_after_the_start_is_the_programs() {
    with_pod(async |pod| {
        let bundle = pod.bundle("c", "exec sleep 60", &[]);
        fs::write(bundle.join("slow.program"), "0.5").unwrap();
        pod.create("c").await.unwrap();
        pod.start("c").await.unwrap();
        pod.kill("c", 10).await.unwrap();
        assert_eq!(pod.wait("c").await.unwrap().exit_status, 138);
        assert!(!bundle.join("init.signalled").exists());
    });
}

/// The same if the caller did not wait for that answer.
#[test]
fn k5_a_signal_during_the_start_is_the_programs() {
    with_pod(async |pod| {
        let bundle = pod.bundle("c", "exec sleep 60", &[]);
        fs::write(bundle.join("slow.program"), "0.5").unwrap();
        pod.create("c").await.unwrap();
        let started = bundle.join("arguments.start");
        let (start, ()) = tokio::join!(pod.start("c"), async {
            while !started.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            pod.kill("c", 10).await.unwrap();
        });
        start.unwrap();
        assert_eq!(pod.wait("c").await.unwrap().exit_status, 138);
        assert!(!bundle.join("init.signalled").exists());
    });
}

/// Trap 7: an exec's exit comes before its container's, and an exec works through the service.
#[test]
fn trap_07_an_execs_exit_comes_before_its_containers() {
    with_pod(async |mut pod| {
        pod.run("c", "exec sleep 60", &[]).await;
        fs::write(pod.directory.path().join("c/exec.sh"), "exec sleep 60").unwrap();
        let spec = Any { value: br#"{"args":["x"],"cwd":"/"}"#.to_vec(), ..Any::default() };
        let exec = ExecProcessRequest {
            id: "c".to_owned(),
            exec_id: "e".to_owned(),
            spec: MessageField::some(spec),
            ..Default::default()
        };
        pod.client.exec(context(), &exec).await.unwrap();
        assert_eq!(refusal(pod.client.exec(context(), &exec).await).0, Code::ALREADY_EXISTS);
        let unstarted =
            KillRequest { id: "c".to_owned(), exec_id: "e".to_owned(), signal: 9, ..Default::default() };
        assert_eq!(refusal(pod.client.kill(context(), &unstarted).await).0, Code::FAILED_PRECONDITION);
        let start = StartRequest { id: "c".to_owned(), exec_id: "e".to_owned(), ..Default::default() };
        pod.client.start(context(), &start).await.unwrap();
        // The init ends first; its exit is published last.
        pod.kill("c", 9).await.unwrap();
        pod.client.kill(context(), &unstarted).await.unwrap();
        pod.wait("c").await.unwrap();
        let events = pod.events(6).await;
        assert_eq!(
            events,
            [
                "/tasks/create c",
                "/tasks/start c",
                "/tasks/exec-added c",
                "/tasks/exec-started c",
                "/tasks/exit c",
                "/tasks/exit c"
            ]
        );
        let waited = WaitRequest { id: "c".to_owned(), exec_id: "e".to_owned(), ..Default::default() };
        assert_eq!(pod.client.wait(context(), &waited).await.unwrap().exit_status, 137);
    });
}

/// CONTRACT §1.8: Shutdown comes after every Delete; only an empty shim ends.
#[test]
fn shutdown_ends_an_empty_shim_only() {
    with_pod(async |pod| {
        pod.run("c", "exec sleep 60", &[]).await;
        let shutdown = ShutdownRequest { id: "c".to_owned(), ..Default::default() };
        pod.client.shutdown(context(), &shutdown).await.unwrap();
        pod.kill("c", 9).await.unwrap();
        pod.wait("c").await.unwrap();
        pod.delete("c").await.unwrap();
        assert!(!pod.served.is_finished());
        pod.client.shutdown(context(), &shutdown).await.unwrap();
        timeout(Duration::from_secs(10), pod.served).await.expect("the server ends").unwrap().unwrap();
    });
}
