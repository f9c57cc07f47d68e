//! The plan as a whole (S-rules): one list in order, mains together, roles that outlast a container, containers that
//! are not in it.

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::cri::ContainerState;
use e2e::instance::signal;
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime, Timeline, wait};

use crate::support::{
    AMPLE, SOON, TOLERANCE, are_running, at_most, exit_with, lines_of_podshim, message, milliseconds,
    ready_in_run, seconds, wait_started,
};

/// S2, S7: runs the choreography of ks-E1 to ks-E8 in a sandbox of its own.
async fn choreography(node: &Containerd) -> Result<RunningPod<'_>> {
    let init = |name| Program::new(name).runs_for(milliseconds(300)).exits(0);
    let mut pod = Pod::new("e1")
        .annotate("plan", "i1=init, s1=sidecar, i2=init, s2=sidecar, i3=init, regular=main")
        .annotate("restart-policy", "Never")
        .annotate("ready.s1", &ready_in_run("s1", 1, "period=100ms"))
        .annotate("ready.s2", &ready_in_run("s2", 1, "period=100ms"))
        .container(init("i1"))
        .container(Program::new("s1"))
        .container(init("i2"))
        .container(Program::new("s2"))
        .container(init("i3"))
        .container(init("regular"))
        .run(node, Runtime::Podshim)
        .await?;
    // The order of creation must not matter (F1, U7).
    pod.start_all(&["regular", "s2", "i3", "i1", "s1", "i2"]).await?;
    exit_with(&pod, &[("i1", 0), ("i2", 0), ("i3", 0), ("regular", 0), ("s2", 0), ("s1", 0)]).await?;
    Ok(pod)
}

fn check_choreography(timeline: &Timeline) -> Result<()> {
    timeline.in_order(&[
        ("i1", Exiting),
        ("s1", Starting),
        ("i2", Starting),
        ("i2", Exiting),
        ("s2", Starting),
        ("i3", Starting),
        ("i3", Exiting),
        ("regular", Starting),
        ("regular", Exiting),
        ("s2", Term),
        ("s1", Term),
    ])?;
    for (left, right) in [("s1", "i2"), ("s1", "i3"), ("s2", "i3"), ("s1", "regular"), ("s2", "regular")] {
        timeline.run_together(left, right)?;
    }
    for name in ["i1", "s1", "i2", "s2", "i3", "regular"] {
        timeline.has_not_restarted(name)?;
    }
    Ok(())
}

/// ks-E1 to ks-E8, S2, J1: inits and sidecars start in the order of the one list; the pod completes by itself, with 0
/// everywhere.
#[tokio::test]
async fn ks_e1_e8_inits_and_sidecars_start_in_the_order_of_one_list() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = choreography(&node).await?;
    check_choreography(&pod.timeline()?)?;
    pod.remove().await
}

/// S7: a new sandbox runs everything again, in the same order.
#[tokio::test]
async fn s7_a_new_sandbox_runs_everything_again() -> Result<()> {
    let node = Containerd::connect().await?;
    for _ in 0..2 {
        let pod = choreography(&node).await?;
        check_choreography(&pod.timeline()?)?;
        pod.remove().await?;
    }
    Ok(())
}

/// S3: when the gate opens, all mains start at once. Their processes already exist: the rest of a start takes
/// milliseconds, even when many pods share two cores.
#[tokio::test]
async fn s3_mains_are_released_together() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("s3")
        .annotate("plan", "s1=sidecar, a=main, b=main, c=main")
        .annotate("ready.s1", "tcp::8080;period=100ms")
        .container(Program::new("s1").listens(8080, seconds(2)))
        .container(Program::new("a").start_delay(seconds(2)))
        .container(Program::new("b").start_delay(seconds(2)))
        .container(Program::new("c").start_delay(seconds(2)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["a", "b", "c", "s1"]).await?;
    let timeline = wait_started(&pod, &["a", "b", "c"]).await?;
    timeline.distance(("s1", Starting), ("a", Starting), seconds(2), TOLERANCE)?;
    for (left, right) in [("a", "b"), ("b", "c"), ("a", "c")] {
        // Each takes 2 s to start: if one waited for another, their starts would be 2 s apart.
        timeline.within(TOLERANCE, (left, Starting), (right, Starting))?;
    }
    pod.remove().await
}

/// S6: a recreated main does not wait for a gate that was open, even while the sidecar is down.
#[tokio::test]
async fn s6_a_main_created_again_does_not_wait() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("s6")
        .annotate("plan", "s1=sidecar, app=main")
        // Down for longer than this test takes.
        .annotate("restart.s1", "always;first=5m;max=5m")
        .container(Program::new("s1").runs_for(seconds(2)).exits(1))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.wait_for("s1", Exiting, 1, SOON).await?;
    signal(node.cri()?.container_pid(pod.id("app")?).await?, libc::SIGKILL)?;
    exit_with(&pod, &[("app", 137)]).await?;
    pod.start("app").await?;
    let timeline = pod.wait_for("app", Started, 2, SOON).await?;
    ensure!(timeline.count("s1", Starting) == 1, "s1 was to be down when app came back:\n{timeline}");
    pod.remove().await
}

