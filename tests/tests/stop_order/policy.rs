//! Pods whose caller follows a restart policy: stops of one container, recreation, what podshim shows, and what it
//! keeps (I8, R12, T15 to T17, U13, J10, J11). The callers here are scripted; `old_kubelet` tests with a real kubelet.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::cri::ContainerState;
use e2e::{Containerd, Pod, Program, Runtime};
use tokio::time::Instant;

use crate::support::{AMPLE, SOON, exit_codes, milliseconds, near, seconds, wait_started};

/// The annotation that a kubelet sets on every container.
const HASH: (&str, &str) = ("io.kubernetes.container.hash", "5c1e77aa");

fn kubelets(program: Program) -> Program {
    program.annotate(HASH.0, HASH.1)
}

/// I8, J1: under Never a main whose command does not exist counts as ended, so its sidecar does not run for ever.
#[tokio::test]
async fn i8_j1_a_main_that_cannot_be_started_completes_a_job_that_runs_nothing_again() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i8-main")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1"))
        .container(Program::new("app").missing())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1"]).await?;
    wait_started(&pod, &["s1"]).await?;
    pod.create("app").await?;
    ensure!(pod.start("app").await.is_err(), "app has been started");
    ensure!(pod.wait_exited("s1", SOON).await?.exit_code == 0);
    ensure!(pod.status("app").await?.exit_code == 128);
    pod.remove().await
}

/// I8: under Never a sidecar that cannot be started fails the pod, and the log of what is held says why.
#[tokio::test]
async fn i8_a_sidecar_that_cannot_be_started_ends_what_waits_for_it() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i8-sidecar")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1"))
        .container(Program::new("s2").missing())
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["s1"]).await?;
    pod.create("s2").await?;
    ensure!(pod.start("s2").await.is_err(), "s2 has been started");
    let codes = exit_codes(&pod, ["app", "s1"]).await?;
    ensure!(codes == [125, 0], "{codes:?}");
    pod.wait_for_output("app", "podshim: not started: sidecar \"s2\" could not be started: ").await?;
    pod.remove().await
}

/// I8, FOUND K12: a kubelet starts one native sidecar after another, and tries one again whose start failed. Until what comes after
/// it exists the pod has not failed.
#[tokio::test]
async fn i8_found_k12_the_sidecars_before_one_whose_start_fails_run_on() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("i8-native")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(kubelets(Program::new("s1")))
        .container(kubelets(Program::new("s2").missing()))
        .container(kubelets(Program::new("app")))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1"]).await?;
    wait_started(&pod, &["s1"]).await?;
    for _ in 0..2 {
        pod.create("s2").await?;
        ensure!(pod.start("s2").await.is_err(), "s2 has been started");
        tokio::time::sleep(seconds(2)).await;
        let timeline = pod.timeline()?;
        ensure!(timeline.count("s1", Term) == 0 && timeline.count("s1", Starting) == 1, "{timeline}");
        ensure!(pod.status("s1").await?.state() == ContainerState::ContainerRunning);
    }
    pod.remove().await
}

/// R12: a kubelet sees a crash loop after five restarts in place.
#[tokio::test]
async fn r12_a_crash_loop_is_shown_to_a_kubelet() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r12")
        .annotate("plan", "s1=sidecar, app=main")
        .container(kubelets(Program::new("s1").runs_for(milliseconds(100)).exits(7)))
        .container(kubelets(Program::new("app")))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    // The delays before the restarts: none, then 1, 2, 4 and 8 s.
    let status = pod.wait_exited("s1", seconds(15) + AMPLE).await?;
    ensure!(status.exit_code == 7, "{status:?}");
    let starts = pod.timeline()?.count("s1", Starting);
    ensure!(starts == 6, "{starts} starts\n{}", pod.timeline()?);
    ensure!(pod.status("app").await?.state() == ContainerState::ContainerRunning);
    pod.remove().await
}

/// R12, FOUND C10: and that of an init, whose pod would wait for ever otherwise.
#[tokio::test]
async fn r12_found_c10_an_inits_crash_loop_is_shown_to_a_kubelet() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r12-init")
        .annotate("plan", "i1=init, app=main")
        .annotate("restart-policy", "OnFailure")
        .container(kubelets(Program::new("i1").runs_for(milliseconds(100)).exits(7)))
        .container(kubelets(Program::new("app")))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["i1"]).await?;
    let status = pod.wait_exited("i1", seconds(15) + AMPLE).await?;
    ensure!(status.exit_code == 7, "{status:?}");
    let starts = pod.timeline()?.count("i1", Starting);
    ensure!(starts == 6, "{starts} starts\n{}", pod.timeline()?);
    pod.remove().await
}

/// T15: a main that its caller has stopped alone may be recreated, and completes nothing until then.
#[tokio::test]
async fn t15_a_main_that_is_recreated_has_completed_nothing() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t15")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1"))
        .container(Program::new("app").term_exit_code(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    pod.stop("app", seconds(5)).await?;
    tokio::time::sleep(seconds(4)).await;
    ensure!(pod.timeline()?.count("s1", Term) == 0, "{}", pod.timeline()?);
    pod.start_all(&["app"]).await?;
    pod.wait_for("app", Starting, 2, AMPLE).await?;
    ensure!(pod.status("s1").await?.state() == ContainerState::ContainerRunning);
    pod.remove().await
}

/// T16: a kubelet's stop of one sidecar is answered soon after the window, not after the grace, and the main runs on.
#[tokio::test]
async fn t16_a_lone_stop_of_a_sidecar_is_fast() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t16")
        .annotate("plan", "s1=sidecar, app=main")
        .container(kubelets(Program::new("s1")))
        .container(kubelets(Program::new("app")))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let begin = Instant::now();
    pod.stop("s1", seconds(20)).await?;
    let took = begin.elapsed();
    ensure!((seconds(2)..seconds(10)).contains(&took), "the stop took {took:?}");
    ensure!(pod.status("app").await?.state() == ContainerState::ContainerRunning);
    // The stop restarted no main, also not when the caller recreates the sidecar.
    pod.start_all(&["s1"]).await?;
    pod.wait_for("s1", Starting, 2, AMPLE).await?;
    ensure!(pod.timeline()?.count("app", Starting) == 1, "{}", pod.timeline()?);
    pod.remove().await
}

