//! Pods that end by themselves (J1, J5, J6, J7, I2) and the exit codes that callers see (J2, J3, J9, ks-L9).

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Term};
use e2e::cri::ContainerState;
use e2e::{Containerd, Event, Pod, Program, Runtime, wait};

use crate::support::{
    AMPLE, SOON, TOLERANCE, exit_codes, finished_at, logged_real_code, milliseconds, near, seconds,
    wait_started,
};

/// J1, J3, J6: under Never the pod is complete when all mains have exited, with any code; then the sidecars end in
/// reverse order, without a request of the caller.
#[tokio::test]
async fn j1_never_completes_when_all_mains_have_exited() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j1-never")
        .annotate("plan", "s1=sidecar, s2=sidecar, a=main, b=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1").term_delay(milliseconds(300)))
        .container(Program::new("s2").term_delay(milliseconds(300)))
        .container(Program::new("a").runs_for(milliseconds(300)).exits(3))
        .container(Program::new("b").runs_for(seconds(2)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["a", "b", "s1", "s2"]).await?;
    let codes = exit_codes(&pod, ["s1", "s2", "a", "b"]).await?;
    let timeline = pod.timeline()?;
    ensure!(codes == [0, 0, 3, 0], "{codes:?}\n{timeline}");
    timeline.in_order(&[("a", Exiting), ("b", Exiting), ("s2", Term), ("s2", Exiting), ("s1", Term)])?;
    timeline.within(TOLERANCE, ("b", Exiting), ("s2", Term))?;
    pod.remove().await
}

/// J1, T5: completion is a stop by podshim itself: a sidecar that does not end is killed at the end of the pod's grace.
#[tokio::test]
async fn j1_t5_completion_has_a_budget() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j1-budget")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("grace", "1s")
        .container(Program::new("s1").ignores_term())
        .container(Program::new("app").runs_for(milliseconds(500)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    ensure!(exit_codes(&pod, ["s1", "app"]).await? == [0, 0], "{}", pod.timeline()?);
    let lived = finished_at(&pod.status("s1").await?)?.saturating_sub(pod.timeline()?.time_of("s1", Term)?);
    ensure!(near(lived, seconds(3), TOLERANCE), "s1 was killed {lived:?} after its Term");
    pod.remove().await
}

/// J1, J6: under OnFailure one main's exit with 0 does not complete the pod while the other main runs.
#[tokio::test]
async fn j6_on_failure_completes_with_the_last_main() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j6")
        .annotate("plan", "s1=sidecar, a=main, b=main")
        .annotate("restart-policy", "OnFailure")
        .container(Program::new("s1"))
        .container(Program::new("a").exits(0))
        .container(Program::new("b").runs_for(seconds(3)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "a", "b"]).await?;
    ensure!(exit_codes(&pod, ["a", "s1", "b"]).await? == [0; 3], "{}", pod.timeline()?);
    let timeline = pod.timeline()?;
    timeline.in_order(&[("a", Exiting), ("b", Exiting), ("s1", Term)])?;
    timeline.within(TOLERANCE, ("b", Exiting), ("s1", Term))?;
    pod.remove().await
}

/// J6: a main that the plan names and that is not created yet keeps the pod from completing too.
#[tokio::test]
async fn j6_a_main_that_is_still_to_come_is_waited_for() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j6-late")
        .annotate("plan", "s1=sidecar, a=main, b=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1"))
        .container(Program::new("a").exits(0))
        .container(Program::new("b").exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "a"]).await?;
    pod.wait_exited("a", SOON).await?;
    wait::quiet_time(seconds(1)).await;
    ensure!(pod.timeline()?.count("s1", Term) == 0, "{}", pod.timeline()?);
    pod.start("b").await?;
    pod.wait_exited("s1", SOON).await?;
    pod.timeline()?.in_order(&[("a", Exiting), ("b", Exiting), ("s1", Term)])?;
    pod.remove().await
}

/// J1: under Always an exit completes nothing; R7: podshim does not restart the main.
#[tokio::test]
async fn j1_always_never_completes() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j1-always")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app").exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    pod.wait_exited("app", SOON).await?;
    wait::quiet_time(seconds(2)).await;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("s1", Term) == 0, "{timeline}");
    timeline.has_not_restarted("app")?;
    ensure!(pod.status("s1").await?.state() == ContainerState::ContainerRunning, "{timeline}");
    pod.remove().await
}

