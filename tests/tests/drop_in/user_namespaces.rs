//! Pods and containers with a user namespace: the rootfs belongs to the container's root, its processes to the node's
//! unprivileged users.

use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use e2e::durations::SOON;
use e2e::{Containerd, Event, Footprint, Pod, Program, Runtime};

/// The node's first id of these namespaces.
const FIRST: u32 = 200_000;

/// How many ids a namespace has.
const IDS: u32 = 65_536;

/// What a shell in the container sees: its own id, the owner of the image's files, the map of its namespace. The shell
/// ends half a second late: a `ctr` that learns of the end before it has read the output drops that output.
const SCRIPT: &str = "id -u; stat -c %u /bin/busybox; awk '{print $2}' /proc/self/uid_map; touch /new && stat -c %u /new; \
                    sleep 0.5";

/// containerd's own error where it starts no such container, with any shim. 1.7 cannot map volumes. 2.x accepts an
/// options table, which crun needs, only with runc's type (trap 6, CONTRACT §1.7).
fn refusal(node: &Containerd, handler: &str) -> Result<Option<&'static str>> {
    Ok(match (node.version()?, handler, node.oci_runtime()?.as_str()) {
        ((1, 7), ..) => Some("idmap mounts not yet supported"),
        ((2.., _), "podshim", "crun") => Some("can't unmarshal type"),
        _ => None,
    })
}

/// containerd 2.x: `hostUsers: false`. Its overlay snapshotter maps the layers at the mount (`uidmap=`). 1.6 ignores
/// the setting and runs the pod as any other.
async fn a_pod_has_a_user_namespace(handler: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let first = if node.version()? == (1, 6) { 0 } else { FIRST };
    let mut pod = Pod::new("userns")
        .user_namespace(FIRST)
        .container(Program::new("app").term_exit_code(4))
        .run_handler(&node, handler)
        .await?;
    // containerd's own shim has the OCI runtime make it. 1.6 gives a sandbox to that shim whatever the runtime's path is.
    let is_podshims = match handler {
        "podshim" => true,
        "podshim-path" => node.version()? > (1, 6),
        _ => false,
    };
    if is_podshims && node.makes_own_sandboxes() {
        pod.has_own_sandbox().await?;
    }
    let started = pod.start("app").await;
    if let Some(words) = refusal(&node, handler)? {
        let error = format!("{:#}", started.err().context("it was started")?);
        ensure!(error.contains(words), "{error}");
        return pod.remove().await;
    }
    started?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    let seen = pod.exec("app", &["sh", "-c", SCRIPT]).await?;
    ensure!(seen.stdout == format!("0\n0\n{first}\n0\n"), "{seen:?}");
    let pid = node.cri()?.container_pid(pod.id("app")?).await?;
    let owner = std::fs::metadata(format!("/proc/{pid}"))?.uid();
    ensure!(owner == first, "its process belongs to {owner}");
    pod.stop("app", SOON).await?;
    ensure!(pod.status("app").await?.exit_code == 4, "{:?}", pod.status("app").await?);
    pod.remove().await
}

/// Runs [`SCRIPT`] with `ctr run --uidmap --gidmap`. Returns its stdout and the node's first id of its namespace.
async fn owners(node: &Containerd, runtime: Runtime, labels: &[&str]) -> Result<(String, u32)> {
    let id = format!("userns-{}-{}", runtime.handler(), std::process::id());
    let first = first_of_a_run();
    let map = format!("0:{first}:{IDS}");
    let run = ["run", "--rm", "--runtime", runtime.runtime_type(), "--uidmap", &map, "--gidmap", &map];
    let program = ["podshim.test/busybox:1", &id, "sh", "-c", SCRIPT];
    let words: Vec<&str> = run.into_iter().chain(labels.iter().copied()).chain(program).collect();
    let output = node.ctr().output(&words).await?;
    ensure!(output.exit_code == Some(0), "{words:?}: {output:?}");
    Footprint::of_containers(&[&id]).wait_gone(node, SOON).await?;
    Ok((output.stdout, first))
}

/// Of ids that no other run has. containerd collects the snapshot with the owners changed, which a run leaves behind and which is named
/// by these ids, at any time, also just after the next `ctr` with the same ones has found it (1.7.24: "parent snapshot does not exist").
fn first_of_a_run() -> u32 {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let run = std::process::id() % 8_000 * 4 + RUNS.fetch_add(1, Ordering::Relaxed);
    FIRST + IDS * run
}

#[tokio::test]
async fn pod_on_runc() -> Result<()> {
    a_pod_has_a_user_namespace("runc").await
}

/// Trap 6: the custom type works if it has no options table (hack/lib/config.sh).
#[tokio::test]
async fn pod_on_podshim() -> Result<()> {
    a_pod_has_a_user_namespace("podshim").await
}

#[tokio::test]
async fn pod_on_podshim_as_runcs_program() -> Result<()> {
    a_pod_has_a_user_namespace("podshim-path").await
}

/// A snapshot in which `ctr` has changed the owners of all files.
#[tokio::test]
async fn container_with_a_copied_snapshot() -> Result<()> {
    let node = Containerd::connect().await?;
    for runtime in [Runtime::Runc, Runtime::Podshim] {
        let (seen, first) = owners(&node, runtime, &[]).await?;
        ensure!(seen == format!("0\n0\n{first}\n0\n"), "{runtime:?}: {seen:?}");
    }
    Ok(())
}

/// A snapshot that is mapped when it is mounted. 1.x accepts the option and maps nothing, with either shim: the image's files belong
/// to another user than the container's root.
#[tokio::test]
async fn container_with_mapped_layers() -> Result<()> {
    let node = Containerd::connect().await?;
    let seen = async |runtime| {
        let (seen, first) = owners(&node, runtime, &["--remap-labels"]).await?;
        anyhow::Ok(seen.replace(&first.to_string(), "FIRST"))
    };
    let (runc, podshim) = (seen(Runtime::Runc).await?, seen(Runtime::Podshim).await?);
    ensure!(podshim == runc, "runc: {runc:?}, podshim: {podshim:?}");
    if node.version()? >= (2, 0) {
        ensure!(podshim == "0\n0\nFIRST\n0\n", "{podshim:?}");
    }
    Ok(())
}
