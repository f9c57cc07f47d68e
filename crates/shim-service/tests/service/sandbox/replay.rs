//! All that containerd 2.3.4 sent in the life of a pod, in its order, under the pod's own id. Only the paths are the test's.

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
