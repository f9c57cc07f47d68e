//! The ways in which containerd's configuration can name podshim (DESIGN §5, CONTRACT §1.6, §1.7): each leads to the
//! same shim and to the configured OCI runtime, and the kubelet learns the features of that runtime.

use anyhow::{Result, ensure};
use e2e::durations::SOON;
use e2e::{Containerd, Pod, Program, RunningPod};

/// A pod whose container prints, takes an exec, and ends, on the shim and the OCI runtime that the handler names.
async fn a_pod_lives_and_ends(handler: &str, oci_runtime: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    // containerd 1.6 ignores `runtime_path` for sandboxes.
    let shim = match (handler, node.version()?) {
        ("podshim-path", (1, 6)) => "containerd-shim-runc-v2 ",
        _ => "containerd-shim-podshim-v2 ",
    };
    let mut pod = Pod::new(handler)
        .container(Program::new("app").prints("hello").term_exit_code(3))
        .run_handler(&node, handler)
        .await?;
    pod.start("app").await?;
    e2e::wait::until("the output", SOON, async || Ok(pod.output("app")?.contains("hello").then_some(())))
        .await?;
    ensure!(pod.exec("app", &["true"]).await?.exit_code == 0, "exec");
    ensure!(shim_of(&pod)?.contains(shim), "another shim: {}", shim_of(&pod)?);
    let used = oci_runtime_of(&node, &pod)?;
    ensure!(used == oci_runtime, "{used}, not {oci_runtime}");
    pod.stop("app", SOON).await?;
    ensure!(pod.status("app").await?.exit_code == 3, "{:?}", pod.status("app").await?);
    pod.remove().await
}

/// The command line of the pod's shim.
fn shim_of(pod: &RunningPod<'_>) -> Result<String> {
    let mark = format!(" -id {} ", pod.sandbox());
    let found = pod.leftovers()?;
    Ok(found.into_iter().filter(|line| line.starts_with("process: ") && line.contains(&mark)).collect())
}

/// Which OCI runtime has the container: both use the same directory, with different files in it.
fn oci_runtime_of(node: &Containerd, pod: &RunningPod<'_>) -> Result<&'static str> {
    let state = node.root()?.join("run/containerd/runc/k8s.io").join(pod.id("app")?);
    Ok(if state.join("state.json").exists() {
        "runc"
    } else if state.join("status").exists() {
        "crun"
    } else {
        "neither"
    })
}

#[tokio::test]
async fn a_custom_runtime_type() -> Result<()> {
    let runtime = Containerd::connect().await?.oci_runtime()?;
    a_pod_lives_and_ends("podshim", &runtime).await
}

/// The only runtime type for which containerd 2.x asks `-info` at its start, and accepts user namespaces together with
/// an options table.
#[tokio::test]
async fn runcs_type_with_podshim_as_its_program() -> Result<()> {
    let runtime = Containerd::connect().await?.oci_runtime()?;
    a_pod_lives_and_ends("podshim-path", &runtime).await
}

#[tokio::test]
async fn the_program_itself_as_the_type() -> Result<()> {
    a_pod_lives_and_ends("podshim-file", "runc").await
}

/// Trap 5: the options of a custom type are a file's name (1.6) or TOML (later), not runc's message.
#[tokio::test]
async fn another_oci_runtime() -> Result<()> {
    a_pod_lives_and_ends("podshim-crun", "crun").await
}

/// CONTRACT §8: the kubelet starts pods with user namespaces or recursive read-only mounts only on a handler that
/// reports these features. 2.x learns them from `-info`, and asks only for runc's type. 1.x reports no handlers to the
/// kubelet.
#[tokio::test]
async fn the_kubelet_learns_what_the_runtime_can_do() -> Result<()> {
    let node = Containerd::connect().await?;
    let cri = node.cri()?;
    let (runc, podshim) = (cri.handler_features("runc").await?, cri.handler_features("podshim-path").await?);
    ensure!(runc == podshim, "runc: {runc:?}, podshim: {podshim:?}");
    ensure!(runc.is_some() == (node.version()? >= (2, 0)), "{runc:?}");
    Ok(())
}