/// T16, J10: under OnFailure the 0 of such a stop is shown as 143, or the kubelet would not recreate the sidecar.
#[tokio::test]
async fn t16_j10_a_lone_stop_under_on_failure_shows_no_zero() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t16-j10")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "OnFailure")
        .container(kubelets(Program::new("s1").term_exit_code(0)))
        .container(kubelets(Program::new("app")))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    pod.stop("s1", seconds(20)).await?;
    ensure!(pod.status("s1").await?.exit_code == 143, "{:?}", pod.status("s1").await?);
    ensure!(pod.status("app").await?.state() == ContainerState::ContainerRunning);
    pod.remove().await
}

/// T17: podshim itself kills a sidecar that no caller has stopped when the kubelet's grace is over.
#[tokio::test]
async fn t17_a_sidecar_that_no_caller_has_stopped_has_the_pods_grace() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("t17")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .kubelet_grace(seconds(3))
        .container(Program::new("s1").ignores_term())
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    wait_started(&pod, &["s1", "s2", "app"]).await?;
    tokio::try_join!(pod.stop("app", seconds(30)), pod.stop("s2", seconds(30)))?;
    let ended = Duration::from_nanos(pod.wait_exited("s1", AMPLE).await?.finished_at.try_into()?);
    let lived = ended.saturating_sub(pod.timeline()?.time_of("s1", Term)?);
    ensure!(near(lived, seconds(3), milliseconds(1500)), "s1 was killed after {lived:?}");
    pod.remove().await
}

/// U13: a held container's log says what it waits for whenever that changes.
#[tokio::test]
async fn u13_a_hold_says_what_changes() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u13")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s1", "exec:test -e /tmp/ready;period=200ms;fail=1000")
        .container(Program::new("s1").ready_file("/tmp/ready", seconds(3)))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    pod.wait_for_output(
        "app",
        "podshim: held: waiting for sidecar \"s1\": exec:test -e /tmp/ready: exit status 1",
    )
    .await?;
    pod.wait_for_output("app", "podshim: held: waiting for sidecar \"s2\": not created yet").await?;
    pod.start_all(&["s2"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.remove().await
}

/// J10: under OnFailure nothing that a fatal end has stopped shows 0, because its caller must run it again.
#[tokio::test]
async fn j10_a_fatal_end_under_on_failure_shows_no_success() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j10")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("restart-policy", "OnFailure")
        .annotate("fatal.s2", "failure")
        .container(Program::new("s1").term_exit_code(0))
        .container(Program::new("s2").runs_for(seconds(2)).exits(5))
        .container(Program::new("app").term_exit_code(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    let codes = exit_codes(&pod, ["s2", "app", "s1"]).await?;
    ensure!(codes == [5, 143, 143], "{codes:?}\n{}", pod.timeline()?);
    pod.timeline()?.in_order(&[("s2", Exiting), ("app", Term), ("s1", Term)])?;
    pod.remove().await
}

/// J11, FOUND C9: a kubelet runs a main of a job again after a code that its rules name (KEP-5307), also when the pod was complete.
#[tokio::test]
async fn j11_found_c9_a_recreated_main_of_a_job_runs() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j11-rules")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(kubelets(Program::new("s1")))
        .container(kubelets(Program::new("app").runs_for(seconds(1)).exits(42)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    let codes = exit_codes(&pod, ["app", "s1"]).await?;
    ensure!(codes == [42, 0], "{codes:?}");
    pod.start_all(&["app"]).await?;
    ensure!(pod.wait_exited("app", SOON).await?.exit_code == 42);
    ensure!(pod.timeline()?.count("app", Exiting) == 2, "it has not run again:\n{}", pod.timeline()?);
    pod.remove().await
}

/// J11: in a complete job a sidecar that is created for the first time ends at once: no main will come.
#[tokio::test]
async fn j11_nothing_lives_on_in_a_complete_job() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j11")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        // Its signal comes right after its exec, and process 1 of a pid namespace misses a signal for which it has no
        // handler yet.
        .annotate("grace", "2s")
        .container(Program::new("s1"))
        .container(Program::new("app").missing())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.create("app").await?;
    ensure!(pod.start("app").await.is_err(), "app has been started");
    pod.start_all(&["s1"]).await?;
    ensure!(pod.wait_exited("s1", SOON).await?.exit_code == 0);
    pod.remove().await
}

/// J11: a sidecar that a caller recreates after a job's completion ends when no main came for `replace-wait`.
#[tokio::test]
async fn j11_a_sidecar_that_is_recreated_after_completion_ends_too() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("replace-wait = \"2s\"").await?;
    let mut pod = Pod::new("j11-again")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "OnFailure")
        .annotate("grace", "2s")
        .container(Program::new("s1"))
        .container(Program::new("app").runs_for(seconds(1)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    let codes = exit_codes(&pod, ["app", "s1"]).await?;
    ensure!(codes == [0, 0], "{codes:?}");
    pod.start_all(&["s1"]).await?;
    pod.wait_for("s1", Starting, 2, AMPLE).await?;
    ensure!(pod.wait_exited("s1", SOON).await?.exit_code == 0);
    pod.remove().await
}
