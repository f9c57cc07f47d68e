//! Init containers (I-rules): their order, what a failure means under each policy, and that a completed one never runs
//! again.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::cri::ContainerState;
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{
    AMPLE, REMAKING, SOON, TOLERANCE, are_running, at_most, exit_with, message, milliseconds, seconds,
    starts, task, wait_started,
};

/// ks-B1, I1: an init starts only after the one before it has exited 0.
#[tokio::test]
async fn i1_ks_b1_init_runs_before_regular() -> Result<()> {
    let node = Containerd::connect().await?;
    let init = |name| Program::new(name).runs_for(milliseconds(500)).exits(0);
    let mut pod = Pod::new("b1")
        .annotate("plan", "i1=init, i2=init, i3=init, regular=main")
        .annotate("restart-policy", "Never")
        .container(init("i1"))
        .container(init("i2"))
        .container(init("i3"))
        .container(init("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "i3", "i2", "i1"]).await?;
    exit_with(&pod, &[("i1", 0), ("i2", 0), ("i3", 0), ("regular", 0)]).await?;
    let timeline = pod.timeline()?;
    for (left, right) in [("i1", "i2"), ("i2", "i3"), ("i3", "regular")] {
        timeline.completes_before(left, right)?;
    }
    pod.remove().await
}

/// ks-B2, I2, J9: under Never a failed init ends the pod. Held containers exit with 125 without having run. The reason
/// is in their log and, mounted as by the kubelet, in their termination message. Containers that are created later get
/// the same.
#[tokio::test]
async fn ks_b2_nothing_runs_after_a_failed_init() -> Result<()> {
    let node = Containerd::connect().await?;
    let files = tempfile::tempdir()?;
    let message = files.path().join("message");
    fs::write(&message, "")?;
    let mut pod = Pod::new("b2")
        .annotate("plan", "i1=init, i2=init, regular=main, late=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("i1").exits(1))
        .container(Program::new("i2").exits(0))
        .container(
            Program::new("regular")
                .mount(&message, "/dev/termination-log")
                .annotate("io.kubernetes.container.terminationMessagePath", "/dev/termination-log"),
        )
        .container(Program::new("late"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "i2", "i1"]).await?;
    exit_with(&pod, &[("i1", 1), ("i2", 125), ("regular", 125)]).await?;
    pod.start("late").await?;
    exit_with(&pod, &[("late", 125)]).await?;
    let timeline = pod.timeline()?;
    for name in ["i2", "regular", "late"] {
        timeline.doesnt_start(name)?;
        pod.wait_for_output(name, "podshim: not started: init \"i1\" failed with 1\n").await?;
    }
    timeline.has_not_restarted("i1")?;
    let message = fs::read_to_string(&message)?;
    ensure!(message.trim() == r#"podshim: not started: init "i1" failed with 1"#, "{message:?}");
    pod.remove().await
}

/// I2, J9: an init that cannot be created fails its pod, like one that exits non-zero.
#[tokio::test]
async fn i2_an_init_that_cannot_start_fails_the_pod() -> Result<()> {
    let node = Containerd::connect().await?;
    let files = tempfile::tempdir()?;
    let mut pod = Pod::new("i2")
        .annotate("plan", "s1=sidecar, i1=init, regular=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1"))
        // The runtime refuses to mount a directory over a file.
        .container(Program::new("i1").mount(files.path(), "/bin/busybox"))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "s1"]).await?;
    wait_started(&pod, &["s1"]).await?;
    let error = message(&pod.start("i1").await.err().context("an impossible container was made")?);
    // crun gives the path below the container's root, without the leading slash.
    ensure!(error.contains("bin/busybox"), "the runtime's own words are missing: {error}");
    exit_with(&pod, &[("regular", 125), ("s1", 0)]).await?;
    pod.wait_for_output("regular", "podshim: not started: init \"i1\" could not be started: ").await?;
    let timeline = pod.timeline()?;
    timeline.doesnt_start("regular")?;
    timeline.before(("s1", Starting), ("s1", Term))?;
    pod.remove().await
}

/// ks-G16 to ks-G18, I2: a sidecar after the failed init never starts; held, it is masked like any sidecar (J2).
#[tokio::test]
async fn ks_g16_a_sidecar_after_a_failed_init_does_not_start() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("g16")
        .annotate("plan", "i1=init, s1=sidecar, regular=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("i1").exits(1))
        .container(Program::new("s1"))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "s1", "i1"]).await?;
    exit_with(&pod, &[("i1", 1), ("regular", 125), ("s1", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.doesnt_start("s1")?;
    timeline.doesnt_start("regular")?;
    pod.remove().await
}

/// ks-G19 to ks-G21, ks-F3, I2: sidecars before the failed init ran beside it and are stopped after it, in reverse
/// order.
#[tokio::test]
async fn ks_g19_sidecars_before_a_failed_init_are_stopped_after_it() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("g19")
        .annotate("plan", "s1=sidecar, s2=sidecar, i1=init, regular=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1").term_delay(milliseconds(300)).term_exit_code(5))
        .container(Program::new("s2").term_delay(milliseconds(300)))
        .container(Program::new("i1").runs_for(seconds(1)).exits(7))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "i1", "regular"]).await?;
    exit_with(&pod, &[("i1", 7), ("regular", 125), ("s1", 0), ("s2", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.run_together("s1", "i1")?;
    timeline.run_together("s2", "i1")?;
    timeline.in_order(&[("i1", Exiting), ("s2", Term), ("s2", Exiting), ("s1", Term), ("s1", Exiting)])?;
    timeline.doesnt_start("regular")?;
    timeline.has_not_restarted("s1")?;
    pod.remove().await
}

/// I3, R4, R8: under a policy that retries inits, podshim restarts a failed one in place, with growing delays. All
/// other containers are unchanged, and the caller sees no exit. `plan` decides whether the sidecar comes before or
/// after the init.
async fn a_failed_init_is_retried(policy: &str, plan: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("retried")
        .annotate("plan", plan)
        .annotate("restart-policy", policy)
        .container(Program::new("i1").runs_for(milliseconds(100)).exits(1))
        .container(Program::new("s1"))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "i1", "s1"]).await?;
    let timeline = pod.wait_for("i1", Starting, 4, SOON).await?;
    let runs = starts(&timeline, "i1");
    for (pair, gap) in runs.windows(2).zip([0, 1, 2]) {
        let waited = pair[1].saturating_sub(pair[0]);
        // Never early; late by at most its run and the time that creating a process takes here.
        let late = waited.saturating_sub(seconds(gap));
        ensure!(waited >= seconds(gap) && at_most(late, REMAKING), "{waited:?}, not {gap} s:\n{timeline}");
    }
    timeline.doesnt_start("regular")?;
    are_running(&pod, &["i1", "regular", "s1"]).await?;
    if plan.starts_with("s1") {
        timeline.run_together("s1", "i1")?;
        timeline.has_not_restarted("s1")?;
    } else {
        timeline.doesnt_start("s1")?;
    }
    pod.remove().await
}