/// J2, ks-L9: a sidecar's non-zero code in a stop of the pod is shown as 0; the shim's log has the real one.
#[tokio::test]
async fn j2_ks_l9_a_failing_sidecar_does_not_fail_the_pod() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j2")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1").term_exit_code(143))
        .container(Program::new("s2").term_exit_code(1))
        .container(Program::new("app").runs_for(milliseconds(500)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    for name in ["app", "s1", "s2"] {
        let status = pod.wait_exited(name, SOON).await?;
        ensure!((status.exit_code, status.reason.as_str()) == (0, "Completed"), "{name}: {status:?}");
    }
    for (name, real) in [("s1", 143), ("s2", 1)] {
        let id = pod.id(name)?;
        let code =
            wait::until("the code in the shim's log", SOON, async || logged_real_code(&node, id)).await?;
        ensure!(code == real, "{name}: {code} in the log");
    }
    pod.remove().await
}

/// J2, J3: a stop of the pod by the caller masks the sidecars' codes, but no main's.
#[tokio::test]
async fn j3_a_mains_code_is_never_changed() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j3")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").term_exit_code(2))
        .container(Program::new("app").term_exit_code(3))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [3, 0], "{}", pod.timeline()?);
    pod.remove().await
}

/// J4: with `exit-codes=real` the real codes are shown.
#[tokio::test]
async fn j4_real_codes_are_shown_where_asked_for() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j4")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("exit-codes", "real")
        .container(Program::new("s1").term_exit_code(5))
        .container(Program::new("app").runs_for(milliseconds(500)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [0, 5], "{}", pod.timeline()?);
    pod.remove().await
}

/// J5: under OnFailure the caller restarts a failed main. The sidecars live on, and end when it succeeds.
#[tokio::test]
async fn j5_sidecars_live_through_a_failed_main() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j5")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "OnFailure")
        .container(Program::new("s1"))
        .container(Program::new("app").exits_each(&[1, 0]))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    ensure!(pod.wait_exited("app", SOON).await?.exit_code == 1, "{}", pod.timeline()?);
    wait::quiet_time(seconds(1)).await;
    ensure!(pod.timeline()?.count("s1", Term) == 0, "{}", pod.timeline()?);
    pod.start("app").await?;
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [0, 0], "{}", pod.timeline()?);
    let timeline = pod.timeline()?;
    timeline.has_not_restarted("s1")?;
    let second = timeline.of("app", Exiting).nth(1).map(|entry| entry.at);
    ensure!(second <= Some(timeline.time_of("s1", Term)?), "{timeline}");
    pod.remove().await
}

/// J7, R5: a sidecar that waits for its next restart when the mains have completed is final at once, with 0 (J2).
#[tokio::test]
async fn j7_a_sidecar_in_backoff_does_not_hold_up_the_end() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j7")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("restart.s1", "always;first=5m;max=5m")
        .container(Program::new("s1").runs_for(milliseconds(200)).exits(1))
        .container(Program::new("app").runs_for(seconds(4)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    pod.wait_exited("app", SOON).await?;
    let s1 = pod.wait_exited("s1", SOON).await?;
    let timeline = pod.timeline()?;
    ensure!(s1.exit_code == 0, "{s1:?}\n{timeline}");
    timeline.has_not_restarted("s1")?;
    timeline.exits_before("s1", "app")?;
    pod.remove().await
}

/// I2, J9: an init that fails under Never ends the pod. Containers that never ran exit with 125 and say why in their
/// log; running sidecars are stopped in reverse order.
#[tokio::test]
async fn j9_i2_what_never_ran_reports_125_and_why() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j9")
        .annotate("plan", "s1=sidecar, s2=sidecar, i1=init, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1").term_delay(milliseconds(300)))
        .container(Program::new("s2").term_delay(milliseconds(300)))
        .container(Program::new("i1").runs_for(milliseconds(500)).exits(1))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "i1", "s2", "s1"]).await?;
    let codes = exit_codes(&pod, ["i1", "app", "s2", "s1"]).await?;
    let timeline = pod.timeline()?;
    ensure!(codes == [1, 125, 0, 0], "{codes:?}\n{timeline}");
    timeline.in_order(&[("i1", Exiting), ("s2", Term), ("s2", Exiting), ("s1", Term), ("s1", Exiting)])?;
    timeline.doesnt_start("app")?;
    let output = pod.wait_for_output("app", "podshim: not started: init \"i1\" failed with 1\n").await?;
    ensure!(!output.contains(" stdout "), "{output:?}");
    ensure!(timeline.count("i1", Event::Starting) == 1, "{timeline}");
    pod.remove().await
}

/// R5: a sidecar that waits for its restart in its turn is final at once, however long its backoff.
#[tokio::test]
async fn r5_a_stop_beats_the_backoff() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r5")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("restart.s2", "always;first=5m;max=5m")
        .container(Program::new("s1"))
        .container(Program::new("s2").runs_for(milliseconds(200)).exits(1))
        .container(Program::new("app").term_delay(milliseconds(300)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    pod.wait_for("s2", Exiting, 1, SOON).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.within(SOON, ("app", Term), ("s1", Exiting))?;
    timeline.in_order(&[("app", Exiting), ("s1", Term)])?;
    // T16: if the stop of s2 comes first, s2 shows its last code.
    let [app, s2, s1] = exit_codes(&pod, ["app", "s2", "s1"]).await?;
    ensure!((app, s1) == (0, 0) && s2 <= 1, "{app} {s2} {s1}\n{timeline}");
    ensure!(timeline.count("s2", Exiting) == 1, "{timeline}");
    pod.remove().await
}
