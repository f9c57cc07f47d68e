//! The order of a stop (T1, T2, T3, T8, T10, T12, T13): which container gets the stop signal when.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::cri::ContainerState;
use e2e::durations::pace;
use e2e::{Containerd, Event, Pod, Program, Runtime, wait};

use crate::support::{
    AMPLE, SOON, TOLERANCE, exit_codes, finished_at, milliseconds, near, seconds, wait_started,
};

/// T1, T13, ks-L1: the mains at once, then the sidecars one at a time, the last started first.
#[tokio::test]
async fn t1_t13_ks_l1_sidecars_stop_in_reverse_after_every_main() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t1").annotate("plan", "s1=sidecar, s2=sidecar, s3=sidecar, a=main, b=main");
    for sidecar in ["s1", "s2", "s3"] {
        pod = pod.container(Program::new(sidecar).term_delay(milliseconds(500)));
    }
    let mut pod = pod
        .container(Program::new("a").term_delay(seconds(1)))
        .container(Program::new("b").term_delay(seconds(2)))
        .run(&node, Runtime::Podshim)
        .await?;
    // Not the plan's order: the stop goes by role, not by creation (T13).
    pod.start_all(&["s2", "b", "s3", "a", "s1"]).await?;
    wait_started(&pod, &["a", "b"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    // If they were stopped one after the other, the signals would be a second or more apart.
    timeline.within(milliseconds(800), ("a", Term), ("b", Term))?;
    timeline.in_order(&[
        ("a", Term),
        ("a", Exiting),
        ("b", Exiting),
        ("s3", Term),
        ("s3", Exiting),
        ("s2", Term),
        ("s2", Exiting),
        ("s1", Term),
        ("s1", Exiting),
    ])?;
    timeline.distance(("a", Term), ("s1", Exiting), seconds(4), TOLERANCE)?;
    ensure!(exit_codes(&pod, ["a", "b", "s1", "s2", "s3"]).await? == [0; 5], "{timeline}");
    pod.remove().await
}

/// T2: podshim sends no signal to a main whose caller runs its preStop hook first; the sidecars wait for that main.
#[tokio::test]
async fn t2_a_main_in_its_callers_hook_is_left_alone() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t2")
        .annotate("plan", "s1=sidecar, a=main, b=main")
        .container(Program::new("s1"))
        .container(Program::new("a").term_delay(milliseconds(300)))
        .container(Program::new("b").term_delay(milliseconds(700)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "a", "b"]).await?;
    wait_started(&pod, &["s1", "a", "b"]).await?;
    let hook = async {
        wait::quiet_time(seconds(2)).await;
        pod.stop("b", AMPLE).await
    };
    tokio::try_join!(pod.stop("a", AMPLE), pod.stop("s1", AMPLE), hook)?;
    let timeline = pod.timeline()?;
    timeline.distance(("a", Term), ("b", Term), seconds(2), TOLERANCE)?;
    timeline.in_order(&[("a", Exiting), ("b", Term), ("b", Exiting), ("s1", Term), ("s1", Exiting)])?;
    for name in ["a", "b", "s1"] {
        ensure!(timeline.count(name, Term) == 1, "{name} has not exactly one stop signal in\n{timeline}");
    }
    pod.remove().await
}

/// T3: a stop signal that comes before a sidecar's turn is kept, and delivered when the main exits by itself.
#[tokio::test]
async fn t3_held_term_is_delivered_when_the_main_exits() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t3")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app").runs_for(seconds(4)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    pod.stop("s1", AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    timeline.within(TOLERANCE, ("app", Exiting), ("s1", Term))?;
    ensure!(timeline.count("s1", Term) == 1, "{timeline}");
    pod.remove().await
}

/// T8: one sidecar's grace limits its share of the budget; it is not added to the pod's grace.
#[tokio::test]
async fn t8_a_stuck_sidecar_costs_its_own_grace_only() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t8")
        .annotate("plan", "s1=sidecar, s2=sidecar, s3=sidecar, app=main")
        .annotate("grace.s3", "2s")
        .container(Program::new("s1").term_delay(seconds(1)))
        .container(Program::new("s2").term_delay(milliseconds(200)))
        .container(Program::new("s3").ignores_term())
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2", "s3"]).await?;
    wait_started(&pod, &["app", "s1", "s2", "s3"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("s3", Term), ("s2", Term), ("s2", Exiting), ("s1", Term)])?;
    let s3 = pod.status("s3").await?;
    let lived = finished_at(&s3)?.saturating_sub(timeline.time_of("s3", Term)?);
    ensure!(near(lived, seconds(2), TOLERANCE), "s3 was killed {lived:?} after its turn");
    timeline.distance(("s1", Term), ("s1", Exiting), seconds(1), TOLERANCE)?;
    // J2: its kill at the end of its grace does not fail the pod.
    ensure!(s3.exit_code == 0, "{s3:?}");
    pod.remove().await
}