/// ks-H16 to ks-H18.
#[tokio::test]
async fn ks_h16_a_failed_init_is_retried_on_failure() -> Result<()> {
    a_failed_init_is_retried("OnFailure", "i1=init, s1=sidecar, regular=main").await
}

/// ks-H19 to ks-H21.
#[tokio::test]
async fn ks_h19_a_failed_init_is_retried_on_failure_beside_its_sidecar() -> Result<()> {
    a_failed_init_is_retried("OnFailure", "s1=sidecar, i1=init, regular=main").await
}

/// ks-I16 to ks-I18.
#[tokio::test]
async fn i3_a_failed_init_is_retried_always() -> Result<()> {
    a_failed_init_is_retried("Always", "i1=init, s1=sidecar, regular=main").await
}

/// ks-I19 to ks-I21.
#[tokio::test]
async fn i3_a_failed_init_is_retried_always_beside_its_sidecar() -> Result<()> {
    a_failed_init_is_retried("Always", "s1=sidecar, i1=init, regular=main").await
}

/// I3: the retries end with the first success, and the plan goes on.
#[tokio::test]
async fn i3_a_retried_init_that_succeeds_lets_the_rest_start() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i3")
        .annotate("plan", "i1=init, regular=main")
        .annotate("restart-policy", "OnFailure")
        .container(Program::new("i1").exits_each(&[1, 2, 0]))
        .container(Program::new("regular").exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "i1"]).await?;
    exit_with(&pod, &[("i1", 0), ("regular", 0)]).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("i1", Starting) == 3, "{timeline}");
    let last = timeline.of("i1", Exiting).last().context("i1 did not exit")?.at;
    ensure!(last <= timeline.time_of("regular", Starting)?, "{timeline}");
    pod.remove().await
}

