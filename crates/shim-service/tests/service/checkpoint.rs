//! Checkpoint and restore over the socket (CONTRACT §8). The runtime's checkpoint is an empty file.

use std::fs;

use containerd_shim_protos::shim::shim::*;
use containerd_shim_protos::types::task::Status;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;
use ttrpc::Code;

use crate::PLAN;
use crate::support::{Pod, context, refusal, with_pod};

/// `containerd.runc.v1.CheckpointOptions{exit: true, open_tcp: true}`.
const EXIT: [u8; 4] = [0x08, 1, 0x10, 1];

fn request(pod: &Pod, id: &str, options: Option<&[u8]>) -> CheckpointTaskRequest {
    let options = options.map(|value| Any {
        type_url: "containerd.runc.v1.CheckpointOptions".to_owned(),
        value: value.to_vec(),
        ..Any::default()
    });
    CheckpointTaskRequest {
        id: id.to_owned(),
        path: pod.directory.path().join("image").display().to_string(),
        options: MessageField(options.map(Box::new)),
        ..Default::default()
    }
}

async fn create_restored(pod: &Pod, id: &str) -> ttrpc::Result<CreateTaskResponse> {
    let checkpoint = pod.directory.path().join("image").display().to_string();
    let request = CreateTaskRequest { checkpoint, ..pod.create_request(id) };
    pod.client.create(context(), &request).await
}

#[test]
fn a_checkpoint_leaves_it_running_or_ends_it_as_the_options_say() {
    with_pod(async |mut pod| {
        pod.run("c", "exec sleep 60", &[]).await;
        pod.client.checkpoint(context(), &request(&pod, "c", None)).await.unwrap();
        assert_eq!(pod.state("c").await.unwrap().status.enum_value(), Ok(Status::RUNNING));
        pod.client.checkpoint(context(), &request(&pod, "c", Some(&EXIT))).await.unwrap();
        let arguments = fs::read_to_string(pod.directory.path().join("c/arguments.checkpoint")).unwrap();
        assert!(arguments.contains("--tcp-established") && !arguments.contains("--leave"), "{arguments}");
        assert_eq!(pod.wait("c").await.unwrap().exit_status, 137);
        let (code, text) = refusal(pod.client.checkpoint(context(), &request(&pod, "c", None)).await);
        assert_eq!(
            (code, text.as_str()),
            (Code::FAILED_PRECONDITION, "cannot checkpoint container c: it has stopped")
        );
        // A checkpoint has no event of its own, as in the runc shim.
        let events = pod.events(3).await;
        assert_eq!(events, ["/tasks/create c", "/tasks/start c", "/tasks/exit c"]);
    });
}

#[test]
fn a_failed_checkpoint_is_reported_in_the_runtimes_words_and_changes_nothing() {
    with_pod(async |pod| {
        pod.run("c", "exec sleep 60", &[]).await;
        fs::write(pod.directory.path().join("c/fail.checkpoint"), "criu failed: type NOTIFY errno 0")
            .unwrap();
        let (code, text) = refusal(pod.client.checkpoint(context(), &request(&pod, "c", Some(&EXIT))).await);
        assert_eq!(code, Code::UNKNOWN);
        assert_eq!(text, "OCI runtime checkpoint failed: criu failed: type NOTIFY errno 0");
        assert_eq!(pod.state("c").await.unwrap().status.enum_value(), Ok(Status::RUNNING));
        assert_eq!(
            refusal(pod.client.checkpoint(context(), &request(&pod, "x", None)).await).0,
            Code::NOT_FOUND
        );
        let unknown = Any { type_url: "acme.Options".to_owned(), ..Any::default() };
        let mut wrong = request(&pod, "c", None);
        wrong.options = MessageField::some(unknown);
        assert_eq!(refusal(pod.client.checkpoint(context(), &wrong).await).0, Code::INVALID_ARGUMENT);
    });
}

