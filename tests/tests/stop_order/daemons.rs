//! containerd is killed and started again in the middle of a hold and of a stop (N1, N2), and the shim itself is ended
//! (SIGTERM, N3). Tests that kill containerd have an instance of their own.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Signal, Starting, Term};
use e2e::cri::ContainerState;
use e2e::instance::signal;
use e2e::pod::PidNamespace;
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime};

use crate::support::{
    AMPLE, SOON, TOLERANCE, exit_codes, kill_task, milliseconds, seconds, wait_dead, wait_started,
};

/// N1, N2, F11, T3: a restart of containerd ends no hold: a main still waits for its gate, and a sidecar's stop signal
/// for the main's end. When the new containerd repeats the signal, it is still delivered once (K15).
#[tokio::test]
async fn n1_n2_what_is_held_stays_held_without_containerd() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = Pod::new("n1-hold")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s2", "exec:test -e /tmp/open;period=100ms;fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    wait_started(&pod, &["s2"]).await?;
    kill_task(&node, pod.id("s1")?, &[]).await?;
    node.kill().await?;
    node.start_again().await?;
    for name in ["app", "s1", "s2"] {
        let status = pod.status(name).await?;
        ensure!(status.state() == ContainerState::ContainerRunning, "{name}: {status:?}");
    }
    let timeline = pod.timeline()?;
    timeline.doesnt_start("app")?;
    ensure!(timeline.count("s1", Term) == 0, "{timeline}");

    pod.exec("s2", &["touch", "/tmp/open"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("s2", Term), ("s2", Exiting), ("s1", Term), ("s1", Exiting)])?;
    ensure!(timeline.count("s1", Term) == 1, "{timeline}");
    ensure!(exit_codes(&pod, ["app", "s2", "s1"]).await? == [0; 3], "{timeline}");
    pod.remove().await
}

/// N1: a stop that has begun goes on to its end without containerd; no exit is lost.
#[tokio::test]
async fn n1_a_stop_goes_on_without_containerd() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = Pod::new("n1-stop")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .container(Program::new("s1").term_delay(milliseconds(300)).term_exit_code(2))
        .container(Program::new("s2").term_delay(milliseconds(300)))
        .container(Program::new("app").term_delay(seconds(2)).term_exit_code(4))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    wait_started(&pod, &["s1", "s2", "app"]).await?;
    // The sidecars' signals are sent first, as nothing shows when podshim has received and kept them.
    for name in ["s1", "s2"] {
        kill_task(&node, pod.id(name)?, &[]).await?;
    }
    let kill = async {
        pod.wait_for("app", Term, 1, SOON).await?;
        node.kill().await
    };
    let (stop, kill) = tokio::join!(pod.stop("app", AMPLE), kill);
    kill?;
    ensure!(stop.is_err(), "the stop's answer came although containerd was killed");
    pod.wait_for("s1", Exiting, 1, SOON).await?;
    node.start_again().await?;
    let codes = exit_codes(&pod, ["app", "s2", "s1"]).await?;
    let timeline = pod.timeline()?;
    ensure!(codes == [4, 0, 0], "{codes:?}\n{timeline}");
    timeline.in_order(&[
        ("app", Term),
        ("app", Exiting),
        ("s2", Term),
        ("s2", Exiting),
        ("s1", Term),
        ("s1", Exiting),
    ])?;
    pod.remove().await
}

