//! `hack/cluster` itself: what it starts again, and that nothing is left in the end.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::{Cluster, Workload};

use crate::support::{SOON, started_in_order, with_proxy};

/// The API server, etcd and containerd are killed under a pod, which lives on; then the cluster ends, with the pod.
#[tokio::test]
async fn up_again_and_down() -> Result<()> {
    let cluster = Cluster::start().await?;
    let pod = Workload::pod(with_proxy("lives-on")).run(&cluster).await?;
    pod.wait_ready(1, SOON).await?;
    cluster.kill("kube-apiserver").await?;
    cluster.kill("etcd").await?;
    cluster.node(1)?.kill().await?;
    cluster.up_again().await?;
    let timeline = pod.wait_ready(1, SOON).await.and_then(|_| pod.timeline(pod.name()))?;
    started_in_order(&timeline)?;
    timeline.has_not_restarted("proxy")?;
    timeline.has_not_restarted("app")?;
    pod.leave();

    let directory = cluster.directory().to_owned();
    let own = namespaces_of(Path::new("/proc/self"));
    let mut namespaces = BTreeSet::new();
    // Held open to the end, as the kernel gives the number of a removed namespace to the next one.
    let mut held = Vec::new();
    for process in processes()?.into_iter().filter(|process| belongs(process, &directory)) {
        held.extend(NAMESPACES.iter().flat_map(|kind| File::open(process.join(kind))));
        namespaces.extend(namespaces_of(&process).difference(&own).cloned());
    }
    // The control plane's, the node's, the pod's: mounts and network of each, and the containers' own.
    ensure!(namespaces.len() >= 6 && held.len() >= namespaces.len(), "{namespaces:?}");
    cluster.down().await?;
    let left = left(&directory, &namespaces)?;
    ensure!(left.is_empty(), "{left:#?}");
    Ok(())
}

/// Everything that is still there of a cluster.
fn left(directory: &Path, namespaces: &BTreeSet<OsString>) -> Result<Vec<PathBuf>> {
    let in_namespace = |process: &PathBuf| !namespaces_of(process).is_disjoint(namespaces);
    let mut left: Vec<_> = processes()?
        .into_iter()
        .filter(|process| belongs(process, directory) || in_namespace(process))
        .collect();
    let name = directory.file_name().context("no name")?.to_string_lossy().into_owned();
    let is_its = |path: &Path| path.file_name().is_some_and(|file| file.to_string_lossy().contains(&name));
    for entry in fs::read_dir(directory.parent().context("no parent")?)? {
        left.extend(Some(entry?.path()).filter(|path| is_its(path)));
    }
    let mut directories = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(cgroup) = directories.pop() {
        // Another instance's cgroup may go meanwhile.
        for entry in fs::read_dir(&cgroup).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
                left.extend(Some(entry.path()).filter(|path| is_its(path)));
            }
        }
    }
    Ok(left)
}

/// The directories in `/proc` of all processes that live.
fn processes() -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir("/proc")?.collect::<std::io::Result<Vec<_>>>()?;
    let pid = |name: &OsString| name.to_string_lossy().parse::<u32>().is_ok();
    Ok(entries.into_iter().filter(|entry| pid(&entry.file_name())).map(|entry| entry.path()).collect())
}

/// Whether a process is in a mount namespace of the cluster in `directory`.
fn belongs(process: &Path, directory: &Path) -> bool {
    let mounts = fs::read_to_string(process.join("mountinfo")).unwrap_or_default();
    mounts.contains(&format!(" {}/", directory.display()))
        || mounts.contains(&format!("{}-node-", directory.display()))
}

const NAMESPACES: [&str; 2] = ["ns/mnt", "ns/net"];

/// A process's namespaces for mounts and network, as in `mnt:[4026532000]`.
fn namespaces_of(process: &Path) -> BTreeSet<OsString> {
    let links = NAMESPACES.map(|kind| fs::read_link(process.join(kind)));
    links.into_iter().flatten().map(PathBuf::into_os_string).collect()
}
