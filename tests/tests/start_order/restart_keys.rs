//! `restart.<c>` (R4, R7, R13, R15): whether podshim or the caller restarts a container, how soon and how often; and what the
//! caller sees.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, Runtime};

use crate::support::{
    SOON, are_running, exit_with, milliseconds, ready_in_run, seconds, starts, task, wait_started,
};

/// R4, S6: after two restarts with its own delays the third exit of a sidecar is shown with its real code. Its caller
/// recreates it; the main is not affected.
#[tokio::test]
async fn r4_s6_after_its_limit_a_sidecar_is_its_callers() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("limit")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart.s1", "always;first=1s;base=2s;limit=2")
        .container(Program::new("s1").runs_for(milliseconds(200)).exits(3))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    exit_with(&pod, &[("s1", 3)]).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("s1", Starting) == 3, "{timeline}");
    let runs = starts(&timeline, "s1");
    let gaps = [runs[1] - runs[0], runs[2] - runs[1]];
    ensure!(gaps[0] >= seconds(1) && gaps[1] >= seconds(2), "the gaps are {gaps:?} in\n{timeline}");
    pod.start("s1").await?;
    let timeline = pod.wait_for("s1", Starting, 4, SOON).await?;
    timeline.has_not_restarted("app")?;
    are_running(&pod, &["s1", "app"]).await?;
    pod.remove().await
}

/// R4, J1: under Never no caller recreates the sidecar: the main starts without it, and the pod completes.
#[tokio::test]
async fn r4_j1_under_never_the_pod_goes_on_without_a_sidecar() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("limit-never")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("ready.s1", "exec:false;period=100ms")
        .annotate("restart.s1", "on-failure;limit=1")
        .container(Program::new("s1").runs_for(milliseconds(300)).exits(4))
        .container(Program::new("app").runs_for(milliseconds(300)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    exit_with(&pod, &[("s1", 4), ("app", 0)]).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("s1", Exiting) == 2, "{timeline}");
    let last = timeline.of("s1", Exiting).last().map(|entry| entry.at);
    ensure!(last <= timeline.of("app", Starting).next().map(|entry| entry.at), "{timeline}");
    pod.remove().await
}

/// R15, R11, S6: each exit of a visible sidecar is shown at once, with 0 or another code. Its caller recreates it, not
/// in place: the new one has a fresh root file system.
#[tokio::test]
async fn r15_r11_each_exit_of_a_visible_sidecar_is_its_callers() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("visible")
        .annotate("plan", "s1=sidecar, app=main, late=main")
        .annotate("restart.s1", "visible")
        .annotate("ready.s1", &ready_in_run("s1", 1, "period=100ms"))
        .container(
            Program::new("s1")
                .begins_with_script("test ! -e /left || echo left-behind; touch /left")
                .runs_for_each(&[milliseconds(10), seconds(600)])
                .runs_from("/pod/end-s1")
                .exits_each(&[0]),
        )
        .container(Program::new("app"))
        .container(Program::new("late"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    std::fs::write(pod.directory().join("end-s1"), "")?;
    exit_with(&pod, &[("s1", 0)]).await?;
    pod.timeline()?.has_not_restarted("s1")?;
    pod.start("s1").await?;
    let timeline = pod.wait_for("s1", Starting, 2, SOON).await?;
    timeline.has_not_restarted("app")?;
    ensure!(!pod.output("s1")?.contains("left-behind"), "{}", pod.output("s1")?);
    // U3: the gate was open once.
    pod.start("late").await?;
    wait_started(&pod, &["late"]).await?;
    pod.remove().await
}

/// I2: with `never` the first failure of an init fails the pod, also under a policy that retries inits.
#[tokio::test]
async fn i2_r4_an_init_that_is_not_to_be_tried_again_fails_the_pod() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("init-never")
        .annotate("plan", "s1=sidecar, i1=init, app=main")
        .annotate("restart-policy", "OnFailure")
        .annotate("restart.i1", "never")
        .container(Program::new("s1"))
        .container(Program::new("i1").runs_for(milliseconds(500)).exits(2))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "i1", "app"]).await?;
    // J10: the pod goes on, so its caller must recreate the sidecar.
    exit_with(&pod, &[("i1", 2), ("app", 125), ("s1", 143)]).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("i1", Exiting), ("s1", Term)])?;
    timeline.doesnt_start("app")?;
    pod.remove().await
}

