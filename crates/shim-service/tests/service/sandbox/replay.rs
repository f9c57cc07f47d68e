//! All that containerd 2.3.4 sent in the life of a pod and of a container in it, in its order, under their own ids. Only the paths
//! and the OCI runtime are the test's.

use super::*;
use crate::support::with_pod_of;

fn recorded<M: protobuf::Message>(method: &str) -> M {
    recorded::request("shop", method)
}

/// Traps 31 and 32: containerd that was killed connects, asks for the status and waits again; then it ends the sandbox.
#[test]
fn trap_31_what_containerd_sends_from_create_to_shutdown_is_served() {
    let create: CreateSandboxRequest = recorded("CreateSandbox");
    let id = create.sandbox_id.clone();
    with_pod_of(&id, async |pod| {
        let api = Api::of(&pod).await;
        assert!(!create.netns_path.is_empty() && create.rootfs.is_empty() && create.annotations.is_empty());
        let create = CreateSandboxRequest {
            bundle_path: api.bundle.display().to_string(),
            netns_path: "/proc/self/ns/net".to_owned(),
            ..create
        };
        let client = &api.client;
        client.create_sandbox(context(), &create).await.unwrap();
        client.start_sandbox(context(), &recorded("StartSandbox")).await.unwrap();
        let platform = client.platform(context(), &recorded("Platform")).await.unwrap().platform;
        assert_eq!(platform.os, "linux");
        let status = client.sandbox_status(context(), &recorded("SandboxStatus")).await.unwrap();
        assert_eq!((status.sandbox_id.as_str(), status.state.as_str()), (id.as_str(), "SANDBOX_READY"));
        assert!(status.info.is_empty());
        let status = client.sandbox_status(context(), &recorded("SandboxStatus-verbose")).await.unwrap();
        let info: Value = serde_json::from_str(&status.info["info"]).unwrap();
        assert_eq!(info["runtimeSpec"]["annotations"]["io.kubernetes.cri.sandbox-name"], "shop-0");
        // The pod's cgroup is a kubelet's, which is not there.
        let (code, text) = refusal(client.sandbox_metrics(context(), &recorded("SandboxMetrics")).await);
        assert_eq!(code, Code::FAILED_PRECONDITION);
        assert!(text.contains("/podshim-recorded/pod0"), "{text}");

        // After the restart: the pod has no process.
        let connected = pod.client.connect(context(), &recorded("Connect")).await.unwrap();
        assert_eq!(connected.task_pid, 0);
        assert!(pod.client.pids(context(), &recorded("Pids")).await.unwrap().processes.is_empty());
        let status = client.sandbox_status(context(), &recorded("SandboxStatus")).await.unwrap();
        assert_eq!(status.state, "SANDBOX_READY");
        let wait = recorded("WaitSandbox");
        let waits = client.wait_sandbox(context(), &wait);
        let stop = async {
            client.stop_sandbox(context(), &recorded("StopSandbox")).await.unwrap();
            assert!(!api.place.exists());
        };
        let (exit, ()) = tokio::join!(waits, stop);
        assert_eq!(exit.unwrap().exit_status, 137);
        client.shutdown_sandbox(context(), &recorded("ShutdownSandbox")).await.unwrap();
        ends(pod).await;
    });
}

fn of_container<M: protobuf::Message>(method: &str) -> M {
    recorded::request("web", method)
}

/// Trap 29: the container joins the sandbox that has no process. 2.3.4 names the sandbox's own socket in runc's options.
#[test]
fn trap_29_what_containerd_sends_from_create_to_delete_of_a_container_is_served() {
    with_pod(async |pod| {
        let api = Api::started(&pod, options("web=main", OWN_PIDS)).await;
        let create: CreateTaskRequest = of_container("Create");
        let id = create.id.clone();
        assert!(create.bundle.ends_with(&id) && create.stdout.ends_with(&format!("{id}-stdout")));
        assert_eq!((create.rootfs.len(), create.terminal), (1, false));
        let options = create.options.clone().unwrap();
        assert_eq!(options.type_url, "containerd.runc.v1.Options");
        assert!(String::from_utf8_lossy(&options.value).contains("ttrpc+unix:///run/containerd/s/"));

        container(&pod, &id, "web", "echo up; exec sleep 60");
        let of_test = pod.create_request(&id);
        let output = pod.directory.path().join("output");
        fs::write(&output, "").unwrap();
        let stream = format!("file://{}", output.display());
        let create = CreateTaskRequest {
            bundle: of_test.bundle,
            rootfs: Vec::new(),
            stdout: stream.clone(),
            stderr: stream,
            // Fields of one message may follow those of another.
            options: MessageField::some(Any {
                value: [options.value, of_test.options.unwrap().value].concat(),
                ..options
            }),
            ..create
        };
        let client = &pod.client;
        let pid = client.create(context(), &create).await.unwrap().pid;
        let spec: Value =
            serde_json::from_slice(&fs::read(pod.directory.path().join(&id).join("config.json")).unwrap())
                .unwrap();
        let ipc = api.place.join("ipc").display().to_string();
        assert_eq!(spec.pointer("/linux/namespaces/1/path").unwrap(), ipc.as_str());
        let connected = client.connect(context(), &of_container("Connect")).await.unwrap();
        assert_eq!(connected.task_pid, pid);
        let state =
            async || client.state(context(), &of_container("State")).await.unwrap().status.enum_value();
        assert_eq!(state().await, Ok(Status::CREATED));
        client.start(context(), &of_container("Start")).await.unwrap();
        let wait = of_container("Wait");
        let waits = client.wait(context(), &wait);
        let kill = async {
            assert_eq!(state().await, Ok(Status::RUNNING));
            client.stats(context(), &of_container("Stats")).await.unwrap();
            while fs::read_to_string(&output).unwrap() != "up\n" {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            client.kill(context(), &of_container("Kill")).await.unwrap();
        };
        let (exit, ()) = tokio::join!(waits, kill);
        assert_eq!(exit.unwrap().exit_status, 143);
        assert_eq!(refusal(client.kill(context(), &of_container("Kill-9")).await).0, Code::NOT_FOUND);
        let deleted = client.delete(context(), &of_container("Delete")).await.unwrap();
        assert_eq!((deleted.pid, deleted.exit_status), (pid, 143));
        client.shutdown(context(), &of_container("Shutdown")).await.unwrap();
        api.stop("pod").await.unwrap();
        api.shutdown().await.unwrap();
        ends(pod).await;
    });
}