/// ks-B9, I4: inits do not run again when a main does.
#[tokio::test]
async fn ks_b9_inits_do_not_run_again_with_a_main() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("b9")
        .annotate("plan", "i1=init, i2=init, regular=main")
        .container(Program::new("i1").exits(0))
        .container(Program::new("i2").exits(0))
        .container(Program::new("regular").runs_for(milliseconds(300)).exits(1))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["i1", "i2", "regular"]).await?;
    for _ in 0..2 {
        exit_with(&pod, &[("regular", 1)]).await?;
        pod.start("regular").await?;
    }
    exit_with(&pod, &[("regular", 1)]).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("regular", Starting) == 3, "{timeline}");
    timeline.has_not_restarted("i1")?;
    timeline.has_not_restarted("i2")?;
    pod.remove().await
}

/// I4, N1, as in ks-D2 to ks-D5: a completed init does not run again, whatever happens to containerd, to its own
/// container and to the main. Uses a containerd of its own, because the test kills it.
#[tokio::test]
async fn i4_a_completed_init_never_runs_again() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = Pod::new("i4")
        .annotate("plan", "i1=init, regular=main")
        .annotate("restart-policy", "OnFailure")
        .container(Program::new("i1").exits(0))
        .container(Program::new("regular").term_exit_code(4))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["i1", "regular"]).await?;
    wait_started(&pod, &["regular"]).await?;
    exit_with(&pod, &[("i1", 0)]).await?;
    node.kill().await?;
    node.start_again().await?;
    exit_with(&pod, &[("i1", 0)]).await?;
    are_running(&pod, &["regular"]).await?;

    node.cri()?.remove_container(pod.id("i1")?).await?;
    pod.stop("regular", AMPLE).await?;
    pod.start("regular").await?;
    pod.wait_for("regular", Started, 2, SOON).await?;
    pod.start("i1").await?;
    // Under OnFailure its caller does not run it again, so its exit is not hidden (I5).
    exit_with(&pod, &[("i1", 0)]).await?;
    are_running(&pod, &["regular"]).await?;
    pod.timeline()?.has_not_restarted("i1")?;
    pod.remove().await
}

/// I5, F13: under Always an unaware kubelet would restart a completed init for ever, so its exit is hidden: RUNNING,
/// with the sandbox's pid, until it is stopped. Then podshim shows the real code and time of the exit.
#[tokio::test]
async fn i5_a_completed_init_is_hidden_from_an_unaware_kubelet() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i5")
        .annotate("plan", "i1=init, regular=main")
        .container(Program::new("i1").runs_for(seconds(1)).exits(0))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["i1", "regular"]).await?;
    wait_started(&pod, &["regular"]).await?;
    wait::quiet_time(seconds(2)).await;
    are_running(&pod, &["i1"]).await?;
    let shown = task(&node, pod.id("i1")?).await?;
    let sandbox = task(&node, pod.sandbox()).await?;
    ensure!(shown == sandbox && shown.status == "RUNNING", "i1 {shown:?}, sandbox {sandbox:?}");
    let refused = pod.exec("i1", &["true"]).await.err().context("an exec into a completed init ran")?;
    ensure!(message(&refused).contains("completed"), "{refused:#}");

    wait::at_most(SOON, "the stop of a hidden init does not return at once", pod.stop("i1", AMPLE)).await?;
    let status = pod.status("i1").await?;
    ensure!(status.exit_code == 0, "{status:?}");
    let shown_at = Duration::from_nanos(status.finished_at.try_into()?);
    let really = pod.timeline()?.time_of("i1", Exiting)?;
    // The stop came 2 s later or more.
    ensure!(
        at_most(shown_at.abs_diff(really), TOLERANCE),
        "ended at {really:?}, shown as ended at {shown_at:?}"
    );
    pod.timeline()?.has_not_restarted("i1")?;
    pod.remove().await
}

/// I5: a liveness kill of the main does not show the init's exit: a kubelet would answer with a restart of the init.
#[tokio::test]
async fn i5_a_kill_of_the_main_leaves_the_init_hidden() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i5-kill")
        .annotate("plan", "i1=init, app=main")
        .container(Program::new("i1").runs_for(seconds(1)).exits(0))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["i1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.stop("app", AMPLE).await?;
    wait::quiet_time(seconds(1)).await;
    are_running(&pod, &["i1"]).await?;
    pod.start_all(&["app"]).await?;
    pod.wait_for("app", Started, 2, AMPLE).await?;
    are_running(&pod, &["i1"]).await?;
    pod.timeline()?.has_not_restarted("i1")?;
    pod.remove().await
}

