//! Standby sidecars (V-rules): one of a pair runs, its partner is held; a switch moves the role without a gap.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime};

use crate::support::{AMPLE, SOON, are_running, exit_with, held_for, ready_in_run, seconds, wait_started};

fn pair(name: &str) -> Pod {
    Pod::new(name)
        .annotate("plan", "proxy|next=sidecar, app=main")
        .annotate("ready.proxy", &ready_in_run("proxy", 1, "period=100ms"))
        .container(Program::new("proxy"))
        .container(Program::new("app"))
}

/// Stops and recreates a container, as a caller with a new image for the standby does.
async fn replace(pod: &mut RunningPod<'_>, name: &str) -> Result<()> {
    pod.stop(name, seconds(10)).await?;
    pod.start(name).await
}

/// V1, V2: the standby is created and held: its caller sees it running, but its program is not started. The stop of the
/// pod does not wait for it.
#[tokio::test]
async fn v1_v2_a_standby_is_held_and_ends_with_its_pair() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = pair("standby").container(Program::new("next")).run(&node, Runtime::Podshim).await?;
    pod.start_all(&["next", "app", "proxy"]).await?;
    wait_started(&pod, &["app"]).await?.before(("proxy", Starting), ("app", Starting))?;
    are_running(&pod, &["next", "proxy", "app"]).await?;
    let held = held_for(&pod, "next").await?;
    ensure!(held == "held: waiting for its turn, it is the standby of sidecar \"proxy\"", "{held}");
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.doesnt_start("next")?;
    timeline.in_order(&[("app", Exiting), ("proxy", Term)])?;
    pod.remove().await
}

/// V3, V4: the caller replaces the standby, which starts, gets ready and runs its migrate hook. Only then its partner
/// ends and is held in its turn; the main runs on. Then the roles are switched back. The stop finds one running
/// sidecar.
#[tokio::test]
async fn v3_v4_a_replaced_standby_takes_over() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = pair("switch")
        .annotate("ready.next", "exec:test -e /tmp/ready;period=100ms")
        .annotate("migrate.next", "exec:sh -c 'test ! -e /pod/migrated && touch /pod/migrated && sleep 1'")
        .container(Program::new("next").ready_file("/tmp/ready", seconds(1)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "next", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    replace(&mut pod, "next").await?;
    let timeline = pod.wait_for("proxy", Exiting, 1, SOON).await?;
    timeline.in_order(&[("app", Starting), ("next", Starting), ("proxy", Term), ("proxy", Exiting)])?;
    // A second until it is ready, and another for the migration; the timeline has whole milliseconds.
    let overlap = timeline.time_of("proxy", Term)? - timeline.time_of("next", Starting)?;
    ensure!(overlap >= seconds(2) - e2e::durations::milliseconds(1), "{overlap:?} in\n{timeline}");
    ensure!(pod.exec("app", &["test", "-e", "/pod/migrated"]).await?.exit_code == 0, "no migration");
    pod.wait_for_output("proxy", "podshim: held: waiting for its turn").await?;
    are_running(&pod, &["proxy", "next", "app"]).await?;

    replace(&mut pod, "proxy").await?;
    pod.wait_for("next", Exiting, 1, SOON).await?;
    let timeline = pod.wait_for("proxy", Starting, 2, SOON).await?;
    timeline.has_not_restarted("app")?;
    are_running(&pod, &["proxy", "next", "app"]).await?;

    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("next", Starting) == 1 && timeline.count("proxy", Term) == 2, "{timeline}");
    pod.remove().await
}

/// V6, T1: a stop while the standby gets ready ends both together, after the main; neither is restarted.
#[tokio::test]
async fn v6_a_stop_of_the_pod_ends_a_switch() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = pair("switch-stopped")
        .annotate("ready.next", "exec:false;period=1s;fail=1000")
        .container(Program::new("next"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "next", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    replace(&mut pod, "next").await?;
    wait_started(&pod, &["next"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("proxy", Term)])?;
    timeline.in_order(&[("app", Exiting), ("next", Term)])?;
    timeline.has_not_restarted("proxy")?;
    timeline.has_not_restarted("next")?;
    exit_with(&pod, &[("proxy", 0), ("next", 0)]).await?;
    pod.remove().await
}

/// V5: a standby that fails to take over is held again and its log says why; the active one is not affected.
#[tokio::test]
async fn v5_a_standby_that_fails_leaves_the_active_one_alone() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = pair("switch-fails")
        .annotate("migrate.next", "exec:sh -c 'exit 3'")
        .container(Program::new("next"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "next", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    replace(&mut pod, "next").await?;
    let timeline = pod.wait_for("next", Exiting, 1, SOON).await?;
    ensure!(timeline.count("proxy", Term) == 0, "{timeline}");
    timeline.has_not_restarted("proxy")?;
    are_running(&pod, &["proxy", "next", "app"]).await?;
    let expected = "podshim: sidecar \"next\" did not take over: its migrate hook failed";
    pod.wait_for_output("next", expected).await?;
    pod.wait_for_output("next", "podshim: held: waiting for its turn").await?;
    pod.stop("next", seconds(10)).await?;
    exit_with(&pod, &[("next", 143)]).await?;
    pod.remove().await
}
