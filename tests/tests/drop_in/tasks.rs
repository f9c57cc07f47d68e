//! The tasks of a pod without podshim annotations (S1, passthrough): the same test bodies run on containerd's own shim and
//! on podshim, and must pass on both.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cri::ContainerState;
use e2e::durations::{SOON, TOLERANCE};
use e2e::instance::signal;
use e2e::pod::PidNamespace;
use e2e::{Containerd, Event, Pod, Program, Runtime, wait};

on_both_runtimes!(
    exit_codes_reach_the_caller,
    stop_signals_reach_every_container_at_once,
    a_deaf_container_is_killed_after_its_timeout,
    exec_runs_in_the_container,
    output_goes_to_the_log,
    a_container_can_be_created_again,
    a_process_killed_from_outside_is_reported,
    an_oom_kill_is_reported_as_such,
    a_shared_pid_namespace_has_pause_as_its_first_process,
    stats_show_memory,
    a_stopped_sandbox_ends_its_containers,
    a_created_container_can_be_removed_unstarted,
    the_pod_lives_through_a_containerd_restart,
);

async fn exit_codes_reach_the_caller(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("codes")
        .container(Program::new("good").exits(0))
        .container(Program::new("bad").runs_for(Duration::from_millis(300)).exits(3))
        .run(&node, runtime)
        .await?;
    pod.start_all(&["good", "bad"]).await?;
    let good = pod.wait_exited("good", SOON).await?;
    let bad = pod.wait_exited("bad", SOON).await?;
    let names = node.cri()?.list_containers(pod.sandbox()).await?.len();
    ensure!(names == 2, "{names} containers are listed");
    ensure!((good.exit_code, good.reason.as_str()) == (0, "Completed"), "{good:?}");
    ensure!((bad.exit_code, bad.reason.as_str()) == (3, "Error"), "{bad:?}");
    ensure!(bad.finished_at > bad.started_at, "{bad:?}");
    pod.remove().await
}

async fn stop_signals_reach_every_container_at_once(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("stop")
        .container(Program::new("one").term_delay(Duration::from_secs(2)).term_exit_code(7))
        .container(Program::new("two"))
        .run(&node, runtime)
        .await?;
    pod.start_all(&["one", "two"]).await?;
    for name in ["one", "two"] {
        pod.wait_for(name, Event::Started, 1, SOON).await?;
    }
    pod.stop_all_at_once(Duration::from_secs(30)).await?;
    let timeline = pod.timeline()?;
    // If they were stopped one after the other, the signals would be 2 s apart.
    timeline.within(TOLERANCE, ("one", Event::Term), ("two", Event::Term))?;
    timeline.exits_before("two", "one")?;
    ensure!(pod.status("one").await?.exit_code == 7, "{timeline}");
    ensure!(pod.status("two").await?.exit_code == 0, "{timeline}");
    pod.remove().await
}

async fn a_deaf_container_is_killed_after_its_timeout(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("deaf")
        .container(Program::new("app").ignores_term().leaves_child())
        .run(&node, runtime)
        .await?;
    pod.start("app").await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    pod.stop("app", Duration::from_secs(1)).await?;
    let status = pod.status("app").await?;
    ensure!(status.exit_code == 137, "{status:?}");
    let timeline = pod.timeline()?;
    ensure!(
        timeline.count("app", Event::Term) == 1 && timeline.count("app", Event::Exiting) == 0,
        "{timeline}"
    );
    let stopped = Duration::from_nanos(u64::try_from(status.finished_at)?);
    let waited = stopped.saturating_sub(timeline.time_of("app", Event::Term)?);
    ensure!(waited >= Duration::from_millis(900), "killed after {waited:?}, not after its second");
    pod.remove().await
}

async fn exec_runs_in_the_container(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("exec").container(Program::new("app")).run(&node, runtime).await?;
    pod.start("app").await?;
    let output = pod.exec("app", &["sh", "-c", "echo out; echo err >&2; exit 5"]).await?;
    ensure!(
        (output.stdout.as_str(), output.stderr.as_str(), output.exit_code) == ("out\n", "err\n", 5),
        "{output:?}"
    );
    // The exec is in the container's pid namespace: the container's program is pid 1 there.
    let output = pod.exec("app", &["cat", "/proc/1/comm"]).await?;
    ensure!(output.stdout == "pod-member\n", "{output:?}");
    pod.remove().await
}

async fn output_goes_to_the_log(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("output")
        .container(Program::new("app").prints("a line of ours").exits(0))
        .run(&node, runtime)
        .await?;
    pod.start("app").await?;
    pod.wait_exited("app", SOON).await?;
    let output = pod.wait_for_output("app", " app Exiting ").await?;
    let ours = output.lines().filter(|line| line.ends_with(" stdout F a line of ours")).count();
    // The whole output and nothing more: Starting, Started, the line, Exiting.
    ensure!(ours == 1 && output.lines().count() == 4, "{output}");
    pod.remove().await
}