/// F11, I5, R4, N1: a restarted containerd deletes tasks that are CREATED or STOPPED. A hidden init and a sidecar in
/// its backoff are neither, and live on. Uses a containerd of its own, because the test kills it.
#[tokio::test]
async fn f11_what_has_no_process_outlasts_containerd() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = Pod::new("f11")
        .annotate("plan", "s1=sidecar, i1=init, regular=main")
        .container(Program::new("s1").runs_for_each(&[seconds(1), seconds(0)]).exits(1))
        .container(Program::new("i1").exits(0))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "s1", "i1"]).await?;
    wait_started(&pod, &["regular"]).await?;
    // After its fourth exit the sidecar waits for 4 s (R4).
    let runs = pod.wait_for("s1", Exiting, 4, SOON).await?.count("s1", Starting);
    node.kill().await?;
    node.start_again().await?;
    are_running(&pod, &["s1", "i1", "regular"]).await?;
    pod.wait_for("s1", Starting, runs + 1, SOON).await?;
    pod.stop("i1", AMPLE).await?;
    exit_with(&pod, &[("i1", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.has_not_restarted("i1")?;
    timeline.has_not_restarted("regular")?;
    pod.remove().await
}

/// I5: a caller that has created no later container waits for the exit, so podshim shows it at once.
#[tokio::test]
async fn i5_an_exit_that_the_caller_waits_for_is_shown_at_once() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i5-alone")
        .annotate("plan", "i1=init, regular=main")
        .container(Program::new("i1").exits(0))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("i1").await?;
    exit_with(&pod, &[("i1", 0)]).await?;
    pod.start("regular").await?;
    wait_started(&pod, &["regular"]).await?.completes_before("i1", "regular")?;
    pod.remove().await
}

/// I5: a kubelet that marks the container as an init waits for its exit, whatever it has created already.
#[tokio::test]
async fn i5_an_init_that_the_kubelet_calls_one_is_not_hidden() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i5-type")
        .annotate("plan", "i1=init, regular=main")
        .container(Program::new("i1").exits(0).annotate("io.kubernetes.container.type", "init"))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "i1"]).await?;
    exit_with(&pod, &[("i1", 0)]).await?;
    wait_started(&pod, &["regular"]).await?;
    pod.remove().await
}

/// I6: an init gets its stop signal at once, though a sidecar before it waits for its turn.
#[tokio::test]
async fn i6_a_running_init_is_stopped_at_once() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i6")
        .annotate("plan", "s1=sidecar, i1=init, regular=main")
        .container(Program::new("s1"))
        .container(Program::new("i1").term_delay(seconds(1)).term_exit_code(3))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "i1", "regular"]).await?;
    wait_started(&pod, &["i1"]).await?;
    pod.stop_all_at_once(seconds(5)).await?;
    exit_with(&pod, &[("i1", 3), ("regular", 143), ("s1", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("i1", Term), ("i1", Exiting), ("s1", Term), ("s1", Exiting)])?;
    timeline.distance(("i1", Term), ("s1", Exiting), seconds(1), TOLERANCE)?;
    timeline.doesnt_start("regular")?;
    ensure!(pod.status("i1").await?.state() == ContainerState::ContainerExited, "{timeline}");
    pod.remove().await
}

/// I7: inits of a group start together; what follows waits for all of them.
#[tokio::test]
async fn i7_a_group_of_inits_runs_together() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i7")
        .annotate("plan", "first=init, a+b=init, regular=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("first").runs_for(seconds(2)).exits(0))
        .container(Program::new("a").runs_for(seconds(2)).exits(0))
        .container(Program::new("b").runs_for(milliseconds(2500)).exits(0))
        .container(Program::new("regular").exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    // All exist when the group is released, so that creation does not delay the start.
    pod.start_all(&["regular", "b", "a", "first"]).await?;
    exit_with(&pod, &[("first", 0), ("a", 0), ("b", 0), ("regular", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.completes_before("first", "a")?;
    timeline.completes_before("first", "b")?;
    // If they ran one after the other, the starts would be 2 s apart.
    timeline.within(TOLERANCE, ("a", Starting), ("b", Starting))?;
    timeline.run_together("a", "b")?;
    timeline.completes_before("a", "regular")?;
    timeline.completes_before("b", "regular")?;
    pod.remove().await
}

/// I7, I2: the first failure fails the group; the rest of it gets the stop signal.
#[tokio::test]
async fn i7_one_failure_ends_the_group() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i7-fails")
        .annotate("plan", "a+b=init, regular=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("a").runs_for(seconds(1)).exits(9))
        .container(Program::new("b").term_exit_code(6))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "b", "a"]).await?;
    exit_with(&pod, &[("a", 9), ("b", 6), ("regular", 125)]).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("a", Exiting), ("b", Term), ("b", Exiting)])?;
    timeline.doesnt_start("regular")?;
    pod.remove().await
}
