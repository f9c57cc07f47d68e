//! The start and stop order, twenty times without one violation: a race that shows now and then must show here. The
//! pods run side by side, which also makes races likely.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::pod::PidNamespace;
use e2e::{Containerd, Event, Pod, Program, Runtime, wait};
use tokio::time::Instant;

use crate::support::{AMPLE, SOON, at_most, exit_codes, milliseconds};

/// T1, S2, S3: mains created first, as a manifest lists them; all stopped at the same moment by a caller that knows no
/// sidecars. Half of the twenty; the other half is a test of its own, so that both run side by side.
async fn ten_pods_keep_both_orders() -> Result<()> {
    let node = Containerd::connect().await?;
    for _ in 0..2 {
        tokio::try_join!(one_pod(&node), one_pod(&node), one_pod(&node), one_pod(&node), one_pod(&node))?;
    }
    Ok(())
}

async fn one_pod(node: &Containerd) -> Result<()> {
    let mut pod = Pod::new("again")
        .annotate("plan", "i1=init, s1=sidecar, s2=sidecar, a=main, b=main")
        .annotate("restart-policy", "Never")
        .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms")
        // Without a probe the gate opens at the exec, and the program's first line may come later than the next
        // program's.
        .annotate("ready.s2", "exec:test -e /tmp/ready;period=100ms")
        .container(Program::new("i1").exits(0))
        .container(Program::new("s1").ready_file("/tmp/ready", milliseconds(300)))
        .container(Program::new("s2").ready_file("/tmp/ready", milliseconds(0)))
        .container(Program::new("a").term_delay(milliseconds(200)))
        .container(Program::new("b"))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["a", "b", "s2", "s1", "i1"]).await?;
    for main in ["a", "b"] {
        pod.wait_for(main, Event::Started, 1, SOON).await?;
    }
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("i1", Starting), ("i1", Exiting), ("s1", Starting), ("s2", Starting)])?;
    for main in ["a", "b"] {
        timeline.before(("s2", Starting), (main, Starting))?;
        timeline.in_order(&[
            (main, Exiting),
            ("s2", Term),
            ("s2", Exiting),
            ("s1", Term),
            ("s1", Exiting),
        ])?;
    }
    for name in ["i1", "s1", "s2", "a", "b"] {
        timeline.has_not_restarted(name)?;
        let status = pod.status(name).await?;
        ensure!(status.exit_code == 0, "{name}: {status:?}\n{timeline}");
    }
    pod.remove().await
}

#[tokio::test]
async fn t1_s2_twenty_times_without_a_violation_first_half() -> Result<()> {
    ten_pods_keep_both_orders().await
}

#[tokio::test]
async fn t1_s2_twenty_times_without_a_violation_second_half() -> Result<()> {
    ten_pods_keep_both_orders().await
}

/// T1, T4, T11: a stop at any moment of the start loses no signal and breaks no order, whichever containers have
/// started by then.
async fn one_pod_stopped_in_its_start(node: &Containerd, after: Duration) -> Result<()> {
    // The first process of a pid namespace ignores signals that come before it has set its handlers; with a shared one
    // that is pause.
    let mut pod = Pod::new("early")
        .pid_namespace(PidNamespace::Pod)
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s2", "s1"]).await?;
    wait::quiet_time(after).await;
    let begin = Instant::now();
    pod.stop_all_at_once(AMPLE).await?;
    let (took, timeline) = (begin.elapsed(), pod.timeline()?);
    ensure!(at_most(took, SOON), "a signal was lost: the stop took {took:?}\n{timeline}");
    let mut started: Vec<_> = ["s1", "s2", "app"].into_iter().collect();
    started.retain(|name| timeline.count(name, Starting) > 0);
    ensure!(started == ["s1", "s2", "app"][..started.len()], "{timeline}");
    // Two programs that have been exec'd one after the other may write their first line in either order (U1).
    for pair in started.windows(2) {
        timeline.in_order(&[(pair[1], Starting), (pair[1], Exiting), (pair[0], Term)])?;
    }
    for name in started {
        timeline.has_not_restarted(name)?;
    }
    let codes = exit_codes(&pod, ["app", "s2", "s1"]).await?;
    // If s2 was still held and its own request came first, it counts as stopped alone and shows the signal's code (J2).
    let alone = timeline.count("s2", Starting) == 0;
    ensure!(matches!(codes, [0 | 143, 0, 0]) || alone && codes == [143, 143, 0], "{codes:?}\n{timeline}");
    pod.remove().await
}

/// Stops ten pods at ten moments, from `first` on.
async fn ten_pods_stopped_in_their_start(first: Duration) -> Result<()> {
    let node = Containerd::connect().await?;
    for batch in 0..2_u32 {
        let pod =
            |number| one_pod_stopped_in_its_start(&node, first + milliseconds(20) * (5 * batch + number));
        tokio::try_join!(pod(0), pod(1), pod(2), pod(3), pod(4))?;
    }
    Ok(())
}

#[tokio::test]
async fn t11_a_stop_at_any_moment_of_the_start_loses_nothing_first_half() -> Result<()> {
    ten_pods_stopped_in_their_start(milliseconds(0)).await
}

#[tokio::test]
async fn t11_a_stop_at_any_moment_of_the_start_loses_nothing_second_half() -> Result<()> {
    ten_pods_stopped_in_their_start(milliseconds(10)).await
}
