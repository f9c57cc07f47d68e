//! Sidecars beside a job or a service (the ks-G, ks-H and ks-I cases of the kubelet's suite, R1, R11, J1): they never
//! restart a pod's mains, are restarted on every exit, and end with the last main.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Pod, Program, Runtime};

use crate::support::{
    SOON, TOLERANCE, are_running, exit_with, milliseconds, ready_in_run, seconds, starts, wait_started,
};

/// ks-G1 to ks-G3, ks-H1 to ks-H3, J1: podshim stops a sidecar that runs on when the main has completed, without a
/// request of the caller.
async fn a_sidecar_ends_with_the_last_main(policy: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("g1")
        .annotate("plan", "s1=sidecar, regular=main")
        .annotate("restart-policy", policy)
        .annotate("ready.s1", &ready_in_run("s1", 1, "period=100ms"))
        .container(Program::new("s1").term_exit_code(143))
        .container(Program::new("regular").runs_for(seconds(1)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "regular"]).await?;
    exit_with(&pod, &[("regular", 0), ("s1", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("s1", Starting), ("regular", Starting), ("regular", Exiting), ("s1", Term)])?;
    timeline.within(TOLERANCE, ("regular", Exiting), ("s1", Term))?;
    timeline.has_not_restarted("s1")?;
    timeline.has_not_restarted("regular")?;
    pod.remove().await
}

#[tokio::test]
async fn ks_g1_g3_a_sidecar_ends_with_the_last_main_under_never() -> Result<()> {
    a_sidecar_ends_with_the_last_main("Never").await
}

/// ks-H1 to ks-H3.
#[tokio::test]
async fn ks_h1_h3_a_sidecar_ends_with_the_last_main_on_failure() -> Result<()> {
    a_sidecar_ends_with_the_last_main("OnFailure").await
}

/// ks-I1 to ks-I3, R7: under Always the caller restarts the main again and again; the sidecar runs on.
#[tokio::test]
async fn r7_a_sidecar_runs_on_beside_a_main_that_is_restarted() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i1")
        .annotate("plan", "s1=sidecar, regular=main")
        .annotate("restart-policy", "Always")
        .container(Program::new("s1"))
        .container(Program::new("regular").runs_for(milliseconds(500)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "regular"]).await?;
    for _ in 0..2 {
        exit_with(&pod, &[("regular", 0)]).await?;
        pod.start("regular").await?;
    }
    let timeline = pod.wait_for("regular", Starting, 3, SOON).await?;
    timeline.has_not_restarted("s1")?;
    ensure!(timeline.count("s1", Term) == 0, "{timeline}");
    are_running(&pod, &["s1"]).await?;
    pod.remove().await
}

/// R11, T7: a sidecar that its caller replaces keeps its role; its gate stays open and the main is not affected. A stop
/// of the sidecar alone shows its real code (J2).
async fn a_sidecar_is_replaced_beside_its_main(policy: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("g4")
        .annotate("plan", "s1=sidecar, regular=main, late=main")
        .annotate("restart-policy", policy)
        .annotate("ready.s1", "exec:test ! -e /pod/unready;period=100ms")
        .container(Program::new("s1").term_exit_code(5))
        .container(Program::new("regular"))
        .container(Program::new("late"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "regular"]).await?;
    wait_started(&pod, &["regular"]).await?;
    pod.exec("regular", &["touch", "/pod/unready"]).await?;
    pod.stop("s1", seconds(1)).await?;
    exit_with(&pod, &[("s1", 5)]).await?;
    pod.start_all(&["s1", "late"]).await?;
    pod.wait_for("late", Starting, 1, SOON).await?;
    let timeline = pod.wait_for("s1", Starting, 2, SOON).await?;
    timeline.has_not_restarted("regular")?;
    are_running(&pod, &["s1", "regular", "late"]).await?;
    pod.remove().await
}

