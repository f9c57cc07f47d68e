//! Replaces podshim's programs under live pods, by the previous release and back (DESIGN §5). A running shim keeps its
//! build; containerd and users run the other build from then on. Both builds share the pod's files, its socket and the
//! control API (docs/upgrades.md).

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Term};
use e2e::cri::ContainerState;
use e2e::durations::{AMPLE, SOON, seconds};
use e2e::instance::signal;
use e2e::pod::faults::is_of_a_shim;
use e2e::task::Task;
use e2e::{Build, Containerd, EventLog, Pod, Program, RunningPod, Runtime, wait};
use serde_json::Value;

/// The build that runs already, and the build that is installed then.
#[derive(Clone, Copy)]
struct Exchange {
    running: Build,
    installed: Build,
    sandbox: Maker,
}

/// Who makes the sandboxes of the running build. The installed one makes its own.
#[derive(Clone, Copy, PartialEq)]
enum Maker {
    /// As the node has it.
    Usual,
    OciRuntime,
}

const UPGRADE: Exchange =
    Exchange { running: Build::Previous, installed: Build::Current, sandbox: Maker::Usual };
const DOWNGRADE: Exchange =
    Exchange { running: Build::Current, installed: Build::Previous, sandbox: Maker::Usual };
/// As from a release that made no sandboxes itself.
const UPGRADE_TO_OWN_SANDBOXES: Exchange = Exchange { sandbox: Maker::OciRuntime, ..UPGRADE };

impl Exchange {
    async fn node(self) -> Result<Containerd> {
        let node = Containerd::start_build(self.running).await?;
        if self.sandbox == Maker::OciRuntime {
            node.write_node_file("sandbox = \"runtime\"").await?;
        }
        Ok(node)
    }

    /// A pod that is up, on the running build's shim.
    async fn pod(self, node: &Containerd) -> Result<RunningPod<'_>> {
        let mut pod = Pod::new("upgrade")
            .annotate("plan", "proxy=sidecar, app=main")
            .container(Program::new("proxy").term_exit_code(2))
            .container(Program::new("app").prints("from the app"))
            .run(node, Runtime::Podshim)
            .await?;
        pod.start_all(&["app", "proxy"]).await?;
        pod.wait_for("app", Started, 1, SOON).await?;
        if self.sandbox == Maker::OciRuntime {
            let pause = pod.sandbox_pid().await?;
            let program = std::fs::read_link(format!("/proc/{pause}/exe"))?;
            ensure!(!program.to_string_lossy().contains("memfd:"), "{} made it", program.display());
        }
        Ok(pod)
    }

    /// Installs the other build, and checks that the shim still runs the replaced file.
    async fn happens(self, node: &Containerd, shim: libc::pid_t) -> Result<()> {
        node.install_build(self.installed).await?;
        if self.sandbox == Maker::OciRuntime {
            node.write_node_file("sandbox = \"own\"").await?;
        }
        let program = std::fs::read_link(format!("/proc/{shim}/exe"))?;
        ensure!(program.to_string_lossy().ends_with(" (deleted)"), "{} is still there", program.display());
        Ok(())
    }
}

/// The JSON that a `podshim` command prints.
async fn podshim(node: &Containerd, arguments: &[&str]) -> Result<Value> {
    let printed = node.ctr().run(&[&["--run", "podshim"], arguments].concat()).await?;
    serde_json::from_str(&printed).with_context(|| format!("{arguments:?}: {printed}"))
}

async fn is_running(pod: &RunningPod<'_>, name: &str) -> Result<()> {
    let status = pod.status(name).await?;
    ensure!(status.state() == ContainerState::ContainerRunning, "{name}: {status:?}");
    Ok(())
}