/// criu's work directory is removed after the call, and with it the log that runc's error names. podshim keeps that log in the
/// bundle and names it instead.
#[test]
fn criu_s_log_of_a_failure_stays_and_is_named() {
    with_pod(async |pod| {
        pod.run("c", "exec sleep 60", &[]).await;
        pod.bundle("r", "exec sleep 60", &[]);
        create_restored(&pod, "r").await.unwrap();
        for (id, command, kept_as) in
            [("c", "checkpoint", "criu-dump.log"), ("r", "restore", "criu-restore.log")]
        {
            let bundle = pod.directory.path().join(id);
            // In JSON: two lines.
            let error = r"criu failed: type NOTIFY errno 0\nlog file: gone.log";
            fs::write(bundle.join(format!("fail.{command}")), error).unwrap();
            fs::write(bundle.join(format!("criu.{command}")), "Error (criu/x.c:1)").unwrap();
            let text = match command {
                "checkpoint" => refusal(pod.client.checkpoint(context(), &request(&pod, id, None)).await).1,
                _ => refusal(pod.start(id).await).1,
            };
            let log = bundle.join(kept_as);
            let expected = format!("criu failed: type NOTIFY errno 0 (criu's log: {})", log.display());
            assert_eq!(text, format!("OCI runtime {command} failed: {expected}"));
            assert_eq!(fs::read_to_string(log).unwrap(), "Error (criu/x.c:1)");
            assert!(!bundle.join("criu-work").exists(), "{command}");
        }
    });
}

/// State is CREATED with pid 0 and nothing runs until Start, which may fail and be called again.
#[test]
fn a_restored_container_runs_from_its_start_on() {
    with_pod(async |mut pod| {
        pod.bundle("c", "exec sleep 60", &[]);
        assert_eq!(create_restored(&pod, "c").await.unwrap().pid, 0);
        let state = pod.state("c").await.unwrap();
        assert_eq!((state.status.enum_value(), state.pid), (Ok(Status::CREATED), 0));
        assert_eq!(pod.calls("c"), [""; 0]);
        // containerd's WithProcessKill takes this code for "nothing to kill".
        assert_eq!(refusal(pod.kill("c", 9).await).0, Code::FAILED_PRECONDITION);
        assert_eq!(refusal(pod.start("c").await).0, Code::UNKNOWN);
        fs::create_dir(pod.directory.path().join("image")).unwrap();
        fs::write(pod.directory.path().join("image/state"), "").unwrap();
        let pid = pod.start("c").await.unwrap().pid;
        let state = pod.state("c").await.unwrap();
        assert!(pid > 0 && state.pid == pid && state.status.enum_value() == Ok(Status::RUNNING));
        // Before a second restore the OCI runtime deletes what the failed one may have left.
        assert_eq!(pod.calls("c"), ["restore", "delete", "restore"]);
        pod.kill("c", 9).await.unwrap();
        assert_eq!(pod.wait("c").await.unwrap().exit_status, 137);
        pod.delete("c").await.unwrap();
        let events = pod.events(4).await;
        assert_eq!(events, ["/tasks/create c", "/tasks/start c", "/tasks/exit c", "/tasks/delete c"]);
    });
}

#[test]
fn one_that_was_never_started_is_deleted() {
    with_pod(async |pod| {
        pod.bundle("c", "exec sleep 60", &[]);
        create_restored(&pod, "c").await.unwrap();
        pod.delete("c").await.unwrap();
        assert_eq!(pod.calls("c"), [""; 0]);
        assert_eq!(refusal(pod.state("c").await).0, Code::NOT_FOUND);
    });
}

/// S1: a restored program cannot be held until its turn.
#[test]
fn a_container_of_a_plan_is_not_restored() {
    with_pod(async |pod| {
        pod.bundle("c", "exec sleep 60", &[PLAN, ("io.kubernetes.cri.container-name", "app")]);
        let (code, text) = refusal(create_restored(&pod, "c").await);
        assert_eq!(code, Code::FAILED_PRECONDITION);
        assert!(text.contains("podshim.io/plan"), "{text}");
    });
}
