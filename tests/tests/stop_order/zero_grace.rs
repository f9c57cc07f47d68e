//! SIGKILL without a stop signal before it, as `crictl stopp` sends it (K11, F4, F5): the stop is in order if the pod
//! has `zero-grace=order`.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime};

use crate::support::{AMPLE, SOON, at_most, exit_codes, finished_at, milliseconds, seconds, wait_started};

/// K11's whole time, plus the delay with which a busy machine sees an exit. In the rest of crictl's 2 s containerd
/// deletes each container; that part depends on the machine and is not checked.
const LIMIT: Duration = Duration::from_millis(1500 + 300);

/// From the first stop signal to the last exit.
async fn time_of_stop(pod: &RunningPod<'_>, last: &str) -> Result<Duration> {
    let end = finished_at(&pod.status(last).await?)?;
    Ok(end.saturating_sub(pod.timeline()?.time_of("app", Term)?))
}

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

/// K11: StopPodSandbox kills in the random order of a Go map (F4): twenty times in order, each well within crictl's
/// limit.
#[tokio::test]
async fn k11_stopp_keeps_the_order_twenty_times() -> Result<()> {
    let node = Containerd::connect().await?;
    for _ in 0..20 {
        let pod = pod(&node).await?;
        pod.stop_sandbox().await?;
        let (took, timeline) = (time_of_stop(&pod, "s1").await?, pod.timeline()?);
        timeline.in_order(&[
            ("app", Term),
            ("app", Exiting),
            ("s2", Term),
            ("s2", Exiting),
            ("s1", Term),
            ("s1", Exiting),
        ])?;
        ensure!(at_most(took, LIMIT), "it took {took:?}\n{timeline}");
        ensure!(exit_codes(&pod, ["app", "s1", "s2"]).await? == [0, 0, 0], "{timeline}");
        pod.remove().await?;
    }
    Ok(())
}

/// K11: containers that ignore TERM are killed in time, the sidecars after the main.
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
    pod.stop_sandbox().await?;
    let (took, timeline) = (time_of_stop(&pod, "s1").await?, pod.timeline()?);
    timeline.distance(("app", Term), ("s1", Term), seconds(1), milliseconds(700))?;
    ensure!(at_most(took, LIMIT), "it took {took:?}\n{timeline}");
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [137, 0], "{timeline}");
    pod.remove().await
}

/// K11, T14: a stop of one container without a timeout stops the pod, which can start again afterwards.
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
    for name in ["s1", "s2", "app"] {
        let timeline = pod.wait_for(name, Event::Started, 2, SOON).await?;
        ensure!(timeline.count(name, Starting) == 2, "{timeline}");
    }
    pod.stop_all_at_once(AMPLE).await?;
    pod.remove().await
}
