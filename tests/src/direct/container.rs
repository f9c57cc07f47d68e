//! A container of a pod that CRI runs, created without CRI: for moments at which no request of CRI stops.

use std::path::Path;

use anyhow::Result;
use containerd_shim_protos::shim::shim::CreateTaskRequest;
use serde_json::json;

use crate::direct::bundle::{Bundle, root_file_system};
use crate::direct::shim::Connection;
use crate::task::unique;
use crate::{Containerd, RunningPod};

/// The Create of a container of that name, as CRI's plugin has it sent. Its bundle is below `directory`.
///
/// # Errors
/// If the bundle cannot be written.
pub fn create_request(
    node: &Containerd,
    pod: &RunningPod<'_>,
    name: &str,
    directory: &Path,
) -> Result<CreateTaskRequest> {
    let id = unique("direct");
    let bundle = directory.join(&id);
    let annotations = json!({
        "io.kubernetes.cri.container-type": "container",
        "io.kubernetes.cri.container-name": name,
        "io.kubernetes.cri.sandbox-id": pod.sandbox(),
    });
    Bundle::program(&["sleep", "600"])
        .spec(|spec| spec["annotations"] = annotations)
        .write(&bundle, &format!("{}/{id}", node.cgroup()))?;
    Ok(CreateTaskRequest {
        id,
        bundle: bundle.to_string_lossy().into_owned(),
        rootfs: vec![root_file_system(directory)?],
        ..Default::default()
    })
}

/// A connection to the pod's shim.
///
/// # Errors
/// If the shim is gone.
pub async fn shim_of(node: &Containerd, pod: &RunningPod<'_>) -> Result<Connection> {
    let address = format!("unix://{}", node.shim_socket("k8s.io", pod.sandbox())?.display());
    Ok(Connection::open(address.as_bytes()).await?.0)
}
