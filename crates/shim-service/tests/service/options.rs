//! Which OCI runtime a container gets if its own options name none.

use containerd_shim_protos::shim::shim::CreateTaskRequest;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;

use crate::support::{context, with_pod};

const TYPE: &str = "io.kubernetes.cri.container-type";
const SANDBOX: &str = "io.kubernetes.cri.sandbox-id";

/// Trap 6 (containerd issue 11480): a pod with user namespaces, whose containers' options are the task's. They name
/// the owner of the streams and no longer the OCI runtime that the sandbox was created with.
#[test]
fn trap_06_a_container_is_run_by_the_runtime_of_its_sandbox() {
    with_pod(async |pod| {
        // The sandbox's id is the shim's.
        pod.run("pod", "exec sleep 60", &[(TYPE, "sandbox"), (SANDBOX, "pod")]).await;
        pod.bundle("app", "exec sleep 60", &[(TYPE, "container"), (SANDBOX, "pod")]);
        // io_uid and io_gid 1.
        let task = Any {
            type_url: "containerd.runc.v1.Options".to_owned(),
            value: b"\x20\x01\x28\x01".to_vec(),
            ..Any::default()
        };
        let request = CreateTaskRequest { options: MessageField::some(task), ..pod.create_request("app") };
        pod.client.create(context(), &request).await.unwrap();
        assert_eq!(pod.calls("app"), ["create"]);
    });
}
