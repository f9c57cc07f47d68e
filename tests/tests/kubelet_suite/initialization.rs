//! The start of a pod: hooks of the kubelet beside it, containers that never come, sidecars that are replaced during it
//! (B, C, F, G, H, I, J).

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::durations::{AMPLE, SOON, milliseconds, seconds};
use e2e::{Containerd, Event, Pod, Program, Runtime, wait};

/// ks-B3: the inits have completed before a regular container's postStart hook runs. That hook is an exec right after
/// the start, which podshim runs in a held container too (U8), so the hook waits for the program.
#[tokio::test]
async fn ks_b3_inits_complete_before_a_post_start_hook() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("b3")
        .annotate("plan", "init=init, regular=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("init").exits(0))
        .container(Program::new("regular").runs_for(seconds(6)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["init", "regular"]).await?;
    pod.wait_for("regular", Event::Started, 1, SOON).await?;
    let hook = ["/bin/pod-member", "--name", "PostStart", "--log", "/pod/timeline.log", "--run", "0.5"];
    ensure!(pod.exec("regular", &hook).await?.exit_code == 0, "the hook failed");
    let timeline = pod.timeline()?;
    timeline.completes_before("init", "regular")?;
    timeline.completes_before("init", "PostStart")?;
    timeline.run_together("regular", "PostStart")?;
    pod.remove().await
}

/// ks-G5 to ks-G7, ks-H5 to ks-H7, ks-I5 to ks-I7, ks-B6 to ks-B8, U10: a container whose image cannot be pulled is
/// never created: nothing after it starts, and nothing ends.
async fn a_container_that_never_comes(policy: &str, missing: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("bad-image")
        .annotate("plan", &format!("{missing}, regular=main"))
        .annotate("restart-policy", policy)
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("regular").await?;
    wait::quiet_time(milliseconds(1500)).await;
    pod.timeline()?.doesnt_start("regular")?;
    let log = pod.wait_for_output("regular", "podshim: held: waiting for").await?;
    ensure!(log.contains("not created yet"), "{log}");
    pod.remove().await
}

#[tokio::test]
async fn ks_b6_b8_an_init_with_a_bad_image() -> Result<()> {
    a_container_that_never_comes("Never", "init1=init").await
}

#[tokio::test]
async fn ks_g5_g7_a_sidecar_with_a_bad_image_under_never() -> Result<()> {
    a_container_that_never_comes("Never", "s1=sidecar").await
}

/// ks-H5 to ks-H7.
#[tokio::test]
async fn ks_h5_h7_a_sidecar_with_a_bad_image_on_failure() -> Result<()> {
    a_container_that_never_comes("OnFailure", "s1=sidecar").await
}

/// ks-I5 to ks-I7.
#[tokio::test]
async fn ks_i5_i7_a_sidecar_with_a_bad_image_always() -> Result<()> {
    a_container_that_never_comes("Always", "s1=sidecar").await
}

/// ks-F1, ks-F2: a sidecar is replaced while a later init runs on. Only the sidecar starts again, and nothing after the
/// init starts. The kubelet stops it alone (T12) and recreates it (R11).
async fn a_sidecar_replaced_during_initialization(policy: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("f1")
        .annotate("plan", "i1=init, s1=sidecar, i2=init, s2=sidecar, regular=main")
        .annotate("restart-policy", policy)
        .container(Program::new("i1").exits(0))
        .container(Program::new("s1"))
        .container(Program::new("i2"))
        .container(Program::new("s2"))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["i1", "s1", "i2", "s2", "regular"]).await?;
    pod.wait_for("i2", Event::Started, 1, SOON).await?;
    pod.stop("s1", seconds(2)).await?;
    pod.start("s1").await?;
    let timeline = pod.wait_for("s1", Event::Started, 2, SOON).await?;
    timeline.has_not_restarted("i1")?;
    timeline.has_not_restarted("i2")?;
    timeline.doesnt_start("s2")?;
    timeline.doesnt_start("regular")?;
    pod.remove().await
}

#[tokio::test]
async fn ks_f1_a_sidecar_is_replaced_during_initialization_always() -> Result<()> {
    a_sidecar_replaced_during_initialization("Always").await
}

