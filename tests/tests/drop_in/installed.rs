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
    let unit_of_the_machine = || {
        std::fs::metadata("/etc/systemd/system/podshim-drain.service").and_then(|file| file.modified()).ok()
    };
    let unit = unit_of_the_machine();
    let node = Containerd::start_installed().await?;
    ensure!(unit_of_the_machine() == unit, "an instance's install has written into the machine's units");
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

/// docs/upgrades.md, "Away from podshim at night": the runtime's new pods run on containerd's own shim, those that live keep podshim and
/// their order, and back.
#[tokio::test]
async fn found_n14_a_bypassed_node_starts_pods_and_keeps_those_that_live() -> Result<()> {
    let node = Containerd::start_installed().await?;
    let config = node.directory().join("config.toml");
    let before = std::fs::read_to_string(&config)?;
    let podshim = async |undo: &[&str]| {
        let words = ["--run", "podshim", "bypass", "--yes", "--config", &config.to_string_lossy()];
        let words: Vec<&str> = words.into_iter().chain(undo.iter().copied()).collect();
        node.ctr().run(&words).await?;
        node.kill().await?;
        node.start_again().await
    };
    let pod = async |name: &str| {
        let pod = Pod::new(name).annotate("plan", "proxy=sidecar, app=main");
        let pod = pod.container(Program::new("app")).container(Program::new("proxy"));
        pod.run(&node, Runtime::Podshim).await
    };
    let mut ordered = pod("ordered").await?;
    ordered.start_all(&["app", "proxy"]).await?;
    ordered.wait_for("app", Starting, 1, SOON).await?;

    podshim(&[]).await?;
    let mut bypassed = pod("bypassed").await?;
    bypassed.start("app").await?;
    bypassed.wait_for("app", Starting, 1, SOON).await.context("no shim but podshim holds a main")?;
    ordered.stop_all_at_once(SOON).await?;
    ordered.timeline()?.exits_before("app", "proxy")?;
    ordered.remove().await?;

    podshim(&["--undo"]).await?;
    ensure!(std::fs::read_to_string(&config)? == before, "the configuration is as it was");
    bypassed.remove().await?;
    let mut again = pod("again").await?;
    again.start_all(&["app", "proxy"]).await?;
    again.wait_for("app", Starting, 1, SOON).await?;
    again.timeline()?.before(("proxy", Starting), ("app", Starting))?;
    again.remove().await
}

/// docs/node.md, "Taking podshim off a node with pods", from step 4 on, as on k3s where the kubelet's unit has containerd
/// too: the drain comes while containerd is down. Nothing is removed before containerd has taken the exits; afterwards the
/// configuration is byte for byte as it was, and the pods of another runtime still run.
#[tokio::test]
async fn podshim_leaves_a_node_step_by_step() -> Result<()> {
    let node = Containerd::start_installed().await?;
    // From here on the instance has an /etc of its own. A second install adds what is missing there: the unit.
    node.write_node_file("").await?;
    let config = node.directory().join("config.toml");
    let before = std::fs::read_to_string(node.directory().join("config.toml.before-podshim"))?;
    let bin = node.directory().join("installed/bin");
    let (config_word, bin_word) = (config.to_string_lossy(), bin.to_string_lossy());
    let podshim = async |command| {
        let words = ["--run", "podshim", command, "--yes", "--config", &config_word, "--bin-dir", &bin_word];
        node.ctr().output(&words).await
    };
    let uninstall = async || podshim("uninstall").await;
    let installed = podshim("install").await?;
    let unit = node.root()?.join("etc/systemd/system/podshim-drain.service");
    ensure!(installed.exit_code == Some(0) && unit.exists(), "{installed:?}");
    let pod = |name: &str| Pod::new(name).container(Program::new("app").term_exit_code(4));
    let mut other = pod("leave-runc").run(&node, Runtime::Runc).await?;
    other.start("app").await?;
    let mut ours = pod("leave-ours").annotate("plan", "app=main").run(&node, Runtime::Podshim).await?;
    ours.start("app").await?;
    ours.wait_for("app", Starting, 1, SOON).await?;
    let other_pid = node.cri()?.container_pid(other.id("app")?).await?;

    let refused = uninstall().await?;
    let name = format!("e2e/{}", ours.name());
    ensure!(refused.exit_code == Some(1), "{refused:?}");
    ensure!(refused.stderr.contains(&format!("run on podshim: {name}: end them first")), "{refused:?}");

    node.kill().await?;
    let drained = node.ctr().output(&["--run", "podshim", "drain", "--yes"]).await?;
    ensure!(drained.exit_code == Some(0), "{drained:?}");
    let refused = uninstall().await?;
    ensure!(refused.exit_code == Some(1), "{refused:?}");
    ensure!(
        refused.stderr.contains(&format!("{name}: start containerd, which must take their exits")),
        "{refused:?}"
    );
    ensure!(bin.join("containerd-shim-podshim-v2").exists());

    node.start_again().await?;
    let status = ours.wait_exited("app", SOON).await?;
    ensure!(status.exit_code == 4, "the shim has kept the exit: {status:?}");
    ours.remove().await?;
    node.ctr().run(&["--run", "podshim", "drain", "--undo"]).await?;
    let done = uninstall().await?;
    ensure!(done.exit_code == Some(0), "{done:?}");
    ensure!(done.stdout.contains("systemctl daemon-reload && systemctl restart containerd"), "{done:?}");
    ensure!(std::fs::read_to_string(&config)? == before, "the configuration is as it was");
    let left = std::fs::read_dir(&bin).map(|files| files.flatten().count()).unwrap_or_default();
    ensure!(left == 0, "{left} programs are left");
    ensure!(!unit.exists(), "{}", unit.display());

    node.kill().await?;
    node.start_again().await?;
    ensure!(
        node.cri()?.container_pid(other.id("app")?).await? == other_pid,
        "a pod of another runtime runs on"
    );
    let refused =
        pod("leave-late").run(&node, Runtime::Podshim).await.err().context("podshim is still there")?;
    ensure!(format!("{refused:#}").contains("is configured"), "{refused:#}");
    other.remove().await
}