/// S8: a container that is not in the plan is never held, whether it comes before all others (a kubelet's own init
/// container) or while a main is held.
#[tokio::test]
async fn s8_what_is_not_in_the_plan_is_not_held() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("s8")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("ready.proxy", &ready_in_run("proxy", 1, "period=100ms"))
        .container(Program::new("kinit").exits(0))
        .container(Program::new("extra").exits(3))
        .container(Program::new("proxy"))
        .container(Program::new("app").runs_for(seconds(1)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("kinit").await?;
    exit_with(&pod, &[("kinit", 0)]).await?;
    pod.start_all(&["app", "extra"]).await?;
    exit_with(&pod, &[("extra", 3)]).await?;
    are_running(&pod, &["app"]).await?;
    pod.timeline()?.doesnt_start("app")?;
    pod.start("proxy").await?;
    exit_with(&pod, &[("app", 0), ("proxy", 0)]).await?;
    pod.timeline()?.in_order(&[
        ("kinit", Exiting),
        ("extra", Exiting),
        ("proxy", Starting),
        ("app", Starting),
        ("app", Exiting),
        ("proxy", Term),
    ])?;
    pod.remove().await
}

/// S8: `*=main` makes all other containers mains, but never one of `kubectl debug`, which must start in a stuck pod.
#[tokio::test]
async fn s8_all_others_are_mains_but_not_an_ephemeral_one() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("s8-others")
        .annotate("plan", "proxy=sidecar, *=main")
        .annotate("ready.proxy", &ready_in_run("proxy", 1, "period=100ms"))
        .container(Program::new("proxy"))
        .container(Program::new("app"))
        .container(Program::new("debugger-x7k2p"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "debugger-x7k2p"]).await?;
    wait_started(&pod, &["debugger-x7k2p"]).await?;
    wait::quiet_time(seconds(1)).await;
    pod.timeline()?.doesnt_start("app")?;
    pod.start("proxy").await?;
    wait_started(&pod, &["app"]).await?.before(("proxy", Starting), ("app", Starting))?;
    pod.remove().await
}

/// S10, S11: two injectors and an init, each with its own role, created in the wrong order. The init runs first, then the
/// sidecars by name, then what has no role; the stop is the reverse.
#[tokio::test]
async fn s10_s11_roles_written_one_by_one_are_a_plan() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("s10")
        .annotate("role.b-log", "sidecar")
        .annotate("role.a-mesh", "sidecar")
        .annotate("role.z-setup", "init")
        .annotate("ready.a-mesh", &ready_in_run("a-mesh", 1, "period=100ms"))
        .container(Program::new("z-setup").exits(0))
        .container(Program::new("a-mesh"))
        .container(Program::new("b-log"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "b-log", "a-mesh", "z-setup"]).await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.in_order(&[
        ("z-setup", Exiting),
        ("a-mesh", Starting),
        ("b-log", Starting),
        ("app", Starting),
    ])?;
    pod.stop_all_at_once(AMPLE).await?;
    pod.timeline()?.in_order(&[("app", Exiting), ("b-log", Exiting), ("a-mesh", Term)])?;
    pod.remove().await
}

/// S9: a kubelet that keeps the order itself finds every gate open: nothing is held, and the program has started when
/// Start returns.
#[tokio::test]
async fn s9_an_aware_kubelet_waits_for_nothing() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("s9")
        .annotate("plan", "s1=sidecar, i1=init, app=main")
        .container(Program::new("s1"))
        .container(Program::new("i1").exits(0))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("s1").await?;
    wait_started(&pod, &["s1"]).await?;
    pod.start("i1").await?;
    exit_with(&pod, &[("i1", 0)]).await?;
    pod.start("app").await?;
    // A hold would show on stderr after a second (U7).
    wait::quiet_time(milliseconds(1500)).await;
    for name in ["s1", "i1", "app"] {
        let output = pod.output(name)?;
        ensure!(lines_of_podshim(&output).is_empty(), "{name} was held:\n{output}");
    }
    let accepted = pod.status("app").await?.started_at;
    let accepted = std::time::Duration::from_nanos(accepted.try_into()?);
    let began = pod.timeline()?.time_of("app", Event::Starting)?;
    ensure!(at_most(began.abs_diff(accepted), TOLERANCE), "app ran at {began:?}, started at {accepted:?}");
    pod.remove().await
}

/// 11.4: a planned name cannot be created again before the older container of that name has ended.
#[tokio::test]
async fn s5_a_planned_name_in_use_is_refused() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("s5-name")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    let before = wait_started(&pod, &["s1", "app"]).await?;
    let older = pod.id("app")?.to_owned();
    // The CRI creates the task only at StartContainer, so that call gets the shim's answer.
    let error = message(&pod.start("app").await.err().context("a second app was started")?);
    ensure!(error.contains("\"app\"") && error.contains(&older), "{error}");
    ensure!(pod.timeline()? == before, "{}", pod.timeline()?);
    let status = node.cri()?.container_status(&older).await?;
    ensure!(status.state() == ContainerState::ContainerRunning, "{status:?}");
    pod.remove().await
}
