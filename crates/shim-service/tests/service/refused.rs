//! What the pod refuses leaves nothing in the service: the next request with the same id is the first one of its kind. And what waits
//! for its turn makes way for a caller's kill.

use std::fs;
use std::time::Duration;

use containerd_shim_protos::shim::shim::*;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;
use tokio::time::{Instant, sleep, timeout};
use ttrpc::Code;

use crate::support::{CALL_LIMIT, Pod, context, refusal, with_pod};

const NAME: &str = "io.kubernetes.cri.container-name";

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let wait = async {
        while !is_so() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(CALL_LIMIT, wait).await.unwrap_or_else(|_| panic!("{what}: not in time"));
}

fn starts(pod: &Pod, id: &str) -> usize {
    pod.calls(id).iter().filter(|call| *call == "start").count()
}

/// A second container with the name of a live one is refused. When that one is gone, the refused id is free, with a bundle of
/// today.
#[test]
fn a_create_that_the_pod_refuses_frees_its_id() {
    with_pod(async |pod| {
        let annotations = [("podshim.io/plan", "proxy=sidecar, app=main"), (NAME, "proxy")];
        pod.run("first", "exec sleep 60", &annotations).await;
        let bundle = pod.bundle("second", "exec sleep 60", &annotations);
        for _ in 0..2 {
            let (code, text) = refusal(pod.create("second").await);
            assert_eq!(code, Code::ALREADY_EXISTS);
            assert!(!text.contains("second already exists"), "{text}");
        }
        assert!(!bundle.join("calls").exists(), "the runtime was called");
        pod.kill("first", 9).await.unwrap();
        pod.wait("first").await.unwrap();
        pod.delete("first").await.unwrap();
        pod.create("second").await.unwrap();
        pod.start("second").await.unwrap();
        pod.kill("second", 9).await.unwrap();
        pod.wait("second").await.unwrap();
    });
}

/// An exec in a container that is backing off is refused. After its restart an exec with that id has its own streams, not those of
/// the refused one.
#[test]
fn an_exec_that_the_pod_refuses_leaves_no_streams() {
    with_pod(async |pod| {
        let plan = ("podshim.io/plan", "proxy=sidecar, app=main");
        let annotations = [plan, (NAME, "proxy"), ("podshim.io/restart.proxy", "always;first=2s")];
        let ran = pod.directory.path().join("ran");
        let program = format!("test -e {ran} && exec sleep 60; touch {ran}", ran = ran.display());
        pod.run("c", &program, &annotations).await;
        fs::write(pod.directory.path().join("c/exec.sh"), "exec sleep 60").unwrap();
        let request = |stdout: &str| ExecProcessRequest {
            id: "c".to_owned(),
            exec_id: "e".to_owned(),
            stdout: stdout.to_owned(),
            spec: MessageField::some(Any {
                value: br#"{"args":["x"],"cwd":"/"}"#.to_vec(),
                ..Any::default()
            }),
            ..Default::default()
        };
        until("the first program ran", || ran.exists()).await;
        let missing = pod.directory.path().join("missing/fifo").display().to_string();
        let refused = async {
            loop {
                match pod.client.exec(context(), &request(&missing)).await {
                    Err(error) => return error,
                    // Its exit has not been seen yet.
                    Ok(_) => {
                        let id = ("c".to_owned(), "e".to_owned());
                        let delete = DeleteRequest { id: id.0, exec_id: id.1, ..Default::default() };
                        pod.client.delete(context(), &delete).await.unwrap();
                    }
                }
            }
        };
        let error = timeout(CALL_LIMIT, refused).await.expect("it is backing off").to_string();
        assert!(error.contains("backing off"), "{error}");
        until("a second start", || starts(&pod, "c") == 2).await;
        let exec = async {
            while pod.client.exec(context(), &request("")).await.is_err() {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(CALL_LIMIT, exec).await.expect("it runs again");
        let start = StartRequest { id: "c".to_owned(), exec_id: "e".to_owned(), ..Default::default() };
        pod.client.start(context(), &start).await.expect("with its own streams");
    });
}

/// Restarts and probes wait for their turn, and a caller's kill ends the wait of its own container, for which it may wait. That of
/// another one waits on (H7).
#[test]
fn r4_a_kill_ends_the_wait_of_its_containers_restart() {
    with_pod(async |pod| {
        let slow = ["s1", "s2", "s3", "s4"];
        let plan = ("podshim.io/plan", "s1+s2+s3+s4+late=sidecar, app=main");
        let end = |id: &str| pod.directory.path().join(format!("end-{id}"));
        for id in slow.into_iter().chain(["late"]) {
            let program = format!("until [ -e {} ]; do sleep 0.05; done", end(id).display());
            pod.run(id, &program, &[plan, (NAME, id)]).await;
        }
        pod.run("app", "trap : USR1; while :; do sleep 1; done", &[plan, (NAME, "app")]).await;
        until("all run", || slow.into_iter().chain(["late", "app"]).all(|id| starts(&pod, id) == 1)).await;
        // As many restarts as may run at a time, each of which takes its time.
        for id in slow {
            fs::write(pod.directory.path().join(id).join("slow.create"), "15").unwrap();
            fs::write(end(id), "").unwrap();
        }
        let creates = |id: &str| pod.calls(id).iter().filter(|call| *call == "create").count();
        until("all slots are taken", || slow.into_iter().all(|id| creates(id) == 2)).await;
        fs::write(end("late"), "").unwrap();
        sleep(Duration::from_secs(2)).await;
        assert_eq!(creates("late"), 1, "it waits for its turn");
        let begin = Instant::now();
        pod.kill("app", 10).await.unwrap();
        sleep(Duration::from_secs(1)).await;
        assert_eq!(creates("late"), 1, "the kill was another one's");
        let (_, ()) = tokio::join!(pod.kill("late", 10), until("its turn", || creates("late") == 2));
        assert!(
            begin.elapsed() < Duration::from_secs(8),
            "not when another one's was over: {:?}",
            begin.elapsed()
        );
        for id in slow.into_iter().chain(["late", "app"]) {
            let _ = fs::remove_file(pod.directory.path().join(id).join("slow.create"));
        }
    });
}
