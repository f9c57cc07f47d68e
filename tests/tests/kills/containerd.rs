//! containerd is killed and started again; the pod's shim and its processes live on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::Term;
use e2e::cri::ContainerState;
use e2e::durations::{AMPLE, SOON, TOLERANCE, milliseconds, near, seconds};
use e2e::timeline::Entry;
use e2e::{Containerd, RunningPod, wait};

use crate::life::{self, CALLERS_ORDER, Main};

/// N1, N2, F11, R6: at every step of create, start, hold, gate and restart. Containers that containerd had started are
/// unchanged, held ones are released in order, and the pod comes up, stops and leaves nothing.
#[tokio::test]
async fn n1_n2_containerd_is_killed_while_a_pod_starts() -> Result<()> {
    let node = Containerd::start().await?;
    let span = life::measure(&node, Main::Ends).await?.start;
    for point in life::points(span)? {
        hit_start(&node, point).await.with_context(|| format!("killed after {point:?} of {span:?}"))?;
    }
    Ok(())
}

async fn hit_start(node: &Containerd, point: Duration) -> Result<()> {
    let mut pod = life::run(node, "kill-start", Main::Ends).await?;
    let (started, killed) = tokio::join!(life::start_until_failure(&mut pod), kill_after(node, point));
    killed?;
    node.start_again().await?;
    for name in &started {
        let status = pod.status(name).await?;
        ensure!(status.state() == ContainerState::ContainerRunning, "{name} is lost: {status:?}");
    }
    pod.sync(&CALLERS_ORDER).await?;
    life::started_in_order(&life::wait_up(&pod).await?)?;
    pod.stop_all_at_once(AMPLE).await?;
    ended_well(&pod, Main::Ends, &[]).await?;
    pod.remove().await
}

/// N1, N2, K15: at every step of a stop. The stop goes on without containerd; the new containerd learns every exit, and
/// the caller's second stop counts as the same one.
#[tokio::test]
async fn n1_n2_containerd_is_killed_while_a_pod_stops() -> Result<()> {
    stop_is_hit(Main::Ends).await
}

/// T5, T6: the budget runs on without containerd.
#[tokio::test]
async fn n1_t5_containerd_is_killed_while_a_budget_runs_out() -> Result<()> {
    stop_is_hit(Main::Deaf).await
}

async fn stop_is_hit(main: Main) -> Result<()> {
    let node = Containerd::start().await?;
    let span = life::measure(&node, main).await?.stop;
    for point in life::points(span)? {
        hit_stop(&node, main, point).await.with_context(|| format!("killed after {point:?} of {span:?}"))?;
    }
    Ok(())
}

async fn hit_stop(node: &Containerd, main: Main, point: Duration) -> Result<()> {
    let mut pod = life::run(node, "kill-stop", main).await?;
    pod.start_all(&CALLERS_ORDER).await?;
    life::wait_up(&pod).await?;
    // The caller of a killed containerd gets an error; at the last points all calls may have been answered.
    let (_, killed) = tokio::join!(pod.stop_all_at_once(AMPLE), kill_after(node, point));
    killed?;
    // Time for the shim to serve containerd's last requests.
    wait::quiet_time(milliseconds(300)).await;
    let mut deleted = Vec::new();
    for name in CALLERS_ORDER {
        if !pod.is_known_to_its_runtime(name)? {
            deleted.push(name);
        }
    }
    node.start_again().await?;
    stop_again(node, &pod).await?;
    ended_well(&pod, main, &deleted).await?;
    pod.remove().await
}

/// The stop that a kubelet repeats when containerd is back.
async fn stop_again(node: &Containerd, pod: &RunningPod<'_>) -> Result<()> {
    if let Ok(stopped) = tokio::time::timeout(2 * SOON, pod.stop_all_at_once(AMPLE)).await {
        return stopped;
    }
    // containerd 1.6 drops an exit that comes while it loads its containers, with any shim, and the stop waits for it
    // for ever (docs/containerd.md, 6). containerd sees the ended containers when it loads them once more.
    ensure!(node.version()? < (1, 7), "the stop has no end\n{}", pod.timeline()?);
    println!("containerd 1.6 has lost an exit");
    node.kill().await?;
    node.start_again().await?;
    pod.stop_all_at_once(AMPLE).await
}

async fn kill_after(node: &Containerd, point: Duration) -> Result<()> {
    wait::quiet_time(point).await;
    node.kill().await
}

/// The exit code that containerd shows for a container whose task it had deleted, and whose exit it had not stored when
/// it was killed.
const LOST_BY_CONTAINERD: i32 = 255;

/// Checks the order of the stop, its length and all exit codes. containerd had received the exits of those in
/// `deleted`.
async fn ended_well(pod: &RunningPod<'_>, main: Main, deleted: &[&str]) -> Result<()> {
    let timeline = pod.timeline()?;
    life::stopped_in_order(&timeline, main)?;
    let of_app = match main {
        Main::Ends => 4,
        Main::Deaf => {
            // The last stop signals (T6) come when the grace is over, with or without containerd. The grace began with
            // the first signal to app, or, if containerd was killed before it had stopped a sidecar too (T12), with the
            // second.
            let last_call = timeline.time_of("s1", Term)?;
            let from = |entry: &Entry| near(last_call.saturating_sub(entry.at), seconds(1), TOLERANCE);
            ensure!(timeline.of("app", Term).any(from), "the grace of 1 s was not kept\n{timeline}");
            137
        }
    };
    for (name, code) in [("app", of_app), ("s2", 0), ("s1", 0), ("i1", 0)] {
        let status = pod.wait_exited(name, SOON).await?;
        let lost = status.exit_code == LOST_BY_CONTAINERD && deleted.contains(&name);
        ensure!(lost || status.exit_code == code, "{name}: {status:?}\n{timeline}");
    }
    Ok(())
}