/// T10: a stop takes as long as its containers do, however long the grace.
#[tokio::test]
async fn t10_a_fast_main_does_not_wait_for_the_grace() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t10")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("grace", "120s")
        .container(Program::new("s1").term_delay(milliseconds(500)))
        .container(Program::new("app").term_delay(milliseconds(500)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    pod.stop_all_at_once(seconds(120)).await?;
    pod.timeline()?.distance(("app", Term), ("s1", Exiting), seconds(2), TOLERANCE)?;
    pod.remove().await
}

/// T12: TERM to one main alone is a liveness kill and does not stop the pod. S6: the recreated main starts at once.
#[tokio::test]
async fn t12_a_stop_of_one_main_leaves_its_sidecars_alone() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t12")
        .annotate("plan", "s1=sidecar, app=main, other=main")
        .container(Program::new("s1"))
        .container(Program::new("app").term_exit_code(3))
        .container(Program::new("other"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app", "other"]).await?;
    wait_started(&pod, &["s1", "app", "other"]).await?;
    pod.stop("app", AMPLE).await?;
    ensure!(pod.status("app").await?.exit_code == 3, "J3: {}", pod.timeline()?);
    pod.start("app").await?;
    let timeline = pod.wait_for("app", Event::Started, 2, SOON).await?;
    wait::quiet_time(seconds(1)).await;
    let timeline_later = pod.timeline()?;
    ensure!(timeline == timeline_later, "the pod went on after the stop of app\n{timeline_later}");
    for name in ["s1", "other"] {
        ensure!(timeline.count(name, Term) == 0, "{timeline}");
        ensure!(pod.status(name).await?.state() == ContainerState::ContainerRunning, "{timeline}");
        timeline.has_not_restarted(name)?;
    }
    // The pod lives on, and its stop is still in order.
    tokio::try_join!(pod.stop("s1", AMPLE), pod.stop("app", AMPLE), pod.stop("other", AMPLE))?;
    let timeline = pod.timeline()?;
    let last_main =
        timeline.of("app", Exiting).chain(timeline.of("other", Exiting)).map(|entry| entry.at).max();
    ensure!(Some(timeline.time_of("s1", Term)?) >= last_main, "{timeline}");
    pod.remove().await
}

/// T12: a stop of the only main alone does not stop the pod either.
#[tokio::test]
async fn t12_the_only_main_may_be_replaced_under_its_sidecar() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t12-only")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    pod.stop("app", AMPLE).await?;
    wait::quiet_time(seconds(1)).await;
    pod.start("app").await?;
    let timeline = pod.wait_for("app", Event::Started, 2, SOON).await?;
    ensure!(timeline.count("s1", Term) == 0 && timeline.count("s1", Starting) == 1, "{timeline}");
    pod.remove().await
}

/// R2, R3: a sidecar that dies while a main drains is restarted, and stopped in its turn with its signal.
#[tokio::test]
async fn r2_a_sidecar_killed_while_the_main_drains_comes_back() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r2")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").term_exit_code(9))
        .container(Program::new("app").term_delay(seconds(5) + seconds(1) * pace()))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let pid = node.cri()?.container_pid(pod.id("s1")?).await?;
    let crash = async {
        pod.wait_for("app", Term, 1, SOON).await?;
        e2e::instance::signal(pid, libc::SIGKILL)?;
        pod.wait_for("s1", Event::Started, 2, SOON).await
    };
    tokio::try_join!(pod.stop_all_at_once(AMPLE), crash)?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    let second = timeline.of("s1", Starting).nth(1).map(|entry| entry.at);
    ensure!(second < Some(timeline.time_of("app", Exiting)?), "{timeline}");
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [0, 0], "{timeline}");
    pod.remove().await
}
