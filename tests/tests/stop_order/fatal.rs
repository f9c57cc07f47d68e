//! `fatal.<c>` (R9): the end of one container that stops the pod, and the round that may follow it (T14).

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{
    SOON, TOLERANCE, end_from_inside, exit_codes, logged_real_code, milliseconds, seconds, wait_started,
};

/// R9, J2 to J4: `s2` fails: the main gets its stop signal at once and shows its own code. Then the other sidecars end
/// in reverse order and show 0; `s2` shows its real code. No caller requested any of it.
#[tokio::test]
async fn r9_j4_a_fatal_failure_stops_the_pod_in_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("fatal")
        .annotate("plan", "s1=sidecar, s2=sidecar, s3=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("fatal.s2", "failure")
        .container(Program::new("s1").term_exit_code(9))
        .container(Program::new("s2").term_exit_code(7))
        .container(Program::new("s3").term_delay(milliseconds(500)))
        .container(Program::new("app").term_delay(milliseconds(500)).term_exit_code(4))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "s3", "app"]).await?;
    wait_started(&pod, &["s1", "s2", "s3", "app"]).await?;
    end_from_inside(&pod, "s2").await?;
    ensure!(exit_codes(&pod, ["s1", "s2", "s3", "app"]).await? == [0, 7, 0, 4], "{}", pod.timeline()?);
    let timeline = pod.timeline()?;
    timeline.in_order(&[
        ("s2", Exiting),
        ("app", Term),
        ("app", Exiting),
        ("s3", Term),
        ("s3", Exiting),
        ("s1", Term),
    ])?;
    timeline.within(TOLERANCE, ("s2", Exiting), ("app", Term))?;
    timeline.has_not_restarted("s2")?;
    let id = pod.id("s1")?;
    let code = wait::until("its real code in the log", SOON, async || logged_real_code(&node, id)).await?;
    ensure!(code == 9, "{code} in the log");
    pod.remove().await
}

/// R9: with `exit` the success of one main ends the others (ECS calls such a container essential).
#[tokio::test]
async fn r9_the_end_of_one_main_may_end_the_others() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("fatal-main")
        .annotate("plan", "s1=sidecar, app=main, helper=main")
        .annotate("fatal.app", "exit")
        .container(Program::new("s1"))
        .container(Program::new("app").runs_for(seconds(2)).exits(0))
        .container(Program::new("helper").term_exit_code(3))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "helper", "app"]).await?;
    wait_started(&pod, &["s1", "helper"]).await?;
    ensure!(exit_codes(&pod, ["app", "helper", "s1"]).await? == [0, 3, 0], "{}", pod.timeline()?);
    pod.timeline()?.in_order(&[("app", Exiting), ("helper", Term), ("helper", Exiting), ("s1", Term)])?;
    pod.remove().await
}

/// R9, T14: under Always the caller recreates everything, the main first and during the stop: a new round, which is
/// held until the stop is over and then starts in order.
#[tokio::test]
async fn r9_t14_a_new_round_may_follow_a_fatal_end() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("fatal-round")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("fatal.s2", "failure")
        .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms")
        .container(Program::new("s1").ready_file("/tmp/ready", milliseconds(800)).term_delay(seconds(2)))
        .container(Program::new("s2").term_exit_code(1))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    wait_started(&pod, &["s1", "s2", "app"]).await?;
    end_from_inside(&pod, "s2").await?;
    pod.wait_exited("app", SOON).await?;
    pod.start_all(&["app", "s2"]).await?;
    pod.wait_exited("s1", SOON).await?;
    pod.start("s1").await?;
    let timeline = pod.wait_for("app", e2e::Event::Started, 2, SOON).await?;
    let second = |name| timeline.of(name, Starting).nth(1).map(|entry| entry.at);
    let first_end = timeline.of("s1", Exiting).next().map(|entry| entry.at);
    ensure!(first_end <= second("s1") && second("s1") < second("app"), "{timeline}");
    // The timeline has whole milliseconds, so a distance can be one short.
    let waited = second("app").zip(second("s1")).map(|(app, s1)| app - s1 + milliseconds(1));
    ensure!(waited >= Some(milliseconds(800)), "app waited only {waited:?} in\n{timeline}");
    pod.remove().await
}
