//! A pod whose caller lost containerd in the middle of a call: what a kubelet does about it when containerd is back.

use anyhow::Result;

use crate::{Containerd, leftovers};

/// Stops and removes all that containerd knows of the pod with that UID, and removes its cgroup and its directory, which
/// are its caller's. May be repeated.
///
/// # Errors
/// What containerd answers for the first call that fails.
pub async fn remove_all_of(node: &Containerd, uid: &str) -> Result<()> {
    let cri = node.cri()?;
    let mut sandboxes = cri.list_pod_sandboxes().await?;
    sandboxes.retain(|sandbox| sandbox.metadata.as_ref().is_some_and(|metadata| metadata.uid == uid));
    for sandbox in sandboxes {
        cri.stop_pod_sandbox(&sandbox.id).await?;
        for container in cri.list_containers(&sandbox.id).await? {
            cri.remove_container(&container.id).await?;
        }
        cri.remove_pod_sandbox(&sandbox.id).await?;
    }
    leftovers::remove_cgroup(&node.pod_cgroup(uid)?)?;
    let directory = node.directory().join("pods").join(uid);
    if directory.exists() {
        std::fs::remove_dir_all(directory)?;
    }
    Ok(())
}