/// N1: restarts and completion need no containerd either.
#[tokio::test]
async fn n1_restarts_and_completion_go_on_without_containerd() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = Pod::new("n1-job")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1").term_exit_code(2))
        .container(Program::new("app").runs_for(seconds(10)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app", "s1"]).await?;
    let sidecar = node.cri()?.container_pid(pod.id("s1")?).await?;
    node.kill().await?;
    signal(sidecar, libc::SIGKILL)?;
    pod.wait_for("s1", Event::Started, 2, SOON).await?;
    pod.wait_for("s1", Exiting, 1, SOON).await?;
    node.start_again().await?;
    let codes = exit_codes(&pod, ["app", "s1"]).await?;
    let timeline = pod.timeline()?;
    ensure!(codes == [0, 0], "{codes:?}\n{timeline}");
    timeline.in_order(&[("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    timeline.within(TOLERANCE, ("app", Exiting), ("s1", Term))?;
    pod.remove().await
}

/// N3: a killed shim's pod is gone within 5 s, plus the time that a busy machine takes to notice the death and to start
/// `delete`.
const GROUP_END: Duration = Duration::from_secs(5 + 3);

/// Waits until no process of the pod runs, except those that `besides` allows.
async fn wait_no_process(pod: &RunningPod<'_>, besides: &str, within: Duration) -> Result<()> {
    let unwanted =
        |line: &str| line.starts_with("process: ") && (besides.is_empty() || !line.contains(besides));
    pod.wait_rid_of("process", within, unwanted).await
}

/// DESIGN §4: SIGTERM to the shim stops the pod in order, pause last, and never leaves a container behind.
#[tokio::test]
async fn sigterm_to_the_shim_stops_the_pod_in_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("shim-term")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").term_delay(milliseconds(300)))
        .container(Program::new("app").term_delay(seconds(2)))
        .container(Program::new("guest"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app", "guest"]).await?;
    wait_started(&pod, &["s1", "app", "guest"]).await?;
    signal(pod.shim_pid()?, libc::SIGTERM)?;
    wait_no_process(&pod, "containerd-shim-podshim-v2", SOON).await?;
    ensure!(exit_codes(&pod, ["app", "s1", "guest"]).await? == [0; 3], "{}", pod.timeline()?);
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    // If they were stopped one after the other, the signals would be 2 s apart.
    timeline.within(TOLERANCE, ("app", Term), ("guest", Term))?;
    ensure!(timeline.count("s1", Starting) == 1 && timeline.count("s1", Signal) == 0, "{timeline}");
    pod.remove().await
}

/// N3: a killed shim leaves no process: `delete` ends the pod's containers, in order if they end quickly.
#[tokio::test]
async fn n3_n10_a_killed_shim_leaves_no_process() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("shim-kill")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").leaves_child())
        .container(Program::new("app").term_delay(milliseconds(300)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let shim = pod.shim_pid()?;
    signal(shim, libc::SIGKILL)?;
    wait_dead(shim, SOON).await?;
    wait_no_process(&pod, "", GROUP_END).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("s1", Term)])?;
    for name in ["app", "s1"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.remove().await
}

/// N3, N10: the same for containers that ignore their stop signal: the whole pod is gone within 5 s.
#[tokio::test]
async fn n3_a_killed_shim_leaves_no_deaf_process() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("shim-kill-deaf")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").ignores_term())
        .container(Program::new("app").ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    signal(pod.shim_pid()?, libc::SIGKILL)?;
    wait_no_process(&pod, "", GROUP_END).await?;
    for name in ["app", "s1"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.remove().await
}

/// N3: a held process, one outside the plan and one that outlives its container's first process end with the rest.
#[tokio::test]
async fn n3_a_killed_shim_leaves_no_held_process() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("shim-kill-held")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "tcp::9;period=200ms;fail=1000")
        .container(Program::new("s1").leaves_child())
        .container(Program::new("app"))
        .container(Program::new("guest"))
        .pid_namespace(PidNamespace::Pod)
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "guest"]).await?;
    wait_started(&pod, &["s1", "guest"]).await?;
    signal(pod.shim_pid()?, libc::SIGKILL)?;
    wait_no_process(&pod, "", GROUP_END).await?;
    for name in ["app", "s1", "guest"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.timeline()?.doesnt_start("app")?;
    pod.remove().await
}

/// T5: the stop that SIGTERM to the shim begins has the pod's own budget, also for containers that ignore it.
#[tokio::test]
async fn sigterm_to_the_shim_ends_deaf_containers_within_the_grace() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("shim-term-deaf")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("grace", "1s")
        .container(Program::new("s1").ignores_term())
        .container(Program::new("app").ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    signal(pod.shim_pid()?, libc::SIGTERM)?;
    wait_no_process(&pod, "containerd-shim-podshim-v2", SOON).await?;
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [137, 0], "{}", pod.timeline()?);
    let timeline = pod.timeline()?;
    // T19: a third of the grace is the sidecar's.
    timeline.distance(("app", Term), ("s1", Term), milliseconds(667), TOLERANCE)?;
    pod.remove().await
}

/// SIGTERM to the shim of a pod without a plan: every container gets its stop signal, pause ends last.
#[tokio::test]
async fn sigterm_to_the_shim_of_a_pod_without_a_plan_leaves_nothing() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod =
        Pod::new("shim-term-bare").container(Program::new("app")).run(&node, Runtime::Podshim).await?;
    pod.start("app").await?;
    wait_started(&pod, &["app"]).await?;
    signal(pod.shim_pid()?, libc::SIGTERM)?;
    wait_no_process(&pod, "containerd-shim-podshim-v2", SOON).await?;
    pod.wait_exited("app", SOON).await?;
    pod.timeline()?.before(("app", Term), ("app", Exiting))?;
    pod.remove().await
}