/// Exec, a recreated container, what the commands report, a restart of containerd, a stop and the end.
async fn a_pod_lives_on(exchange: Exchange) -> Result<()> {
    let node = exchange.node().await?;
    let mut pod = exchange.pod(&node).await?;
    let shim = pod.shim_pid()?;
    exchange.happens(&node, shim).await?;
    ensure!(pod.exec("app", &["echo", "here"]).await?.stdout == "here\n", "the exec said something else");

    // The kubelet's restart of a main: the other build's `start` finds the shim, and the gate is open (S6).
    signal(node.cri()?.container_pid(pod.id("app")?).await?, libc::SIGKILL)?;
    ensure!(pod.wait_exited("app", SOON).await?.exit_code == 137, "another exit code");
    pod.start("app").await?;
    pod.wait_for("app", Started, 2, SOON).await?;
    ensure!(pod.shim_pid()? == shim, "the container got another shim");
    pod.wait_for_output("app", "from the app").await?;

    let answer = podshim(&node, &["inspect", "--json", pod.sandbox()]).await?;
    ensure!(answer["state"] == "running" && answer["release"].is_string(), "{answer}");
    let containers = answer["containers"].as_array().context("no containers")?;
    let states = containers.iter().map(|container| (&container["name"], &container["state"]));
    ensure!(states.filter(|(_, state)| *state == "running").count() == 3, "{answer}");
    let answer = podshim(&node, &["timeline", "--json", pod.sandbox()]).await?;
    let events = answer["events"].as_array().context("no events")?;
    ensure!(events.iter().any(|event| event["kind"] == "exited" && event["container"] == "app"), "{answer}");

    node.kill().await?;
    node.start_again().await?;
    for name in ["app", "proxy"] {
        is_running(&pod, name).await?;
    }
    let answer = podshim(&node, &["stop", "--grace", "20s", "--json", pod.sandbox()]).await?;
    ensure!(answer["stopped"] == true, "{answer}");
    for name in ["app", "proxy"] {
        ensure!(pod.wait_exited(name, SOON).await?.exit_code == 0, "{name} has another exit code");
    }
    pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    pod.remove().await
}

#[tokio::test]
async fn a_pod_lives_on_through_an_upgrade() -> Result<()> {
    a_pod_lives_on(UPGRADE).await
}

#[tokio::test]
async fn a_pod_with_the_oci_runtimes_sandbox_lives_on_through_an_upgrade() -> Result<()> {
    a_pod_lives_on(UPGRADE_TO_OWN_SANDBOXES).await
}

#[tokio::test]
async fn a_pod_lives_on_through_a_downgrade() -> Result<()> {
    a_pod_lives_on(DOWNGRADE).await
}

/// N3, N10: the other build's `delete` ends everything that a killed shim has left, mains first, and reports the exits
/// that the shim recorded (trap 16).
async fn a_killed_shims_pod_is_ended(exchange: Exchange) -> Result<()> {
    let node = exchange.node().await?;
    let pod = exchange.pod(&node).await?;
    let task = Task::run(&node, "upgrade", &[], &["sh", "-c", "exit 3"]).await?;
    task.wait_status("STOPPED").await?;
    let events = EventLog::record(&node).await?;
    for shim in [pod.shim_pid()?, task.shim()?] {
        exchange.happens(&node, shim).await?;
    }
    for shim in [pod.shim_pid()?, task.shim()?] {
        signal(shim, libc::SIGKILL)?;
    }
    pod.wait_rid_of("thing", seconds(8), is_of_a_shim).await?;
    for name in ["app", "proxy"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term)])?;
    pod.remove().await?;

    let deleted = wait::until("the delete event of the task", AMPLE, async || {
        Ok(events.of(task.id())?.into_iter().find(|event| event.topic == "delete"))
    });
    let deleted = deleted.await?;
    ensure!(deleted.exit_status == 3, "{deleted:?}");
    task.remove().await
}

#[tokio::test]
async fn n3_a_killed_shims_pod_is_ended_after_an_upgrade() -> Result<()> {
    a_killed_shims_pod_is_ended(UPGRADE).await
}

#[tokio::test]
async fn n3_a_killed_shims_pod_with_the_oci_runtimes_sandbox_is_ended_after_an_upgrade() -> Result<()> {
    a_killed_shims_pod_is_ended(UPGRADE_TO_OWN_SANDBOXES).await
}

#[tokio::test]
async fn n3_a_killed_shims_pod_is_ended_after_a_downgrade() -> Result<()> {
    a_killed_shims_pod_is_ended(DOWNGRADE).await
}
