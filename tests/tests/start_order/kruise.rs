//! Pods with OpenKruise's marks, on a node that reads them and on one that does not (S12, S13). The containerds are the
//! tests' own, for their `/etc`.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, Runtime};

use crate::support::{AMPLE, SOON, are_running, exit_with, held_for, milliseconds, seconds, wait_started};

/// What Kruise's webhook writes for two SidecarSets, of which `mesh` is upgraded hot.
const SETS: (&str, &str) = (
    "kruise.io/sidecarset-hash",
    r#"{"logs":{"updateTimestamp":"2026-11-24T20:00:00Z","hash":"x4d","sidecarSetName":"logs","sidecarList":["tail"],"controllerRevision":"logs-1"},"mesh":{"updateTimestamp":"2026-11-24T20:00:00Z","hash":"b7c","sidecarSetName":"mesh","sidecarList":["envoy"],"controllerRevision":"mesh-1"}}"#,
);
const WORKING: (&str, &str) = ("kruise.io/sidecarset-working-hotupgrade-container", r#"{"envoy":"envoy-1"}"#);
const READ: &str = "read = [\"kruise\"]";

fn marked(name: &str) -> Pod {
    Pod::new(name)
        .annotate_with(SETS.0, SETS.1)
        .annotate_with(WORKING.0, WORKING.1)
        .annotate_with("version.sidecarset.kruise.io/envoy-1", "1")
}

/// S12, R1, T1: the RuntimeClass alone gives such a pod its order: at the start, when a sidecar dies, and in a stop. Of a
/// hot pair both run, and podshim touches neither.
#[tokio::test]
async fn s12_r1_t1_a_pod_that_kruise_injected_has_its_order() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file(READ).await?;
    let mut pod = marked("kruise")
        .container(Program::new("app").term_delay(seconds(1)))
        .container(Program::new("envoy-1").term_delay(seconds(1)))
        .container(Program::new("envoy-2"))
        .container(Program::new("tail").runs_for_each(&[seconds(2), seconds(600)]).exits(1))
        .run(&node, Runtime::Podshim)
        .await?;
    // The kubelet's order: app first, as its author wrote it.
    pod.start_all(&["app", "envoy-1", "envoy-2"]).await?;
    for name in ["app", "envoy-1", "envoy-2"] {
        let reason = held_for(&pod, name).await?;
        ensure!(reason.contains("sidecar \"tail\""), "{name}: {reason}");
    }
    ensure!(pod.timeline()?.entries().is_empty(), "{}", pod.timeline()?);
    pod.start_all(&["tail"]).await?;
    wait_started(&pod, &["tail", "envoy-1", "envoy-2", "app"]).await?;
    pod.wait_for("tail", Started, 2, SOON).await?;
    are_running(&pod, &["app", "envoy-1", "envoy-2", "tail"]).await?;

    pod.stop_all_at_once(AMPLE).await?;
    exit_with(&pod, &[("app", 0), ("envoy-1", 0), ("envoy-2", 0), ("tail", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("envoy-1", Term), ("envoy-1", Exiting)])?;
    timeline.in_order(&[("app", Exiting), ("envoy-2", Term)])?;
    timeline.before(("envoy-2", Exiting), ("tail", Term))?;
    timeline.before(("envoy-1", Exiting), ("tail", Term))?;
    for (name, starts) in [("app", 1), ("envoy-1", 1), ("envoy-2", 1), ("tail", 2)] {
        ensure!(timeline.count(name, Starting) == starts, "{name}\n{timeline}");
    }
    pod.remove().await
}

/// S12, N3: `delete` reads the marks too, after the shim was killed.
#[tokio::test]
async fn s12_n3_a_killed_shims_pod_with_marks_ends_in_order() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file(READ).await?;
    let mut pod = Pod::new("kruise-kill")
        .annotate_with(SETS.0, r#"{"logs":{"sidecarList":["tail"]}}"#)
        .container(Program::new("app").term_delay(milliseconds(300)))
        .container(Program::new("tail"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "tail"]).await?;
    wait_started(&pod, &["app", "tail"]).await?;
    signal(pod.shim_pid()?, libc::SIGKILL)?;
    let timeline = pod.wait_for("tail", Exiting, 1, AMPLE).await?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("tail", Term)])?;
    // containerd reports the exits when `delete` has ended.
    for name in ["app", "tail"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.remove().await
}

/// S12, S1: without the word in the node's file such a pod runs as on the runc shim; with it the pod's own plan wins; and
/// marks that are no marks refuse nothing.
#[tokio::test]
async fn s12_when_kruises_marks_count() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = marked("kruise-unread").container(Program::new("app")).run(&node, Runtime::Podshim).await?;
    pod.start_all(&["app"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.remove().await?;

    node.write_node_file(READ).await?;
    let mut pod = marked("kruise-own")
        .annotate("plan", "app=main")
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.remove().await?;

    let mut pod = Pod::new("kruise-wrong")
        .annotate_with(SETS.0, "{")
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app"]).await?;
    wait_started(&pod, &["app"]).await?;
    let sandbox = pod.sandbox().to_owned();
    pod.remove().await?;
    logged(&node, &sandbox, "kruise.io/sidecarset-hash is not what OpenKruise writes")
}

/// S13: Kruise's barrier lets the kubelet create the sidecar only once the main is ready. podshim would hold the main until
/// the sidecar runs. It does not, says so in its log, and keeps the order of the stop.
#[tokio::test]
async fn s13_t1_a_start_barrier_and_the_plan_do_not_wait_for_each_other() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file(READ).await?;
    let behind = |name: &str| Program::new(name).variable("KRUISE_CONTAINER_BARRIER", "true");
    let mut pod = Pod::new("kruise-barrier")
        .annotate_with("kruise.io/sidecarset-hash", r#"{"logs":{"sidecarList":["tail"]}}"#)
        .annotate_with("apps.kruise.io/container-launch-priority", "Ordered")
        .container(behind("app").term_delay(seconds(1)))
        .container(behind("tail"))
        .run(&node, Runtime::Podshim)
        .await?;
    // As the barrier has it: the second exists when the first is ready.
    for name in ["app", "tail"] {
        pod.start_all(&[name]).await?;
        wait_started(&pod, &[name]).await?;
    }
    let warning =
        "main \"app\" is not held for sidecar \"tail\": OpenKruise's start barrier orders its start";
    logged(&node, pod.sandbox(), warning)?;
    pod.stop_all_at_once(AMPLE).await?;
    exit_with(&pod, &[("app", 0), ("tail", 0)]).await?;
    pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("tail", Term), ("tail", Exiting)])?;
    pod.remove().await
}

/// Checks that the shim of a sandbox has logged a text, however containerd quotes it.
fn logged(node: &Containerd, sandbox: &str, text: &str) -> Result<()> {
    let log = std::fs::read_to_string(node.directory().join("containerd.log"))?;
    let found = log.lines().any(|line| line.replace('\\', "").contains(text));
    ensure!(found, "{sandbox}: not logged: {text}");
    Ok(())
}
