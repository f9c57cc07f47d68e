//! A node goes over to podshim as its default runtime, and back, as docs/install.md describes it: the pods that run stay
//! on the shim that they have, also what is recreated in them; new ones get the new default.

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting};
use e2e::durations::{AMPLE, SOON, milliseconds};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime};

/// Writes the default runtime into containerd's configuration, and starts containerd once more.
async fn change(node: &Containerd, from: Runtime, to: Runtime) -> Result<()> {
    let file = node.directory().join("config.toml");
    let text = std::fs::read_to_string(&file)?;
    let line = |runtime: Runtime| format!("default_runtime_name = {:?}", runtime.handler());
    ensure!(text.contains(&line(from)), "the default is not {from:?}: {text}");
    std::fs::write(&file, text.replace(&line(from), &line(to)))?;
    node.kill().await?;
    node.start_again().await
}

/// A pod without a runtime handler, whose main ends once. With podshim its sidecar starts first, although it is created
/// last.
async fn run<'node>(node: &'node Containerd, name: &str) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new(name)
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app").runs_for_each(&[milliseconds(10), AMPLE]))
        .run_handler(node, "")
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    pod.wait_for("app", Exiting, 1, SOON).await?;
    pod.wait_for("s1", Started, 1, SOON).await?;
    // containerd is killed next, and an exit that comes while 1.6 loads its pods is lost (docs/containerd.md, 6).
    pod.wait_exited("app", SOON).await?;
    Ok(pod)
}

/// The main is created once more in a pod that is older than the change.
async fn recreate(pod: &mut RunningPod<'_>) -> Result<()> {
    pod.wait_exited("app", SOON).await?;
    pod.start("app").await?;
    pod.wait_for("app", Started, 2, SOON).await.map(drop)
}

#[tokio::test]
async fn a_node_goes_over_to_podshim_as_its_default_and_back() -> Result<()> {
    let node = Containerd::start_with_default(Runtime::Runc).await?;
    let mut first = run(&node, "default-runc").await?;
    ensure!(first.shim_pid().is_err(), "a pod of runc's default has a podshim");

    change(&node, Runtime::Runc, Runtime::Podshim).await?;
    recreate(&mut first).await.context("in a pod of the runc shim, when podshim is the default")?;
    ensure!(first.shim_pid().is_err(), "the pod of runc's default has got a podshim");
    let mut second = run(&node, "default-podshim").await?;
    second.shim_pid()?;
    second.timeline()?.in_order(&[("s1", Starting), ("app", Starting)])?;
    first.remove().await?;

    change(&node, Runtime::Podshim, Runtime::Runc).await?;
    recreate(&mut second).await.context("in a pod of podshim, when runc is the default again")?;
    second.shim_pid()?;
    let third = run(&node, "default-runc-again").await?;
    ensure!(third.shim_pid().is_err(), "a pod of runc's default has a podshim");
    second.remove().await?;
    third.remove().await
}