#[tokio::test]
async fn ks_f2_a_sidecar_is_replaced_during_initialization_on_failure() -> Result<()> {
    a_sidecar_replaced_during_initialization("OnFailure").await
}

/// ks-B12, H2: the kubelet stops a regular container whose start probe fails (here the test runs the probe, as an
/// exec). The pre-stop hook runs beside the container, and then the container ends.
#[tokio::test]
async fn ks_b12_a_hook_runs_before_a_container_whose_start_probe_failed_ends() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("b12")
        .annotate("plan", "regular=main")
        .annotate("restart-policy", "Never")
        .annotate("pre-stop.regular", "exec:/bin/pod-member --name PreStop --log /pod/timeline.log --run 1")
        .container(Program::new("regular").ready_file("/tmp/ready", seconds(600)).term_exit_code(3))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("regular").await?;
    pod.wait_for("regular", Event::Started, 1, SOON).await?;
    ensure!(pod.exec("regular", &["test", "-e", "/tmp/ready"]).await?.exit_code != 0, "its probe is to fail");
    pod.stop("regular", AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.run_together("regular", "PreStop")?;
    timeline.in_order(&[
        ("PreStop", Starting),
        ("PreStop", Exiting),
        ("regular", Term),
        ("regular", Exiting),
    ])?;
    timeline.has_not_restarted("regular")?;
    ensure!(pod.status("regular").await?.exit_code == 3, "{timeline}");
    pod.remove().await
}

/// ks-C1, I4: an init that is updated after it has completed does not run again, and the regular container is not
/// affected. For a shim the updated init is another container of the same name.
#[tokio::test]
async fn ks_c1_an_init_updated_after_it_has_completed_does_not_run() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("c1")
        .annotate("plan", "init=init, regular=main")
        .container(Program::new("init").exits(0))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("init").await?;
    pod.wait_exited("init", SOON).await?;
    pod.start("regular").await?;
    pod.wait_for("regular", Event::Started, 1, SOON).await?;
    pod.start("init").await?;
    wait::quiet_time(seconds(1)).await;
    let timeline = pod.timeline()?;
    timeline.has_not_restarted("init")?;
    timeline.has_not_restarted("regular")?;
    ensure!(timeline.count("regular", Term) == 0, "{timeline}");
    pod.remove().await
}

/// ks-J2 to ks-J4: the caller replaces a sidecar whose probe fails. The sidecar before it is not restarted, the main
/// never starts, and the probe of the new one counts from zero.
async fn a_sidecar_replaced_after_its_probe_failed(policy: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j2")
        .annotate("plan", "s1=sidecar, s2=sidecar, regular=main")
        .annotate("restart-policy", policy)
        .annotate("ready.s2", "tcp::1;period=200ms;fail=2")
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "regular"]).await?;
    let restarted = pod.wait_for("s2", Event::Starting, 2, SOON).await?;
    pod.stop("s2", Duration::from_secs(2)).await?;
    let runs = pod.timeline()?.count("s2", Starting).max(restarted.count("s2", Starting));
    pod.start("s2").await?;
    let timeline = pod.wait_for("s2", Event::Starting, runs + 2, SOON).await?;
    timeline.has_not_restarted("s1")?;
    timeline.doesnt_start("regular")?;
    ensure!(timeline.count("s1", Exiting) == 0, "{timeline}");
    pod.remove().await
}

/// ks-J2.
#[tokio::test]
async fn ks_j2_a_sidecar_is_replaced_after_its_probe_failed_under_never() -> Result<()> {
    a_sidecar_replaced_after_its_probe_failed("Never").await
}

/// ks-J3.
#[tokio::test]
async fn ks_j3_a_sidecar_is_replaced_after_its_probe_failed_on_failure() -> Result<()> {
    a_sidecar_replaced_after_its_probe_failed("OnFailure").await
}

/// ks-J4.
#[tokio::test]
async fn ks_j4_a_sidecar_is_replaced_after_its_probe_failed_always() -> Result<()> {
    a_sidecar_replaced_after_its_probe_failed("Always").await
}
