//! Pods and limits that the tests share.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::seconds;
use e2e::{Containerd, Manifest, Program, Timeline, hack};
use serde_json::{Value, json};

/// Limit of a wait for something for which Kubernetes has no delay of its own. A kubelet takes ten seconds and more from
/// the end of the last container to the end of the pod.
pub(crate) const SOON: Duration = seconds(120);

/// How long after its start the proxy accepts connections.
pub(crate) const WARM_UP: Duration = seconds(2);

/// How long the app takes to stop.
pub(crate) const STOP: Duration = seconds(2);

/// A pod whose proxy must be ready before the app starts, and outlive it.
pub(crate) fn with_proxy(name: &str) -> Manifest {
    let proxy = Program::new("proxy").listens(8080, WARM_UP);
    with_gate(name).container(proxy).container_with(app(), readiness())
}

/// The same without its containers.
pub(crate) fn with_gate(name: &str) -> Manifest {
    Manifest::new(name)
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "tcp::8080;period=100ms;fail=600")
}

/// Ready when its program has started. A kubelet takes a container without a readiness probe for ready while it is held
/// (U9), and a command that needs nothing of the program succeeds in a held container too (U8).
pub(crate) fn app() -> Program {
    Program::new("app").term_delay(STOP).ready_file("/tmp/ready", Duration::ZERO)
}

pub(crate) fn readiness() -> Value {
    json!({ "readinessProbe": { "exec": { "command": ["test", "-e", "/tmp/ready"] }, "periodSeconds": 1 } })
}

/// U2: the app waited for its proxy.
pub(crate) fn started_in_order(timeline: &Timeline) -> Result<()> {
    timeline.in_order(&[("proxy", Starting), ("proxy", Started), ("app", Starting), ("app", Started)])?;
    let waited = timeline.time_of("app", Starting)?.saturating_sub(timeline.time_of("proxy", Starting)?);
    ensure!(waited >= WARM_UP, "the app did not wait for its proxy\n{timeline}");
    Ok(())
}

/// T1: the proxy got its signal when the app was gone, after as long as that took.
pub(crate) fn stopped_in_order(timeline: &Timeline) -> Result<()> {
    timeline.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    timeline.has_not_restarted("app")?;
    timeline.has_not_restarted("proxy")
}

/// Makes podshim's image of the programs in a directory, and puts it onto the node.
pub(crate) async fn load_image(node: &Containerd, programs: &Path, name: &str) -> Result<()> {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let archive = node.directory().join(format!("{}.tar", name.replace(['/', ':'], "-")));
    let programs = format!("{architecture}={}", programs.display());
    let words = ["--arch", &programs, "--name", name, "--output"].map(OsString::from);
    hack("image", words.into_iter().chain([archive.clone().into()])).await?;
    import(node, &archive).await
}

pub(crate) async fn import(node: &Containerd, archive: &Path) -> Result<()> {
    let archive = archive.to_str().context("no UTF-8")?;
    node.ctr().run(&["--namespace", "k8s.io", "images", "import", archive]).await.map(drop)
}
