//! The shim is killed: containerd runs its `delete` for every task of the pod, which ends what is left of it (N3).

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::Event::{Started, Term};
use e2e::durations::{AMPLE, SOON, seconds};
use e2e::instance::signal;
use e2e::pod::faults::is_of_a_shim;
use e2e::{Containerd, RunningPod, wait};

use crate::life::{self, CALLERS_ORDER, Main};

/// N3, N10: at every step of create, start, hold, gate and restart.
#[tokio::test]
async fn n3_n10_the_shim_is_killed_while_a_pod_starts() -> Result<()> {
    let node = Containerd::connect().await?;
    let span = life::measure(&node, Main::Ends).await?.start;
    for point in life::points(span)? {
        let hit = async {
            let mut pod = life::run(&node, "shim-start", Main::Ends).await?;
            let shim = pod.shim_pid()?;
            let started = tokio::join!(life::start_until_failure(&mut pod), kill_after(shim, point));
            started.1?;
            nothing_is_left(pod, &started.0).await
        };
        hit.await.with_context(|| format!("killed after {point:?} of {span:?}"))?;
    }
    Ok(())
}

/// N3, N10: at every step of a stop.
#[tokio::test]
async fn n3_n10_the_shim_is_killed_while_a_pod_stops() -> Result<()> {
    let node = Containerd::connect().await?;
    let span = life::measure(&node, Main::Ends).await?.stop;
    for point in life::points(span)? {
        let hit = async {
            let mut pod = life::run(&node, "shim-stop", Main::Ends).await?;
            pod.start_all(&CALLERS_ORDER).await?;
            life::wait_up(&pod).await?;
            let shim = pod.shim_pid()?;
            let (stopped, killed) = tokio::join!(pod.stop_all_at_once(AMPLE), kill_after(shim, point));
            killed?;
            // A request that was on its way to the shim fails when it dies; a kubelet repeats it.
            if stopped.is_err() {
                pod.stop_all_at_once(AMPLE).await.context("the stop has no end although all have ended")?;
            }
            nothing_is_left(pod, &CALLERS_ORDER).await
        };
        hit.await.with_context(|| format!("killed after {point:?} of {span:?}"))?;
    }
    Ok(())
}

async fn kill_after(shim: libc::pid_t, point: Duration) -> Result<()> {
    wait::quiet_time(point).await;
    // The shim may have ended already: it ends with the last container of its pod.
    if e2e::instance::is_alive(shim) { signal(shim, libc::SIGKILL) } else { Ok(()) }
}

/// Checks that 5 s after the kill no process, mount, cgroup or socket is left, that mains ended before sidecars, and
/// that every exit was published.
async fn nothing_is_left(pod: RunningPod<'_>, started: &[&str]) -> Result<()> {
    pod.wait_rid_of("thing", seconds(5), is_of_a_shim).await?;
    for name in started {
        pod.wait_exited(name, SOON).await?;
    }
    let timeline = pod.timeline()?;
    if timeline.count("app", Started) > 0 {
        for sidecar in ["s1", "s2"] {
            if timeline.count(sidecar, Term) > 0 {
                timeline.before(("app", Term), (sidecar, Term))?;
            }
        }
    }
    pod.remove().await
}