/// R7, J1: a main is restarted in place until it succeeds. Its caller sees one container, and the job completes with
/// its success.
#[tokio::test]
async fn r7_j1_a_main_is_restarted_until_it_succeeds() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("main-on-failure")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("restart.app", "on-failure;base=200ms")
        .container(Program::new("s1"))
        .container(Program::new("app").runs_for(milliseconds(300)).exits_each(&[1, 5, 0]))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    exit_with(&pod, &[("app", 0), ("s1", 0)]).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("app", Exiting) == 3, "{timeline}");
    timeline.has_not_restarted("s1")?;
    pod.remove().await
}

/// R7, T12: a main that its caller stops is not restarted, even with `restart.<c>=always`.
#[tokio::test]
async fn r7_t12_a_main_that_its_caller_stops_is_not_restarted() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("main-always")
        .annotate("plan", "s1=sidecar, app=main, web=main")
        .annotate("restart.app", "always")
        .container(Program::new("s1"))
        .container(Program::new("app").runs_for_each(&[milliseconds(300), seconds(600)]).exits(0))
        .container(Program::new("web"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app", "web"]).await?;
    pod.wait_for("app", Started, 2, SOON).await?;
    pod.stop("app", seconds(10)).await?;
    exit_with(&pod, &[("app", 0)]).await?;
    ensure!(pod.timeline()?.count("app", Starting) == 2, "{}", pod.timeline()?);
    are_running(&pod, &["s1", "web"]).await?;
    pod.remove().await
}

/// R13, J1: a main and an init are restarted in place after the listed codes only. The first other code is shown, and
/// completes the job.
#[tokio::test]
async fn r13_j1_codes_decide_what_is_restarted() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("codes")
        .annotate("plan", "s1=sidecar, i1=init, app=main")
        .annotate("restart-policy", "Never")
        .annotate("restart.i1", "on-failure;not=1-9;base=200ms")
        .annotate("restart.app", "on-failure;codes=42,100-110;base=200ms")
        .container(Program::new("s1"))
        .container(Program::new("i1").runs_for(milliseconds(300)).exits_each(&[75, 0]))
        .container(Program::new("app").runs_for(milliseconds(300)).exits_each(&[42, 105, 3]))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "i1", "app"]).await?;
    exit_with(&pod, &[("i1", 0), ("app", 3), ("s1", 0)]).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("i1", Exiting) == 2 && timeline.count("app", Exiting) == 3, "{timeline}");
    timeline.has_not_restarted("s1")?;
    pod.remove().await
}

/// R13: a sidecar that a signal ends has exited with 128 + its number, and comes back with 137. With another code its
/// exit is shown, and its caller may recreate it (S6).
#[tokio::test]
async fn r13_s6_signals_are_codes_too() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("codes-of-signals")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart.s1", "on-failure;codes=137")
        .container(
            Program::new("s1").runs_for_each(&[seconds(600), milliseconds(500), seconds(600)]).exits(139),
        )
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    signal(task(&node, pod.id("s1")?).await?.pid, libc::SIGKILL)?;
    pod.wait_for("s1", Started, 2, SOON).await?;
    exit_with(&pod, &[("s1", 139)]).await?;
    pod.start("s1").await?;
    let timeline = pod.wait_for("s1", Starting, 3, SOON).await?;
    timeline.has_not_restarted("app")?;
    pod.remove().await
}

/// R13, I2: an init that fails with another code fails the pod, also under a policy that retries inits.
#[tokio::test]
async fn r13_i2_another_code_of_an_init_fails_the_pod() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("codes-of-init")
        .annotate("plan", "i1=init, app=main")
        .annotate("restart-policy", "OnFailure")
        .annotate("restart.i1", "on-failure;codes=75")
        .container(Program::new("i1").runs_for(milliseconds(300)).exits_each(&[75, 2]))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["i1", "app"]).await?;
    exit_with(&pod, &[("i1", 2), ("app", 125)]).await?;
    let timeline = pod.timeline()?;
    ensure!(timeline.count("i1", Exiting) == 2, "{timeline}");
    timeline.doesnt_start("app")?;
    pod.remove().await
}
