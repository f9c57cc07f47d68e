//! After `podshim install` a node works: containerd reads the configuration, which still has all its former settings,
//! and a pod runs on the installed shim.

use anyhow::{Context, Result, ensure};
use e2e::Event::Starting;
use e2e::durations::SOON;
use e2e::{Containerd, Pod, Program, Runtime};

/// The configuration that containerd reads from a file in the instance's directory.
async fn dump(node: &Containerd, config: &str) -> Result<String> {
    let config = node.directory().join(config);
    let config = config.to_str().context("no UTF-8")?;
    node.ctr().run(&["--run", "containerd", "--config", config, "config", "dump"]).await
}

#[tokio::test]
async fn a_pod_runs_on_what_install_wrote() -> Result<()> {
    let node = Containerd::start_installed().await?;
    let (before, after) =
        (dump(&node, "config.toml.before-podshim").await?, dump(&node, "config.toml").await?);
    // `imports` differs: it lists the files that were read.
    let lost = before.lines().filter(|line| !line.starts_with("imports = "));
    let lost: Vec<_> = lost.filter(|line| !after.lines().any(|other| other == *line)).collect();
    ensure!(lost.is_empty(), "settings that containerd lost by the installation: {lost:?}");
    ensure!(!before.contains("runtimes.podshim]") && after.contains("runtimes.podshim]"), "{after}");

    let mut pod = Pod::new("installed")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("app"))
        .container(Program::new("proxy"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    pod.wait_for("app", Starting, 1, SOON).await?;
    let timeline = pod.timeline()?;
    timeline.before(("proxy", Starting), ("app", Starting))?;
    pod.remove().await
}
