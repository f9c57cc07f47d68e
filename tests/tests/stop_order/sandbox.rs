//! The end of the pause container (K13, K16) and the sandbox stop of CRI (K11, F4).

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Term};
use e2e::cri::PodSandboxState;
use e2e::instance::{is_alive, signal};
use e2e::pod::PidNamespace;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};
use tokio::time::Instant;

use crate::support::{
    SOON, TOLERANCE, at_most, exit_codes, finished_at, kill_task, milliseconds, near, seconds, task_pid,
    wait_dead, wait_started,
};

/// A started pod of one sidecar and one main.
async fn pair<'node>(
    node: &'node Containerd,
    pod: Pod,
    s1: Program,
    app: Program,
) -> Result<RunningPod<'node>> {
    let pod = pod.annotate("plan", "s1=sidecar, app=main").container(s1).container(app);
    let mut pod = pod.run(node, Runtime::Podshim).await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    Ok(pod)
}

/// The pause container's pid.
async fn pause_pid(node: &Containerd, pod: &RunningPod<'_>) -> Result<libc::pid_t> {
    task_pid(node, "k8s.io", pod.sandbox()).await?.context("no pause process")
}

/// The path of the pod's network namespace, as this process sees it.
async fn network_namespace(node: &Containerd, pod: &RunningPod<'_>) -> Result<PathBuf> {
    let status = node.cri()?.pod_sandbox_status(pod.sandbox()).await?;
    let info: serde_json::Value = serde_json::from_str(status.info.get("info").context("no info")?)?;
    let namespaces = info["runtimeSpec"]["linux"]["namespaces"].as_array().context("no namespaces")?;
    let path = namespaces.iter().find(|namespace| namespace["type"] == "network").context("no network")?;
    let path = path["path"].as_str().context("no path")?.replacen("/var/run/", "run/", 1);
    Ok(node.root()?.join(path.trim_start_matches('/')))
}

/// K13: a signal to pause stops the pod in order, and pause ends last, so that the containers have their network to the
/// end.
#[tokio::test]
async fn k13_a_signal_to_pause_stops_the_pod_in_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let s1 = Program::new("s1").term_delay(milliseconds(400));
    let app = Program::new("app").term_delay(milliseconds(400));
    let pod = pair(&node, Pod::new("k13"), s1, app).await?;
    let pause = pause_pid(&node, &pod).await?;
    let others =
        [node.cri()?.container_pid(pod.id("s1")?).await?, node.cri()?.container_pid(pod.id("app")?).await?];
    let namespace = network_namespace(&node, &pod).await?;
    kill_task(&node, pod.sandbox(), &[]).await?;
    wait_dead(pause, SOON).await?;
    ensure!(!others.into_iter().any(is_alive), "pause went before its containers:\n{}", pod.timeline()?);
    ensure!(namespace.exists(), "{} is gone before its containers", namespace.display());
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [0, 0], "{}", pod.timeline()?);
    pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
    pod.remove().await
}

/// K13: the budget of such a stop is 2 s: whatever is left then is killed, and pause ends after it.
#[tokio::test]
async fn k13_deaf_containers_are_killed_before_pause() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(
        &node,
        Pod::new("k13-deaf"),
        Program::new("s1").ignores_term(),
        Program::new("app").ignores_term(),
    )
    .await?;
    let pause = pause_pid(&node, &pod).await?;
    let others =
        [node.cri()?.container_pid(pod.id("s1")?).await?, node.cri()?.container_pid(pod.id("app")?).await?];
    kill_task(&node, pod.sandbox(), &[]).await?;
    wait_dead(pause, SOON).await?;
    ensure!(!others.into_iter().any(is_alive), "pause went before its containers:\n{}", pod.timeline()?);
    let (app, s1) = (pod.wait_exited("app", SOON).await?, pod.wait_exited("s1", SOON).await?);
    let timeline = pod.timeline()?;
    let lived = finished_at(&app)?.saturating_sub(timeline.time_of("app", Term)?);
    // T19: a third of it is the sidecar's.
    ensure!(near(lived, milliseconds(1333), TOLERANCE), "app was killed after {lived:?}");
    let lived = finished_at(&s1)?.saturating_sub(timeline.time_of("app", Term)?);
    ensure!(near(lived, seconds(2), TOLERANCE), "s1 was killed after {lived:?}");
    ensure!((app.exit_code, s1.exit_code) == (137, 0), "J2, J3: {app:?} {s1:?}");
    pod.remove().await
}

/// Kills pause from outside and waits until CRI has noticed.
async fn kill_pause(node: &Containerd, pod: &RunningPod<'_>) -> Result<()> {
    signal(pause_pid(node, pod).await?, libc::SIGKILL)?;
    let cri = node.cri()?;
    wait::until("the sandbox to be reported as not ready", SOON, async || {
        let status = cri.pod_sandbox_status(pod.sandbox()).await?.status.context("no status")?;
        Ok((status.state() == PodSandboxState::SandboxNotready).then_some(()))
    })
    .await
}

