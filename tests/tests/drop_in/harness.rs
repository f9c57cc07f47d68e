//! Checks of the harness itself, against containerd's own shim: a check that cannot fail proves nothing.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::durations::{SOON, pace};
use e2e::instance::CgroupDriver;
use e2e::{Containerd, Event, Footprint, Inventory, Pod, Program, Runtime};

#[tokio::test]
async fn the_record_shows_that_the_stock_shim_keeps_no_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("stock")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy").start_delay(Duration::from_secs(2)))
        .container(Program::new("app").term_delay(Duration::from_secs(1)))
        .run(&node, Runtime::Runc)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    pod.wait_for("proxy", Event::Started, 1, SOON).await?;
    pod.stop_all_at_once(Duration::from_secs(10)).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.starts_before("proxy", "app").is_err(), "{timeline}");
    timeline.exits_before("proxy", "app")?;
    pod.remove().await
}

#[tokio::test]
async fn a_live_pod_leaves_a_footprint_of_every_kind() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("footprint").container(Program::new("app")).run(&node, Runtime::Runc).await?;
    pod.start("app").await?;
    let found = pod.leftovers()?;
    for kind in
        ["process: ", "mount: ", "cgroup: ", "/run/containerd/s/", "/run/netns/", "/run/containerd/runc/"]
    {
        ensure!(found.iter().any(|line| line.contains(kind)), "no {kind:?} in {found:#?}");
    }
    pod.remove().await
}

#[tokio::test]
async fn ctr_runs_a_container_and_its_footprint_goes() -> Result<()> {
    let node = Containerd::connect().await?;
    let id = format!("ctr-{}", std::process::id());
    let run = [
        "run",
        "--rm",
        "--runtime",
        Runtime::Runc.runtime_type(),
        "podshim.test/busybox:1",
        &id,
        "/bin/pod-member",
        "--name",
        "x",
        "--run",
        "0.2",
        "--exit-code",
        "4",
    ];
    let output = node.ctr().output(&run).await?;
    ensure!(output.exit_code == Some(4) && output.stdout.contains(" x Started 0"), "{output:?}");
    Footprint::of_containers(&[&id]).wait_gone(&node, SOON).await
}

#[tokio::test]
async fn a_task_that_lives_is_a_leftover() -> Result<()> {
    let node = Containerd::connect().await?;
    let id = format!("live-{}", std::process::id());
    node.ctr().run(&["run", "-d", "podshim.test/busybox:1", &id, "/bin/pod-member", "--name", "x"]).await?;
    let mut footprint = Footprint::of_containers(&[&id]);
    footprint.add_shim_socket(&node, "default", &id)?;
    let error =
        footprint.wait_gone(&node, Duration::from_millis(100)).await.expect_err("it lives").to_string();
    ensure!(error.contains("process: ") && error.contains("cgroup: "), "{error}");
    node.ctr().run(&["task", "rm", "-f", &id]).await?;
    node.ctr().run(&["container", "rm", &id]).await?;
    footprint.wait_gone(&node, SOON).await
}

#[tokio::test]
async fn gates_of_a_program_open_when_it_says() -> Result<()> {
    let node = Containerd::connect().await?;
    // Longer than the start and two probes take.
    let closed = Duration::from_millis(1500) * pace();
    let mut pod = Pod::new("gates")
        .container(Program::new("app").listens(8080, closed).ready_file("/tmp/ready", closed))
        .run(&node, Runtime::Runc)
        .await?;
    pod.start("app").await?;
    for probe in ["nc -w 1 127.0.0.1 8080 </dev/null", "test -e /tmp/ready"] {
        let early = pod.exec("app", &["sh", "-c", probe]).await?;
        ensure!(early.exit_code != 0, "{probe}: open at once");
    }
    for probe in ["nc -w 1 127.0.0.1 8080 </dev/null", "test -e /tmp/ready"] {
        e2e::wait::until(probe, SOON, async || {
            Ok((pod.exec("app", &["sh", "-c", probe]).await?.exit_code == 0).then_some(()))
        })
        .await?;
    }
    pod.remove().await
}

/// Instances share the machine's systemd.
#[tokio::test]
async fn an_inventory_has_the_pods_of_its_own_instance_alone() -> Result<()> {
    let (shared, own) = (Containerd::connect().await?, Containerd::start().await?);
    let run = async |node, name| -> Result<_> {
        let mut pod = Pod::new(name).container(Program::new("app")).run(node, Runtime::Podshim).await?;
        pod.start("app").await?;
        Ok(pod)
    };
    let before = Inventory::of(&own)?;
    let elsewhere = run(&shared, "elsewhere").await?;
    let more = before.wait_regained(&own, SOON).await?;
    ensure!(more.is_empty(), "a pod elsewhere is here: {more:#?}");
    let here = run(&own, "here").await?;
    let more = Inventory::of(&own)?.more_than(&before);
    let mut kinds = vec!["process: ", "mount: ", "cgroup: ", "file: ", "socket: "];
    if own.cgroup_driver()? == CgroupDriver::Systemd {
        kinds.push("unit: ");
    }
    for kind in kinds {
        ensure!(more.iter().any(|line| line.starts_with(kind)), "no {kind:?} in {more:#?}");
    }
    here.remove().await?;
    elsewhere.remove().await
}
