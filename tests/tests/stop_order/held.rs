//! Stops that come before everything has started (T4, T11, H8, K3, K4): held containers end at once and delay no other.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::cri::ContainerState;
use e2e::{Containerd, Event, Pod, Program, Runtime, wait};

use crate::support::{AMPLE, SOON, TOLERANCE, at_most, exit_codes, finished_at, seconds, wait_started};

/// ks-L7, I6: a pod whose init still runs ends at once, long before its grace of 3 s is over. Nothing later starts
/// (T11).
///
/// Three requests at once: if s1's comes first, s1 counts as stopped alone and shows the signal's code (J2).
#[tokio::test]
async fn i6_ks_l7_a_pod_that_initializes_ends_at_once() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("l7")
        .annotate("plan", "i1=init, s1=sidecar, app=main")
        .container(Program::new("i1").term_exit_code(7))
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "i1"]).await?;
    wait_started(&pod, &["i1"]).await?;
    pod.stop_all_at_once(seconds(3)).await?;
    let timeline = pod.timeline()?;
    timeline.before(("i1", Term), ("i1", Exiting))?;
    timeline.doesnt_start("s1")?;
    timeline.doesnt_start("app")?;
    let asked = timeline.time_of("i1", Term)?;
    for (name, codes) in [("i1", &[7][..]), ("s1", &[0, 143]), ("app", &[143])] {
        let status = pod.status(name).await?;
        ensure!(codes.contains(&status.exit_code), "{name}: {status:?}\n{timeline}");
        ensure!(finished_at(&status)?.saturating_sub(asked) < TOLERANCE, "{name}: {status:?}\n{timeline}");
    }
    pod.remove().await
}

/// ks-L8, T4 (kubernetes#125880): a sidecar that never gets ready does not use up the grace of 180 s.
#[tokio::test]
async fn t4_ks_l8_what_never_started_delays_no_other() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("l8")
        .annotate("plan", "s1=sidecar, s2=sidecar, s3=sidecar, app=main")
        .annotate("ready.s2", "tcp::9;period=200ms;fail=1000")
        .annotate("grace", "180s")
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("s3"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s3", "s2", "s1"]).await?;
    wait_started(&pod, &["s1", "s2"]).await?;
    pod.stop_all_at_once(seconds(180)).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("s2", Term), ("s2", Exiting), ("s1", Term), ("s1", Exiting)])?;
    timeline.distance(("s2", Term), ("s1", Exiting), seconds(0), TOLERANCE)?;
    timeline.doesnt_start("s3")?;
    timeline.doesnt_start("app")?;
    let [app, s3, s2, s1] = exit_codes(&pod, ["app", "s3", "s2", "s1"]).await?;
    ensure!((app, s2, s1) == (143, 0, 0), "app {app}, s2 {s2}, s1 {s1}\n{timeline}");
    // Four requests at once: if s3's comes first, s3 counts as stopped alone and shows the signal's code (J2).
    ensure!(s3 == 0 || s3 == 143, "s3 {s3}\n{timeline}");
    pod.remove().await
}

