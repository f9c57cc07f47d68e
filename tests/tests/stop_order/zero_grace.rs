//! SIGKILL that nothing announced, as `crictl stopp` sends it (K11, F4, F5): in order where the pod asks for it.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime};
use tokio::time::Instant;

use crate::support::{AMPLE, SOON, exit_codes, milliseconds, seconds, wait_started};

/// crictl's own limit for a request.
const CRICTL: Duration = Duration::from_secs(2);

async fn pod(node: &Containerd) -> Result<RunningPod<'_>> {
    let mut pod = Pod::new("k11")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("zero-grace", "order")
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("app").term_delay(milliseconds(200)))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    wait_started(&pod, &["app", "s1", "s2"]).await?;
    Ok(pod)
}

/// K11: StopPodSandbox kills in the random order of a Go map (F4): twenty times in order, each within crictl's limit.
#[tokio::test]
async fn k11_stopp_keeps_the_order_twenty_times() -> Result<()> {
    let node = Containerd::connect().await?;
    for _ in 0..20 {
        let pod = pod(&node).await?;
        let begin = Instant::now();
        pod.stop_sandbox().await?;
        let (took, timeline) = (begin.elapsed(), pod.timeline()?);
        timeline.in_order(&[
            ("app", Term),
            ("app", Exiting),
            ("s2", Term),
            ("s2", Exiting),
            ("s1", Term),
            ("s1", Exiting),
        ])?;
        ensure!(took < CRICTL, "it took {took:?}\n{timeline}");
        ensure!(exit_codes(&pod, ["app", "s1", "s2"]).await? == [0, 0, 0], "{timeline}");
        pod.remove().await?;
    }
    Ok(())
}

/// K11: those who ignore TERM are killed in time, the sidecars after the main.
#[tokio::test]
async fn k11_stubborn_containers_are_killed_within_the_limit() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k11-stubborn")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("zero-grace", "order")
        .container(Program::new("s1").ignores_term())
        .container(Program::new("app").ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    let begin = Instant::now();
    pod.stop_sandbox().await?;
    let (took, timeline) = (begin.elapsed(), pod.timeline()?);
    timeline.distance(("app", Term), ("s1", Term), seconds(1), milliseconds(300))?;
    ensure!(took < CRICTL, "it took {took:?}\n{timeline}");
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [137, 0], "{timeline}");
    pod.remove().await
}

/// K11, T14: a stop of one container without a timeout is a stop of the pod, which lives again afterwards.
#[tokio::test]
async fn k11_t14_after_such_a_stop_the_pod_starts_again_in_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = pod(&node).await?;
    pod.stop("app", Duration::ZERO).await?;
    for name in ["s2", "s1"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.timeline()?.in_order(&[("app", Exiting), ("s2", Term), ("s2", Exiting), ("s1", Term)])?;
    pod.start_all(&["app", "s2", "s1"]).await?;
    let timeline = pod.wait_for("app", Event::Started, 2, SOON).await?;
    for name in ["s1", "s2", "app"] {
        ensure!(timeline.count(name, Starting) == 2, "{timeline}");
    }
    pod.stop_all_at_once(AMPLE).await?;
    pod.remove().await
}