async fn a_container_can_be_created_again(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod =
        Pod::new("again").container(Program::new("app").exits_each(&[1, 0])).run(&node, runtime).await?;
    for code in [1, 0] {
        pod.start("app").await?;
        let status = pod.wait_exited("app", SOON).await?;
        ensure!(status.exit_code == code, "{status:?}");
    }
    pod.timeline()?.has_restarted("app")?;
    pod.remove().await
}

async fn a_process_killed_from_outside_is_reported(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("outside").container(Program::new("app")).run(&node, runtime).await?;
    pod.start("app").await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    let pid = node.cri()?.container_pid(pod.id("app")?).await?;
    signal(pid, libc::SIGHUP)?;
    pod.wait_for("app", Event::Signal, 1, SOON).await?;
    signal(pid, libc::SIGKILL)?;
    let status = pod.wait_exited("app", SOON).await?;
    ensure!((status.exit_code, status.reason.as_str()) == (137, "Error"), "{status:?}");
    pod.remove().await
}

async fn an_oom_kill_is_reported_as_such(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let hungry = Program::new("app").memory_limit(16 << 20).allocates_mib(64);
    let mut pod = Pod::new("oom").container(hungry).run(&node, runtime).await?;
    pod.start("app").await?;
    let status = pod.wait_exited("app", SOON).await?;
    ensure!(status.exit_code == 137, "{status:?}");
    // containerd 1.6's own shim watches for OOM kills only after the start and can miss one as early as this; podshim
    // watches from the create on. The CRI takes the reason from an event that may come after the exit.
    if runtime == Runtime::Podshim {
        wait::until("the reason OOMKilled", SOON, async || {
            Ok((pod.status("app").await?.reason == "OOMKilled").then_some(()))
        })
        .await?;
    }
    pod.remove().await
}

async fn a_shared_pid_namespace_has_pause_as_its_first_process(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = Pod::new("shared").pid_namespace(PidNamespace::Pod);
    let mut pod = pod.container(Program::new("app").leaves_child()).run(&node, runtime).await?;
    pod.start("app").await?;
    let output = pod.exec("app", &["cat", "/proc/1/comm"]).await?;
    ensure!(output.stdout == "pause\n", "{output:?}");
    // The child that it leaves has a new parent in the namespace, and must end with the container all the same.
    pod.stop("app", Duration::from_secs(10)).await?;
    pod.remove().await
}

async fn stats_show_memory(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod =
        Pod::new("stats").container(Program::new("app").allocates_mib(16)).run(&node, runtime).await?;
    pod.start("app").await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    let cri = node.cri()?;
    let id = pod.id("app")?;
    e2e::wait::until("16 MiB in the container's stats", SOON, async || {
        let memory = cri.container_stats(id).await?.memory.and_then(|memory| memory.working_set_bytes);
        Ok(memory.filter(|bytes| bytes.value >= 16 << 20))
    })
    .await?;
    pod.remove().await
}

async fn a_stopped_sandbox_ends_its_containers(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("sandbox").container(Program::new("app")).run(&node, runtime).await?;
    pod.start("app").await?;
    pod.stop_sandbox().await?;
    let status = pod.status("app").await?;
    ensure!(status.state() == ContainerState::ContainerExited && status.exit_code == 137, "{status:?}");
    pod.remove().await
}

async fn a_created_container_can_be_removed_unstarted(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("unstarted").container(Program::new("app")).run(&node, runtime).await?;
    pod.create("app").await?;
    ensure!(pod.status("app").await?.state() == ContainerState::ContainerCreated, "not created");
    pod.remove().await
}

/// N1: the shim and its containers do not need containerd. Uses a containerd of its own, because the test kills it.
async fn the_pod_lives_through_a_containerd_restart(runtime: Runtime) -> Result<()> {
    let node = Containerd::start().await?;
    let mut pod = Pod::new("restart")
        .container(Program::new("stays").term_exit_code(4))
        .container(Program::new("ends").runs_for(Duration::from_secs(1)).exits(6))
        .run(&node, runtime)
        .await?;
    pod.start_all(&["stays", "ends"]).await?;
    node.kill().await?;
    pod.wait_for("ends", Event::Exiting, 1, SOON).await?;
    node.start_again().await?;
    let ended = pod.wait_exited("ends", SOON).await?;
    // N1, F13: a restarting containerd from 1.7 on deletes a task without pids, and containerd's own shim reports none
    // after an exit.
    let lost = runtime == Runtime::Runc && node.version()? >= (1, 7);
    ensure!(ended.exit_code == if lost { 255 } else { 6 }, "after containerd was away: {ended:?}");
    let stays = pod.status("stays").await?;
    ensure!(stays.state() == ContainerState::ContainerRunning, "{stays:?}");
    pod.stop("stays", Duration::from_secs(10)).await?;
    ensure!(pod.status("stays").await?.exit_code == 4, "{}", pod.timeline()?);
    pod.remove().await
}