/// T11: no planned container starts its program from T0 until the stop has ended, not even one created during the stop;
/// T14: after that it waits for its gates as at first.
#[tokio::test]
async fn t11_a_container_created_during_a_stop_is_held_until_it_has_ended() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t11")
        .annotate("plan", "s1=sidecar, app=main, late=main")
        .container(Program::new("s1"))
        .container(Program::new("app").term_delay(seconds(3)))
        .container(Program::new("late"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let (cri, app, s1) = (node.cri()?, pod.id("app")?.to_owned(), pod.id("s1")?.to_owned());
    let stop = tokio::spawn(async move {
        tokio::try_join!(cri.stop_container(&app, AMPLE), cri.stop_container(&s1, AMPLE)).map(drop)
    });
    pod.wait_for("app", Term, 1, SOON).await?;
    pod.start("late").await?;
    ensure!(pod.status("late").await?.state() == ContainerState::ContainerRunning, "U7: it is held");
    stop.await??;
    wait::quiet_time(seconds(1)).await;
    pod.timeline()?.doesnt_start("late")?;
    pod.start("s1").await?;
    let timeline = pod.wait_for("late", Event::Started, 1, SOON).await?;
    timeline.in_order(&[("app", Exiting), ("s1", Exiting), ("late", Starting)])?;
    pod.wait_for("s1", Starting, 2, SOON).await?;
    pod.remove().await
}

/// H8: no probe runs after T0, though the sidecar whose gate is closed takes a while to end.
#[tokio::test]
async fn h8_no_probe_runs_after_t0() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("h8")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "exec:sh -c 'echo >>/pod/probes; false';period=200ms;fail=1000")
        .container(Program::new("s1").term_delay(seconds(4)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1"]).await?;
    let probes = async || {
        let counted = pod.exec("s1", &["sh", "-c", "cat /pod/probes 2>/dev/null | wc -l"]).await?;
        anyhow::Ok(counted.stdout.trim().parse::<u32>()?)
    };
    wait::until("three probes", SOON, async || Ok((probes().await? >= 3).then_some(()))).await?;
    let during = async {
        pod.wait_for("s1", Term, 1, SOON).await?;
        // A probe may be under way.
        wait::quiet_time(seconds(1)).await;
        let before = probes().await?;
        wait::quiet_time(seconds(1)).await;
        anyhow::Ok((before, probes().await?))
    };
    let ((), (before, after)) = tokio::try_join!(pod.stop_all_at_once(AMPLE), during)?;
    ensure!(before == after, "{} probes in a second of the stop", after - before);
    pod.timeline()?.doesnt_start("app")?;
    pod.remove().await
}

/// K3 (U9): a stop of a held main alone ends its hold with the signal's code, and stops no other container. A new
/// container of its name is held again, and runs when the gate opens.
#[tokio::test]
async fn k3_a_held_main_is_cancelled_with_the_signals_code() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k3")
        .annotate("plan", "s1=sidecar, app=main, other=main")
        .annotate("ready.s1", "exec:test -e /tmp/open;period=100ms;fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .container(Program::new("other"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "other", "s1"]).await?;
    wait_started(&pod, &["s1"]).await?;
    pod.stop("app", AMPLE).await?;
    ensure!(pod.status("app").await?.exit_code == 143, "{:?}", pod.status("app").await?);
    pod.stop("other", seconds(0)).await?;
    ensure!(pod.status("other").await?.exit_code == 137, "{:?}", pod.status("other").await?);
    pod.start("app").await?;
    wait::quiet_time(seconds(1)).await;
    let timeline = pod.timeline()?;
    timeline.doesnt_start("app")?;
    timeline.doesnt_start("other")?;
    ensure!(timeline.count("s1", Term) == 0, "{timeline}");
    pod.exec("s1", &["touch", "/tmp/open"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.remove().await
}

/// K3, J2: a held sidecar that is stopped alone shows the signal's code, and what follows it is still held.
#[tokio::test]
async fn k3_j2_a_held_sidecar_stopped_alone_shows_its_code() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k3-sidecar")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s1", "tcp::9;period=200ms;fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s2", "s1"]).await?;
    wait_started(&pod, &["s1"]).await?;
    pod.stop("s2", AMPLE).await?;
    let status = pod.status("s2").await?;
    ensure!(status.exit_code == 143, "{status:?}");
    let timeline = pod.timeline()?;
    timeline.doesnt_start("s2")?;
    timeline.doesnt_start("app")?;
    ensure!(timeline.count("s1", Term) == 0, "{timeline}");
    pod.remove().await
}

/// K4, I5: a completed init that its caller sees running shows its real exit at its first stop signal.
#[tokio::test]
async fn k4_a_hidden_init_reports_its_real_exit_at_a_stop() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k4")
        .annotate("plan", "i1=init, app=main")
        .container(Program::new("i1").exits(0))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "i1"]).await?;
    wait_started(&pod, &["app"]).await?;
    ensure!(pod.status("i1").await?.state() == ContainerState::ContainerRunning, "I5: it is hidden");
    wait::quiet_time(seconds(1)).await;
    pod.stop("i1", AMPLE).await?;
    let (status, timeline) = (pod.status("i1").await?, pod.timeline()?);
    ensure!(status.exit_code == 0, "{status:?}");
    let shown_at = finished_at(&status)?;
    ensure!(
        at_most(shown_at.abs_diff(timeline.time_of("i1", Exiting)?), TOLERANCE / 2),
        "{status:?}\n{timeline}"
    );
    ensure!(pod.status("app").await?.state() == ContainerState::ContainerRunning, "{timeline}");
    pod.remove().await
}
