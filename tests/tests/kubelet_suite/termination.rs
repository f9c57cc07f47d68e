//! The end of a pod: its grace period, slow hooks, and what a caller does meanwhile (A, B, C, L).

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::durations::{AMPLE, SOON, TOLERANCE, near, seconds};
use e2e::{Containerd, Event, Pod, Program, Runtime};
use tokio::time::Instant;

/// ks-B10: a main that ignores its stop signal is killed at the end of the grace period, and the pod ends with it.
#[tokio::test]
async fn ks_b10_the_grace_period_is_respected() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("b10")
        .annotate("plan", "init=init, regular=main")
        .container(Program::new("init").exits(0))
        .container(Program::new("regular").ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["init", "regular"]).await?;
    pod.wait_for("regular", Event::Started, 1, SOON).await?;
    let begin = Instant::now();
    pod.stop_all_at_once(seconds(2)).await?;
    let took = begin.elapsed();
    ensure!(near(took, seconds(2), TOLERANCE), "it took {took:?}");
    pod.remove().await
}

/// ks-B11: the same with a hook that takes longer than the grace period. The hook here is podshim's `pre-stop`; a shim
/// never sees the kubelet's own (H5).
#[tokio::test]
async fn ks_b11_the_grace_period_is_respected_with_a_long_pre_stop_hook() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("b11")
        .annotate("plan", "regular=main")
        .annotate("pre-stop.regular", "exec:sleep 1000")
        .container(Program::new("regular").term_delay(seconds(20)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("regular").await?;
    pod.wait_for("regular", Event::Started, 1, SOON).await?;
    let begin = Instant::now();
    pod.stop_all_at_once(seconds(3)).await?;
    let took = begin.elapsed();
    ensure!(near(took, seconds(3), TOLERANCE), "it took {took:?}");
    pod.remove().await
}

/// ks-A11 to ks-A13, ks-C3, T11: a container that is updated while the pod terminates is recreated, and does not start
/// before the stop is over.
async fn an_update_during_termination_starts_nothing(policy: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("a11")
        .annotate("plan", "init=init, s1=sidecar, regular=main")
        .annotate("restart-policy", policy)
        .annotate("ready.s1", "exec:true;period=1s")
        .container(Program::new("init").exits(0))
        .container(Program::new("s1").term_delay(seconds(3)))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["init", "s1", "regular"]).await?;
    pod.wait_for("regular", Event::Started, 1, SOON).await?;
    let s1 = pod.id("s1")?.to_owned();
    let cri = node.cri()?;
    let (stopped, recreated) = tokio::join!(cri.stop_container(&s1, AMPLE), async {
        pod.stop("regular", AMPLE).await?;
        pod.wait_for("s1", Event::Term, 1, SOON).await?;
        pod.start("regular").await
    });
    stopped?;
    recreated?;
    let timeline = pod.wait_for("s1", Event::Exiting, 1, SOON).await?;
    ensure!(timeline.count("regular", Starting) == 1, "{timeline}");
    // ± The kubelet's pod is gone by now. Here the sandbox lives on, so a new round begins, in order (T14).
    pod.start("s1").await?;
    let timeline = pod.wait_for("regular", Event::Started, 2, SOON).await?;
    timeline.has_not_restarted("init")?;
    pod.remove().await
}

#[tokio::test]
async fn ks_a11_c3_an_update_during_termination_starts_nothing_always() -> Result<()> {
    an_update_during_termination_starts_nothing("Always").await
}

#[tokio::test]
async fn ks_a12_an_update_during_termination_starts_nothing_on_failure() -> Result<()> {
    an_update_during_termination_starts_nothing("OnFailure").await
}

#[tokio::test]
async fn ks_a13_an_update_during_termination_starts_nothing_under_never() -> Result<()> {
    an_update_during_termination_starts_nothing("Never").await
}

/// ± ks-B15, ks-L2 to ks-L4: the suite notes that no sidecar is restarted while the pod terminates, with a FIXME
/// (KEP-4438). podshim restarts it for as long as a main needs it (R2), also while that main's hook runs, and ends it
/// in its turn with its signal (R3).
async fn a_sidecar_that_dies_during_termination(policy: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("b15")
        .annotate("plan", "s1=sidecar, regular=main")
        .annotate("restart-policy", policy)
        .annotate("pre-stop.regular", "exec:/bin/pod-member --name PreStop --log /pod/timeline.log --run 14")
        .container(Program::new("s1").runs_for_each(&[seconds(8), seconds(1000)]).exits(1))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "regular"]).await?;
    pod.wait_for("regular", Event::Started, 1, SOON).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.has_restarted("s1")?;
    timeline.has_not_restarted("regular")?;
    timeline.in_order(&[("PreStop", Starting), ("PreStop", Exiting), ("regular", Exiting), ("s1", Term)])?;
    let restarts: Vec<_> = timeline.of("s1", Starting).skip(1).map(|entry| entry.at).collect();
    let hook = timeline.time_of("PreStop", Starting)?..timeline.time_of("PreStop", Exiting)?;
    ensure!(restarts.len() == 1 && hook.contains(&restarts[0]), "{timeline}");
    pod.remove().await
}

#[tokio::test]
async fn ks_b15_l2_a_sidecar_that_dies_during_termination_always() -> Result<()> {
    a_sidecar_that_dies_during_termination("Always").await
}

#[tokio::test]
async fn ks_l3_a_sidecar_that_dies_during_termination_on_failure() -> Result<()> {
    a_sidecar_that_dies_during_termination("OnFailure").await
}

#[tokio::test]
async fn ks_l4_a_sidecar_that_dies_during_termination_under_never() -> Result<()> {
    a_sidecar_that_dies_during_termination("Never").await
}
