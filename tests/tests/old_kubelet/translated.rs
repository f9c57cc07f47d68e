//! Manifests with native sidecars (KEP-753), which this kubelet cannot read, through `podshim translate`: they keep the
//! order that a kubelet with native sidecars would keep. The manifests are in `native/`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::seconds;
use e2e::{Event, Kubelet, Phase, Runtime, StaticPod, Timeline};

use crate::support::SOON;

fn manifest(name: &str) -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).join("tests/old_kubelet/native").join(name)
}

/// The pod that a controller would create from a workload's template. Reads block style only, as all files here have
/// it.
fn pod_of(workload: &str) -> Result<String> {
    let (_, template) = workload.split_once("\n  template:\n").context("it has no template")?;
    let lines = template.lines().take_while(|line| line.is_empty() || line.starts_with("    "));
    let lines: Vec<&str> = lines.map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
    Ok(format!("apiVersion: v1\nkind: Pod\n{}\n", lines.join("\n")))
}

/// The translation of a manifest, as a pod.
async fn translated(kubelet: &Kubelet, name: &str) -> Result<String> {
    let path = manifest(name);
    let path = path.to_str().context("a path that is not UTF-8")?;
    pod_of(&kubelet.node().podshim(&["translate", path]).await?)
}

/// Runs a translated pod, deletes it once all of `up` have started, and returns its timeline.
async fn life(name: &str, up: &[&str]) -> Result<Timeline> {
    let kubelet = Kubelet::connect(Runtime::Podshim).await?;
    let text = translated(&kubelet, name).await?;
    let pod = StaticPod::run(&kubelet, name.trim_end_matches(".yaml"), &text)?;
    for name in up {
        pod.wait_for(name, Started, 1, SOON).await?;
    }
    pod.wait_seen(SOON).await?;
    pod.delete()?;
    pod.wait_ended(SOON).await
}

/// Checks that the event `next` came no earlier than `ready_after` seconds after the first start of `sidecar`, when
/// that was ready.
fn not_before_ready(timeline: &Timeline, sidecar: &str, ready_after: u64, next: (&str, Event)) -> Result<()> {
    let ready = timeline.time_of(sidecar, Starting)? + seconds(ready_after);
    ensure!(
        timeline.time_of(next.0, next.1)? >= ready,
        "{} did not wait for {sidecar} to be ready\n{timeline}",
        next.0
    );
    Ok(())
}

/// S2, J1, J2: a Job in a mesh, untranslated and translated. Untranslated, its proxy is an init for this kubelet, and
/// an init may have no probe.
#[tokio::test]
async fn s2_j1_j2_a_job_with_a_mesh_proxy() -> Result<()> {
    let name = "job-with-a-mesh.yaml";
    let (stock, podshim) =
        (Kubelet::connect(Runtime::Runc).await?, Kubelet::connect(Runtime::Podshim).await?);
    let original = pod_of(&std::fs::read_to_string(manifest(name))?)?;
    let original = StaticPod::run(&stock, "job", &original)?;
    let refusal = original.wait_refused(SOON).await?;
    ensure!(refusal.contains("spec.initContainers[0].startupProbe: Invalid value"), "{refusal}");

    let text = translated(&podshim, name).await?;
    let pod = StaticPod::run(&podshim, "job", &text)?;
    let ended = pod.wait_status("Succeeded", SOON, |status| status.phase == Phase::Succeeded).await?;
    for name in ["proxy", "fetch", "job"] {
        ensure!(ended.code(name) == Some(0) && ended.of(name)?.restarts == 0, "{ended:#?}");
    }
    pod.delete()?;
    let timeline = pod.wait_ended(SOON).await?;
    not_before_ready(&timeline, "proxy", 2, ("fetch", Starting))?;
    timeline.in_order(&[
        ("fetch", Exiting),
        ("job", Starting),
        ("job", Exiting),
        ("proxy", Term),
        ("proxy", Exiting),
    ])?;
    ensure!(timeline.of("proxy", Exiting).all(|exit| exit.code == 143), "{timeline}");
    Ok(())
}

/// S2, T1: a log forwarder is ready before its app starts, and lives until the app's last line.
#[tokio::test]
async fn s2_t1_a_log_forwarder() -> Result<()> {
    let timeline = life("log-forwarder.yaml", &["logs", "app"]).await?;
    not_before_ready(&timeline, "logs", 2, ("app", Starting))?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("logs", Term), ("logs", Exiting)])
}

/// S2, I5, S8, T1: an agent starts before the init that needs it, and after one that does not.
#[tokio::test]
async fn s2_i5_t1_a_vault_agent_before_an_init() -> Result<()> {
    let timeline = life("vault-agent.yaml", &["vault-agent", "app"]).await?;
    timeline.completes_before("permissions", "vault-agent")?;
    not_before_ready(&timeline, "vault-agent", 2, ("migrate", Starting))?;
    timeline.completes_before("migrate", "app")?;
    timeline.has_not_restarted("migrate")?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("vault-agent", Term), ("vault-agent", Exiting)])
}

/// S2, T1, H2: three sidecars start in order, each ready before the next, and stop in reverse, each gone before the next.
#[tokio::test]
async fn s2_t1_h2_three_sidecars() -> Result<()> {
    let timeline = life("three-sidecars.yaml", &["mesh", "backup", "metrics", "database"]).await?;
    not_before_ready(&timeline, "mesh", 1, ("backup", Starting))?;
    not_before_ready(&timeline, "backup", 1, ("metrics", Starting))?;
    not_before_ready(&timeline, "metrics", 1, ("database", Starting))?;
    timeline.in_order(&[
        ("database", Term),
        ("database", Exiting),
        ("metrics", Term),
        ("metrics", Exiting),
        ("hook", Starting),
        ("hook", Exiting),
        ("backup", Term),
        ("backup", Exiting),
        ("mesh", Term),
        ("mesh", Exiting),
    ])
}
