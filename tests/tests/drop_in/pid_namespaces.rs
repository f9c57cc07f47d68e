//! Containers whose pid namespace is not their own: the node's, the pod's, another container's. There the kernel does
//! not kill the processes that the first one leaves behind; the shim must (CONTRACT §6), and must report execs before
//! the container (trap 7).

use anyhow::{Result, ensure};
use e2e::durations::SOON;
use e2e::instance::signal;
use e2e::pod::PidNamespace;
use e2e::{Containerd, Event, Pod, Program, Runtime, wait};

/// Kills the first process of a container that has left a child and runs an exec: both must end, and their exits must
/// be published.
async fn the_end_of_init_ends_everything(runtime: Runtime, mode: PidNamespace) -> Result<()> {
    let node = Containerd::connect().await?;
    let marks = tempfile::tempdir()?;
    let mut pod = Pod::new("pidns")
        .pid_namespace(mode)
        .container(Program::new("stays"))
        .container(Program::new("app").leaves_child().mount(marks.path(), "/marks"))
        .run(&node, runtime)
        .await?;
    pod.start_all(&["stays", "app"]).await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    kill_init_under_an_exec(&node, &pod, marks.path()).await?;
    // The pod's other container, which may be in the same pid namespace, must not be affected.
    ensure!(pod.exec("stays", &["true"]).await?.exit_code == 0, "{}", pod.timeline()?);
    pod.remove().await
}

/// The same for a container that joined another container's namespace, as `kubectl debug --target` creates it.
async fn the_end_of_a_guest_leaves_its_target(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let marks = tempfile::tempdir()?;
    let mut pod = Pod::new("target")
        .container(Program::new("stays"))
        .container(
            Program::new("app").shares_pid_namespace_of("stays").leaves_child().mount(marks.path(), "/marks"),
        )
        .run(&node, runtime)
        .await?;
    pod.start_all(&["stays", "app"]).await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    kill_init_under_an_exec(&node, &pod, marks.path()).await?;
    ensure!(pod.exec("stays", &["true"]).await?.exit_code == 0, "{}", pod.timeline()?);
    pod.remove().await
}

async fn kill_init_under_an_exec(
    node: &Containerd,
    pod: &e2e::RunningPod<'_>,
    marks: &std::path::Path,
) -> Result<()> {
    let cri = node.cri()?;
    let id = pod.id("app")?.to_owned();
    let exec = tokio::spawn({
        let (cri, id) = (cri.clone(), id.clone());
        // The exec ignores stop signals: only SIGKILL ends it.
        let script = ["sh", "-c", "trap '' TERM INT HUP; touch /marks/exec; exec sleep 1000"];
        async move { cri.exec_sync(&id, &script, 3 * SOON).await }
    });
    wait::until("the exec to run", SOON, async || Ok(marks.join("exec").exists().then_some(()))).await?;
    signal(cri.container_pid(&id).await?, libc::SIGKILL)?;
    let exec = async { Ok(exec.await?) };
    let exec = wait::at_most(SOON, "the exec did not end with its container", exec).await?;
    ensure!(exec.as_ref().is_ok_and(|output| output.exit_code == 137), "{exec:?}");
    let status = pod.wait_exited("app", SOON).await?;
    ensure!(status.exit_code == 137, "{status:?}");
    wait::until("the container's processes to end", SOON, async || {
        let found = pod.leftovers()?;
        let alive =
            found.iter().any(|line| line.starts_with("process: ") && line.contains("pod-member --name app"));
        Ok((!alive).then_some(()))
    })
    .await
}

#[tokio::test]
async fn nodes_on_runc() -> Result<()> {
    the_end_of_init_ends_everything(Runtime::Runc, PidNamespace::Node).await
}

#[tokio::test]
async fn nodes_on_podshim() -> Result<()> {
    the_end_of_init_ends_everything(Runtime::Podshim, PidNamespace::Node).await
}

#[tokio::test]
async fn pods_on_runc() -> Result<()> {
    the_end_of_init_ends_everything(Runtime::Runc, PidNamespace::Pod).await
}

#[tokio::test]
async fn pods_on_podshim() -> Result<()> {
    the_end_of_init_ends_everything(Runtime::Podshim, PidNamespace::Pod).await
}

#[tokio::test]
async fn own_on_podshim() -> Result<()> {
    the_end_of_init_ends_everything(Runtime::Podshim, PidNamespace::Container).await
}

#[tokio::test]
async fn targets_on_runc() -> Result<()> {
    the_end_of_a_guest_leaves_its_target(Runtime::Runc).await
}

#[tokio::test]
async fn targets_on_podshim() -> Result<()> {
    the_end_of_a_guest_leaves_its_target(Runtime::Podshim).await
}
