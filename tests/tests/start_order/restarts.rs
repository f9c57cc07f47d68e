//! When podshim restarts a container and when not (R2 to R5, R7, R8): also during the stop of its pod, with growing
//! delays, until its own turn.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::pace;
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{
    AMPLE, REMAKING, SOON, are_running, at_most, exit_with, milliseconds, near, seconds, starts, wait_started,
};

/// R2, R3 (kubernetes#140133): a sidecar that dies while a main drains is restarted, and stopped with TERM in its turn
/// like the others.
#[tokio::test]
async fn r2_r3_a_sidecar_killed_while_its_main_drains_comes_back() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r2")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("exit-codes", "real")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1").term_exit_code(9))
        .container(Program::new("app").term_delay(seconds(6) + seconds(1) * pace()))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    let pid = node.cri()?.container_pid(pod.id("s1")?).await?;
    let crash = async {
        pod.wait_for("app", Term, 1, SOON).await?;
        wait::quiet_time(seconds(1)).await;
        signal(pid, libc::SIGKILL)
    };
    tokio::try_join!(pod.stop_all_at_once(AMPLE), crash)?;
    // The code that its TERM handler chose, not 137.
    exit_with(&pod, &[("app", 0), ("s1", 9)]).await?;
    let timeline = pod.timeline()?;
    let again =
        *starts(&timeline, "s1").get(1).with_context(|| format!("s1 did not come back:\n{timeline}"))?;
    let after_stop = again.saturating_sub(timeline.time_of("app", Term)?);
    ensure!(near(after_stop, seconds(3), seconds(2)), "back after {after_stop:?}:\n{timeline}");
    timeline.in_order(&[("app", Term), ("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    ensure!(timeline.count("s1", Starting) == 2 && timeline.count("s1", Term) == 1, "{timeline}");
    pod.remove().await
}

/// R4: the first restart is immediate, then 1, 2, 4 s.
#[tokio::test]
async fn r4_gaps_grow() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r4")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").exits(0))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    let timeline = pod.wait_for("s1", Starting, 5, SOON).await?;
    let exits = timeline.of("s1", Exiting).map(|entry| entry.at);
    let gaps: Vec<Duration> = exits
        .zip(starts(&timeline, "s1").into_iter().skip(1))
        .map(|(exit, start)| start.saturating_sub(exit))
        .collect();
    for (gap, expected) in gaps.iter().zip([0, 1, 2, 4].map(seconds)) {
        // Never early; late by at most the time that creating a process takes here.
        let late = gap.saturating_sub(expected);
        ensure!(*gap >= expected && at_most(late, REMAKING), "{gaps:?}\n{timeline}");
    }
    are_running(&pod, &["s1"]).await?;
    pod.remove().await
}

/// R5, J7: a sidecar that waits for its restart when its turn comes is final at once, with its last code.
#[tokio::test]
async fn r5_the_turn_beats_the_backoff() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r5")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("exit-codes", "real")
        .annotate("restart.s1", "always;first=5m;max=5m")
        .container(Program::new("s1").runs_for(seconds(1)).exits(4))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.wait_for("s1", Exiting, 1, SOON).await?;
    wait::at_most(SOON, "the backoff is waited for", pod.stop_all_at_once(AMPLE)).await?;
    exit_with(&pod, &[("app", 0), ("s1", 4)]).await?;
    ensure!(pod.timeline()?.count("s1", Starting) == 1, "{}", pod.timeline()?);
    pod.remove().await
}

/// R8: podshim alone handles five crashes of a sidecar: the caller sees one container in one attempt that has run all
/// the time, and there are never two of its processes.
#[tokio::test]
async fn r8_five_crashes_concern_no_other() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r8")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart.s1", "always;base=100ms;max=200ms")
        .container(Program::new("s1").runs_for(milliseconds(300)).exits(1))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let before = pod.status("s1").await?;
    let timeline = pod.wait_for("s1", Starting, 6, SOON).await?;
    ensure!(pod.status("s1").await? == before, "{before:?}, then {:?}", pod.status("s1").await?);
    let of_s1 = timeline.entries().iter().filter(|entry| entry.container == "s1");
    let lives: Vec<_> = of_s1.map(|entry| entry.event).filter(|event| *event != Started).collect();
    ensure!(lives.chunks(2).all(|life| [Starting, Exiting].starts_with(life)), "two at a time:\n{timeline}");
    timeline.has_not_restarted("app")?;
    pod.remove().await
}

/// R7, R8: podshim does not restart a main under any policy; its caller does.
#[tokio::test]
async fn r7_a_main_is_not_restarted() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r7")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Always")
        .container(Program::new("s1"))
        .container(Program::new("app").exits(1))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    exit_with(&pod, &[("app", 1)]).await?;
    wait::quiet_time(seconds(2)).await;
    exit_with(&pod, &[("app", 1)]).await?;
    let timeline = pod.timeline()?;
    timeline.has_not_restarted("app")?;
    timeline.has_not_restarted("s1")?;
    are_running(&pod, &["s1"]).await?;
    pod.remove().await
}
