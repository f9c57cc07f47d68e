//! Traps (CONTRACT, "Traps") that need an OCI runtime or a caller that misbehaves at the right moment. Those that a real
//! containerd can show are in the e2e package.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use containerd_shim_protos::shim::shim::*;
use containerd_shim_protos::types::task::Status;
use nix::sys::stat::Mode;
use protobuf::well_known_types::any::Any;
use protobuf::{CodedOutputStream, MessageField};
use tokio::time::timeout;
use ttrpc::Code;
use ttrpc::context::with_duration;

use crate::support::{Pod, context, refusal, with_pod};

/// How long containerd waits for State (CONTRACT §0).
const STATE_LIMIT: Duration = Duration::from_secs(2);
/// Ample for a call that does not wait for anything.
const SOON: Duration = Duration::from_secs(10);

/// A message with these string fields.
fn message(fields: &[(u32, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut stream = CodedOutputStream::vec(&mut bytes);
    for (number, text) in fields {
        stream.write_string(*number, text).unwrap();
    }
    stream.flush().unwrap();
    drop(stream);
    bytes
}

/// An OCI runtime that writes its arguments to `arguments` first.
fn noting_runtime(pod: &Pod) -> String {
    let directory = pod.directory.path();
    let path = directory.join("noting-runtime");
    let script = format!(
        "#!/bin/sh\necho \"$@\" >>{directory}/arguments\nexec {directory}/runtime \"$@\"\n",
        directory = directory.display()
    );
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

async fn create_with(
    pod: &Pod,
    id: &str,
    type_url: &str,
    value: Vec<u8>,
) -> ttrpc::Result<CreateTaskResponse> {
    let options = Any { type_url: type_url.to_owned(), value, ..Any::default() };
    let request = CreateTaskRequest { options: MessageField::some(options), ..pod.create_request(id) };
    pod.client.create(context(), &request).await
}

/// Trap 5: CRI sends the options of a custom runtime type as TOML. They reach the OCI runtime. As runc's message they would
/// be misread without an error; so an unknown key is an error.
#[test]
fn trap_05_options_of_a_custom_type_are_toml() {
    with_pod(async |pod| {
        pod.bundle("c", "exec sleep 60", &[]);
        let toml = |more: &str| {
            let body = format!(
                "BinaryName = {:?}\nRoot = {:?}\nSystemdCgroup = true\nNoPivotRoot = true\n{more}",
                noting_runtime(&pod),
                pod.directory.path().join("state")
            );
            message(&[(1, "io.containerd.podshim.v2"), (3, &body)])
        };
        let (code, text) =
            refusal(create_with(&pod, "c", "runtimeoptions.v1.Options", toml("SystemdGroup = true")).await);
        assert_eq!(code, Code::INVALID_ARGUMENT);
        assert!(text.contains("SystemdGroup"), "{text}");
        assert!(!pod.directory.path().join("arguments").exists(), "the runtime was called");
        create_with(&pod, "c", "runtimeoptions.v1.Options", toml("")).await.unwrap();
        let arguments = fs::read_to_string(pod.directory.path().join("arguments")).unwrap();
        assert!(arguments.contains("--systemd-cgroup") && arguments.contains("--no-pivot"), "{arguments}");
        pod.delete("c").await.unwrap();
    });
}

/// Trap 6: with a user namespace the client's own options come instead of the configured ones, as runc's message or as that of
/// 1.x clients. They hold for every runtime type.
#[test]
fn trap_06_options_of_a_task_replace_those_of_its_runtime() {
    with_pod(async |pod| {
        let runtime = noting_runtime(&pod);
        let root = pod.directory.path().join("state").display().to_string();
        pod.bundle("runc", "exec sleep 60", &[]);
        let mut value = message(&[(6, &runtime), (7, &root)]);
        // IoUid and IoGid, as CRI sets them for a user namespace.
        value.extend_from_slice(b"\x20\xe8\x07\x28\xe8\x07");
        create_with(&pod, "runc", "containerd.runc.v1.Options", value).await.unwrap();
        assert!(fs::read_to_string(pod.directory.path().join("arguments")).unwrap().contains(" create "));
        pod.delete("runc").await.unwrap();

        // Options of an unknown type are an error: no container may be created without its settings.
        pod.bundle("other", "exec sleep 60", &[]);
        let (code, text) = refusal(create_with(&pod, "other", "acme.Options", Vec::new()).await);
        assert_eq!(code, Code::INVALID_ARGUMENT);
        assert!(text.contains("acme.Options"), "{text}");
    });
}

/// Trap 10: whichever call of the OCI runtime hangs, State is answered in time for its container and for others.
#[test]
fn trap_10_state_is_answered_while_any_call_of_the_runtime_hangs() {
    with_pod(async |pod| {
        pod.run("quick", "exec sleep 60", &[]).await;
        let ensure_answered = async |command: &str, id: &str, expected: Status| {
            let calls = pod.directory.path().join(id).join("calls");
            timeout(SOON, async {
                while !fs::read_to_string(&calls).is_ok_and(|text| text.lines().any(|line| line == command)) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await
            .unwrap_or_else(|_| panic!("no {command}"));
            let quick = timeout(STATE_LIMIT, pod.state("quick")).await.expect("State waited").unwrap();
            assert_eq!(quick.status.enum_value(), Ok(Status::RUNNING));
            let own = timeout(STATE_LIMIT, pod.state(id)).await.expect("its own State waited");
            match own {
                Ok(own) => assert_eq!(own.status.enum_value(), Ok(expected), "during {command}"),
                Err(error) => assert_eq!((command, refusal::<()>(Err(error)).0), ("create", Code::NOT_FOUND)),
            }
        };
        let slow = pod.bundle("slow", "exec sleep 60", &[]);
        // It outlives the fake runtime: a shell may reap its own child, which no real runtime does.
        fs::write(slow.join("exec.sh"), "exec sleep 1").unwrap();
        for command in ["create", "start", "exec", "pause", "resume", "update", "delete"] {
            fs::write(slow.join(format!("slow.{command}")), "2.5").unwrap();
        }
        let target = || "slow".to_owned();
        let (done, ()) = tokio::join!(pod.create("slow"), ensure_answered("create", "slow", Status::CREATED));
        done.unwrap();
        let (done, ()) = tokio::join!(pod.start("slow"), ensure_answered("start", "slow", Status::RUNNING));
        done.unwrap();
        let spec = Any { value: br#"{"args":["x"],"cwd":"/"}"#.to_vec(), ..Any::default() };
        let exec = ExecProcessRequest {
            id: target(),
            exec_id: "e".to_owned(),
            spec: MessageField::some(spec),
            ..Default::default()
        };
        pod.client.exec(context(), &exec).await.unwrap();
        let start = StartRequest { id: target(), exec_id: "e".to_owned(), ..Default::default() };
        let (done, ()) = tokio::join!(
            pod.client.start(context(), &start),
            ensure_answered("exec", "slow", Status::RUNNING)
        );
        done.unwrap();
        let pause = PauseRequest { id: target(), ..Default::default() };
        let (done, ()) = tokio::join!(
            pod.client.pause(context(), &pause),
            ensure_answered("pause", "slow", Status::RUNNING)
        );
        done.unwrap();
        let resume = ResumeRequest { id: target(), ..Default::default() };
        let (done, ()) = tokio::join!(
            pod.client.resume(context(), &resume),
            ensure_answered("resume", "slow", Status::PAUSED)
        );
        done.unwrap();
        let update = UpdateTaskRequest {
            id: target(),
            resources: MessageField::some(Any { value: b"{}".to_vec(), ..Any::default() }),
            ..Default::default()
        };
        let (done, ()) = tokio::join!(
            pod.client.update(context(), &update),
            ensure_answered("update", "slow", Status::RUNNING)
        );
        done.unwrap();
        pod.kill("slow", 9).await.unwrap();
        pod.wait("slow").await.unwrap();
        let (done, ()) = tokio::join!(pod.delete("slow"), ensure_answered("delete", "slow", Status::STOPPED));
        done.unwrap();
    });
}

/// Trap 12: a delete that outlasts its caller keeps the container; the next Delete gets the answer, and then the shim ends.
#[test]
fn trap_12_a_slow_delete_is_answered_when_asked_again() {
    with_pod(async |pod| {
        pod.run("c", "exit 3", &[]).await;
        pod.wait("c").await.unwrap();
        assert!(pod.is_known_to_its_runtime("c"));
        let slow = pod.directory.path().join("c/slow.delete");
        fs::write(&slow, "1").unwrap();
        let delete = DeleteRequest { id: "c".to_owned(), ..Default::default() };
        let given_up = pod.client.delete(with_duration(Duration::from_millis(200)), &delete).await;
        assert!(given_up.is_err());
        timeout(SOON, async {
            while pod.is_known_to_its_runtime("c") {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("the runtime has deleted it");
        fs::remove_file(slow).unwrap();
        assert_eq!(pod.delete("c").await.unwrap().exit_status, 3);
        assert_eq!(refusal(pod.state("c").await).0, Code::NOT_FOUND);
        let shutdown = ShutdownRequest { id: "c".to_owned(), ..Default::default() };
        pod.client.shutdown(context(), &shutdown).await.unwrap();
        timeout(SOON, pod.served).await.expect("the server ends").unwrap().unwrap();
    });
}

/// Trap 12: what is slow each time is done once. Its end is the next Delete's answer, also of a container that never started.
#[test]
fn trap_12_d5_a_delete_that_outlasts_its_caller_is_not_done_again() {
    with_pod(async |pod| {
        for id in ["ran", "created"] {
            pod.bundle(id, "exit 3", &[]);
            pod.create(id).await.unwrap();
            if id == "ran" {
                pod.start(id).await.unwrap();
                pod.wait(id).await.unwrap();
            }
            assert!(pod.is_known_to_its_runtime(id));
            fs::write(pod.directory.path().join(id).join("slow.delete"), "1").unwrap();
            let delete = DeleteRequest { id: id.to_owned(), ..Default::default() };
            let given_up = pod.client.delete(with_duration(Duration::from_millis(200)), &delete).await;
            assert!(given_up.is_err());
            timeout(SOON, async {
                while pod.is_known_to_its_runtime(id) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
            .await
            .expect("the runtime has deleted it");
            tokio::time::sleep(Duration::from_millis(200)).await;
            let answer = pod.client.delete(with_duration(Duration::from_millis(700)), &delete).await.unwrap();
            assert_eq!(answer.exit_status, if id == "ran" { 3 } else { 0 });
            assert_eq!(pod.calls(id).iter().filter(|call| *call == "delete").count(), 1);
            assert_eq!(refusal(pod.state(id).await).0, Code::NOT_FOUND);
        }
    });
}

/// Trap 12, while the slow delete goes on: a second Delete is answered with its end.
#[test]
fn trap_12_a_delete_during_a_slow_one_shares_its_end() {
    with_pod(async |pod| {
        pod.run("c", "exit 3", &[]).await;
        pod.wait("c").await.unwrap();
        fs::write(pod.directory.path().join("c/slow.delete"), "1").unwrap();
        let delete = DeleteRequest { id: "c".to_owned(), ..Default::default() };
        let given_up = pod.client.delete(with_duration(Duration::from_millis(200)), &delete).await;
        assert!(given_up.is_err());
        assert_eq!(pod.delete("c").await.unwrap().exit_status, 3);
        assert_eq!(pod.calls("c").iter().filter(|call| *call == "delete").count(), 1);
        assert_eq!(refusal(pod.delete("c").await).0, Code::NOT_FOUND);
    });
}

/// Trap 13: with one shim for a sandbox, 2.x sends Shutdown after the sandbox's Delete only; 1.x after each. The shim
/// ends after the Delete of the last one, whichever that is, and not before.
#[test]
fn trap_13_a_shim_ends_with_its_last_container_however_it_is_asked() {
    const ALL: [&str; 3] = ["pause", "app", "proxy"];
    // The order of deletes, and after which of them a Shutdown comes.
    for (order, published) in [
        (["app", "proxy", "pause"], &["pause"][..]),
        (["pause", "app", "proxy"], &ALL[..]),
        (["app", "pause", "proxy"], &["app", "proxy"]),
    ] {
        with_pod(async |pod| {
            for id in ALL {
                pod.run(id, "exec sleep 60", &[]).await;
                pod.kill(id, 9).await.unwrap();
                pod.wait(id).await.unwrap();
            }
            for id in order {
                assert!(!pod.served.is_finished(), "it ended before {id} was deleted");
                pod.delete(id).await.unwrap();
                if published.contains(&id) {
                    let shutdown = ShutdownRequest { id: id.to_owned(), ..Default::default() };
                    pod.client.shutdown(context(), &shutdown).await.unwrap();
                }
            }
            timeout(SOON, pod.served).await.expect("the server ends").unwrap().unwrap();
        });
    }
}

/// Trap 20: a stdin that is open at both ends, or that no process ever opened, delays neither a Delete nor the server's end.
#[test]
fn trap_20_a_stdin_that_is_never_written_keeps_no_server() {
    with_pod(async |pod| {
        for (id, keeps_open) in [("held", true), ("alone", false)] {
            pod.bundle(id, "exec sleep 60", &[]);
            let stdin = pod.directory.path().join(format!("{id}.stdin"));
            nix::unistd::mkfifo(&stdin, Mode::S_IRWXU).unwrap();
            let writer =
                keeps_open.then(|| fs::OpenOptions::new().read(true).write(true).open(&stdin).unwrap());
            let request = CreateTaskRequest { stdin: stdin.display().to_string(), ..pod.create_request(id) };
            pod.client.create(context(), &request).await.unwrap();
            pod.start(id).await.unwrap();
            pod.kill(id, 9).await.unwrap();
            pod.wait(id).await.unwrap();
            pod.delete(id).await.unwrap();
            drop(writer);
        }
        pod.client.shutdown(context(), &ShutdownRequest::default()).await.unwrap();
        timeout(SOON, pod.served).await.expect("the server ends").unwrap().unwrap();
    });
}

/// Trap 21: a created container can be killed, its exit is published, and it can be deleted.
#[test]
fn trap_21_a_created_container_takes_a_kill() {
    with_pod(async |mut pod| {
        for (signal, code) in [(9, 137), (15, 143)] {
            let id = format!("c{signal}");
            pod.bundle(&id, "exec sleep 60", &[]);
            pod.create(&id).await.unwrap();
            pod.kill(&id, signal).await.unwrap();
            let waited = timeout(SOON, pod.wait(&id)).await.expect("its exit").unwrap();
            assert_eq!(waited.exit_status, code);
            assert_eq!(refusal(pod.start(&id).await).0, Code::FAILED_PRECONDITION);
            assert_eq!(pod.delete(&id).await.unwrap().exit_status, code);
            assert!(!pod.calls(&id).contains(&"start".to_owned()), "{:?}", pod.calls(&id));
            let events = pod.events(3).await;
            assert_eq!(
                events,
                ["create", "exit", "delete"].map(|topic| format!("/tasks/{topic} {id}")),
                "no start event without a start"
            );
        }
    });
}

/// Trap 28: kills that the OCI runtime delivers, and that hang there, delay no other request.
#[test]
fn trap_28_hanging_kills_are_in_nobodys_way() {
    with_pod(async |pod| {
        pod.run("quick", "exec sleep 60", &[]).await;
        pod.run("deaf", "trap '' TERM; touch \"$0.deaf\"; sleep 60 & wait; wait", &[]).await;
        // Before that, a signal would end it.
        timeout(SOON, async {
            while !pod.directory.path().join("deaf/program.sh.deaf").exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .expect("it has set its trap");
        fs::write(pod.directory.path().join("deaf/slow.kill"), "8").unwrap();
        let kill = |all: bool| {
            let request = KillRequest { id: "deaf".to_owned(), signal: 15, all, ..Default::default() };
            let client = pod.client.clone();
            tokio::task::spawn_local(async move { client.kill(context(), &request).await })
        };
        let kills: Vec<_> = (0..100).map(|number| kill(number % 2 == 0)).collect();
        // More than containerd's limit: a hundred shells at once take their time. A kill in the way would take 8 s.
        let not_behind = Duration::from_secs(6);
        for id in ["quick", "deaf"] {
            let state = timeout(not_behind, pod.state(id)).await.expect("State waited").unwrap();
            assert_eq!(state.status.enum_value(), Ok(Status::RUNNING));
        }
        // Nor do they delay an exit and its event.
        pod.kill("quick", 9).await.unwrap();
        let waited = timeout(not_behind, pod.wait("quick")).await.expect("Wait waited").unwrap();
        assert_eq!(waited.exit_status, 137);
        for kill in kills {
            kill.await.unwrap().unwrap();
        }
        pod.kill("deaf", 9).await.unwrap();
        pod.wait("deaf").await.unwrap();
    });
}

/// Trap 15: a containerd that was killed between its `start` and its Create never comes back to that shim.
#[test]
fn trap_15_an_unused_shim_ends() {
    with_pod(async |pod| {
        // From here on it serves, and its wait has begun.
        pod.state("c").await.unwrap_err();
        ends_when_forgotten(pod).await;
    });
    with_pod(async |pod| {
        pod.run("c", "exec sleep 60", &[]).await;
        pass(Duration::from_secs(600)).await;
        assert_eq!(pod.state("c").await.unwrap().status.enum_value(), Ok(Status::RUNNING));
    });
}

/// Trap 12: the answer to a Delete comes just as containerd's timeout is over. It then sends no Shutdown and forgets the shim;
/// so it does if it is killed there, or just after a Create that failed.
#[test]
fn trap_12_a_shim_that_is_forgotten_after_its_last_container_ends() {
    with_pod(async |pod| {
        pod.run("c", "exit 3", &[]).await;
        pod.wait("c").await.unwrap();
        // A container ends the first wait; the next one begins with its Delete.
        pass(Duration::from_secs(600)).await;
        pod.delete("c").await.unwrap();
        ends_when_forgotten(pod).await;
    });
    with_pod(async |pod| {
        // Its bundle does not exist.
        pod.create("c").await.unwrap_err();
        ends_when_forgotten(pod).await;
    });
}

pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

async fn ends_when_forgotten(pod: Pod) {
    pass(Duration::from_secs(119)).await;
    assert!(!pod.served.is_finished(), "a slow containerd must find it");
    pass(Duration::from_secs(2)).await;
    timeout(SOON, pod.served).await.expect("the server ends").unwrap().unwrap();
}