/// K16: when pause dies by itself, that is published at once, the mains get their stop signal, whatever is left after 2
/// s is killed, and nothing can be created in the pod any more.
#[tokio::test]
async fn k16_the_death_of_pause_stops_the_pod() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(
        &node,
        Pod::new("k16"),
        Program::new("s1").ignores_term(),
        Program::new("app").term_delay(milliseconds(500)),
    )
    .await?;
    let begin = Instant::now();
    kill_pause(&node, &pod).await?;
    let id = format!("late-{}", std::process::id());
    let group = format!("io.kubernetes.cri.sandbox-id={}", pod.sandbox());
    let late = [
        "-n",
        "k8s.io",
        "run",
        "-d",
        "--runtime",
        Runtime::Podshim.runtime_type(),
        "--annotation",
        &group,
        "--annotation",
        "io.kubernetes.cri.container-type=container",
        "podshim.test/busybox:1",
        &id,
        "true",
    ];
    let late = node.ctr().output(&late).await?;
    let is_in_time = begin.elapsed() < seconds(2);
    ensure!(late.exit_code != Some(0), "a container was created in a dead sandbox");
    let codes = exit_codes(&pod, ["app", "s1"]).await?;
    let timeline = pod.timeline()?;
    ensure!(codes == [0, 0], "{codes:?}\n{timeline}");
    timeline.in_order(&[("app", Term), ("app", Exiting), ("s1", Term)])?;
    let lived = finished_at(&pod.status("s1").await?)?.saturating_sub(timeline.time_of("app", Term)?);
    ensure!(near(lived, seconds(2), TOLERANCE), "s1 was killed after {lived:?}\n{timeline}");
    // On a slow machine the create may come after the two seconds, when CRI has deleted all containers and the shim has
    // ended.
    let is_refused_by_shim = late.stderr.contains("sandbox has ended");
    let finds_no_shim = !is_in_time && late.stderr.contains("the pod's shim is gone");
    ensure!(is_refused_by_shim || finds_no_shim, "{late:?}");
    timeline.has_not_restarted("s1")?;
    pod.remove().await
}

/// K16: in a shared pid namespace the kernel has killed all processes; nothing is restarted in it.
#[tokio::test]
async fn k16_a_shared_pid_namespace_dies_with_pause() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = Pod::new("k16-shared").pid_namespace(PidNamespace::Pod);
    let pod = pair(&node, pod, Program::new("s1"), Program::new("app")).await?;
    kill_pause(&node, &pod).await?;
    let codes = exit_codes(&pod, ["app", "s1"]).await?;
    ensure!(codes[0] == 137, "{codes:?}");
    pod.timeline()?.has_not_restarted("s1")?;
    pod.remove().await
}

/// K11, obey (F4): StopPodSandbox kills one after another in any order; no kill waits for another.
#[tokio::test]
async fn k11_a_sandbox_stop_is_quick_in_any_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let s1 = Program::new("s1").ignores_term();
    let pod = pair(&node, Pod::new("k11"), s1, Program::new("app").ignores_term()).await?;
    let begin = Instant::now();
    pod.stop_sandbox().await?;
    // Each kill takes milliseconds, the network's teardown somewhat longer; a kill that waited for another would never
    // return.
    ensure!(at_most(begin.elapsed(), SOON), "the stop took {:?}", begin.elapsed());
    ensure!(exit_codes(&pod, ["app", "s1"]).await? == [137, 137], "{}", pod.timeline()?);
    pod.remove().await
}

/// K13, T11: held containers and those that were never started end with the sandbox, in any order of its kills.
#[tokio::test]
async fn k11_k13_a_sandbox_stop_ends_what_never_ran() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k13-held")
        .annotate("plan", "i1=init, s1=sidecar, app=main, late=main")
        .container(Program::new("i1").ignores_term())
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .container(Program::new("late"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1", "i1"]).await?;
    pod.create("late").await?;
    wait_started(&pod, &["i1"]).await?;
    let begin = Instant::now();
    pod.stop_sandbox().await?;
    ensure!(at_most(begin.elapsed(), SOON), "the stop took {:?}", begin.elapsed());
    let codes = exit_codes(&pod, ["i1", "app"]).await?;
    ensure!(codes == [137, 137], "{codes:?}");
    pod.timeline()?.doesnt_start("app")?;
    pod.remove().await
}

/// K13, R5, T4: a signal to pause while a main is held, a sidecar waits for its restart and another runs: the stop does
/// not wait for programs that will not start.
#[tokio::test]
async fn k13_r5_what_has_no_program_delays_no_other() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("k13-backoff")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s2", "tcp::9;period=200ms;fail=1000")
        .annotate("restart.s2", "always;first=5m;max=5m")
        .container(Program::new("s1"))
        .container(Program::new("s2").runs_for(milliseconds(100)).exits(1))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s2", "s1"]).await?;
    wait_started(&pod, &["s1"]).await?;
    pod.wait_for("s2", Exiting, 1, SOON).await?;
    let pause = pause_pid(&node, &pod).await?;
    kill_task(&node, pod.sandbox(), &[]).await?;
    wait_dead(pause, milliseconds(1800)).await?;
    let codes = exit_codes(&pod, ["app", "s2", "s1"]).await?;
    let timeline = pod.timeline()?;
    ensure!(codes == [143, 0, 0], "{codes:?}\n{timeline}");
    timeline.doesnt_start("app")?;
    ensure!(timeline.count("s2", Exiting) == 1, "{timeline}");
    timeline.before(("s1", Term), ("s1", Exiting))?;
    pod.remove().await
}

/// K13 for a pod without a plan (S1): only pause gets its caller's signal, as under containerd's own shim.
#[tokio::test]
async fn s1_without_a_plan_pause_is_a_container_like_others() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("no-plan").container(Program::new("app")).run(&node, Runtime::Podshim).await?;
    pod.start("app").await?;
    wait_started(&pod, &["app"]).await?;
    kill_pause(&node, &pod).await?;
    wait::quiet_time(seconds(1)).await;
    ensure!(pod.timeline()?.count("app", Term) == 0, "{}", pod.timeline()?);
    pod.remove().await
}