#[tokio::test]
async fn r11_ks_g4_a_sidecar_is_replaced_beside_its_main_under_never() -> Result<()> {
    a_sidecar_is_replaced_beside_its_main("Never").await
}

/// ks-H4.
#[tokio::test]
async fn r11_a_sidecar_is_replaced_beside_its_main_on_failure() -> Result<()> {
    a_sidecar_is_replaced_beside_its_main("OnFailure").await
}

/// ks-I4.
#[tokio::test]
async fn r11_a_sidecar_is_replaced_beside_its_main_always() -> Result<()> {
    a_sidecar_is_replaced_beside_its_main("Always").await
}

/// ks-G8 to ks-G15, ks-H8 to ks-H15, R1, R8: a sidecar that exits again and again is restarted, with 0 or 1, before and
/// after the main has started; its caller always sees one running container. R5: its backoff does not delay the end.
async fn a_sidecar_that_keeps_exiting_comes_back(policy: &str, code: u8) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("g8")
        .annotate("plan", "s1=sidecar, i1=init, regular=main")
        .annotate("restart-policy", policy)
        .container(Program::new("s1").runs_for(milliseconds(200)).exits(code))
        .container(Program::new("i1").runs_for(seconds(5)).exits(0))
        .container(Program::new("regular").runs_for(seconds(6)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "i1", "regular"]).await?;
    let timeline = wait_started(&pod, &["regular"]).await?;
    are_running(&pod, &["s1", "regular"]).await?;
    let released = timeline.time_of("regular", Starting)?;
    let exited = pod.wait_exited("regular", SOON).await?;
    ensure!(exited.exit_code == 0, "{exited:?}");
    if policy == "Always" {
        are_running(&pod, &["s1"]).await?;
    } else {
        // Sooner than its next restart, 8 s after the one before.
        let ended = pod.wait_exited("s1", seconds(5)).await?;
        ensure!((ended.exit_code, ended.reason.as_str()) == (0, "Completed"), "{ended:?}");
    }
    let timeline = pod.timeline()?;
    timeline.completes_before("i1", "regular")?;
    let (before, after): (Vec<_>, Vec<_>) =
        starts(&timeline, "s1").into_iter().partition(|start| *start < released);
    // At 0, 0.2, 1.4, 3.6 and 7.8 s after the first start (R4), plus the time that creating a process takes.
    ensure!(before.len() >= 3 && !after.is_empty(), "before {before:?}, after {after:?}:\n{timeline}");
    timeline.has_not_restarted("i1")?;
    timeline.has_not_restarted("regular")?;
    pod.remove().await
}

#[tokio::test]
async fn ks_g8_g11_a_sidecar_that_keeps_exiting_0_under_never() -> Result<()> {
    a_sidecar_that_keeps_exiting_comes_back("Never", 0).await
}

#[tokio::test]
async fn ks_g12_g15_a_sidecar_that_keeps_exiting_1_under_never() -> Result<()> {
    a_sidecar_that_keeps_exiting_comes_back("Never", 1).await
}

/// ks-H8 to ks-H11.
#[tokio::test]
async fn ks_h8_h11_a_sidecar_that_keeps_exiting_0_on_failure() -> Result<()> {
    a_sidecar_that_keeps_exiting_comes_back("OnFailure", 0).await
}

/// ks-H12 to ks-H15.
#[tokio::test]
async fn ks_h12_h15_a_sidecar_that_keeps_exiting_1_on_failure() -> Result<()> {
    a_sidecar_that_keeps_exiting_comes_back("OnFailure", 1).await
}

/// ks-I8 to ks-I11.
#[tokio::test]
async fn r1_a_sidecar_that_keeps_exiting_0_always() -> Result<()> {
    a_sidecar_that_keeps_exiting_comes_back("Always", 0).await
}

/// ks-I12 to ks-I15.
#[tokio::test]
async fn r1_a_sidecar_that_keeps_exiting_1_always() -> Result<()> {
    a_sidecar_that_keeps_exiting_comes_back("Always", 1).await
}
