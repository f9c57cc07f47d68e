//! Traps about ends: of shims, none of which may be left, and of pods that are ended in odd ways.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Term};
use e2e::instance::signal;
use e2e::{Containerd, Event, Footprint, Pod, Program, Runtime, wait};

use e2e::durations::SOON;
use e2e::task::{Task, shim_pid, unique};

/// Pods of the churn, five of them at a time.
const PODS: usize = 50;

/// Runs, stops and removes a pod as a kubelet does; checks that nothing of it is left, not even its shim.
async fn live_and_die(node: &Containerd) -> Result<()> {
    let mut pod = Pod::new("trap14")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy"))
        .container(Program::new("app"))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    // The first process of a pid namespace ignores signals for which it has no handler yet.
    for name in ["app", "proxy"] {
        pod.wait_for(name, Event::Started, 1, SOON).await?;
    }
    let shim = shim_pid(&pod.leftovers()?)?;
    pod.stop_all_at_once(Duration::from_secs(30)).await?;
    pod.remove().await?;
    ensure!(!e2e::instance::is_alive(shim), "the shim {shim} is left");
    Ok(())
}

/// Traps 13 and 14: pods that come and go leave no shim, on any version of containerd, with `SandboxID` grouping (2.x)
/// and with a `start` for each container.
#[tokio::test]
async fn trap_14_fifty_pods_leave_no_shim() -> Result<()> {
    let node = Containerd::connect().await?;
    let lane = async || {
        for _ in 0..PODS / 5 {
            live_and_die(&node).await?;
        }
        anyhow::Ok(())
    };
    tokio::try_join!(lane(), lane(), lane(), lane(), lane()).map(drop)
}

/// Trap 18: the socket is removed with the shim, whether that ends in order, by SIGKILL, or by a signal that it
/// handles.
#[tokio::test]
async fn trap_18_the_socket_goes_with_its_shim() -> Result<()> {
    let node = Containerd::connect().await?;
    for end in [None, Some(libc::SIGKILL), Some(libc::SIGTERM), Some(libc::SIGINT)] {
        let program = ["/bin/pod-member", "--name", "x"];
        let task = Task::run(&node, "trap18", &[], &program).await?;
        let is_socket = |line: &String| line.contains("/run/containerd/s/");
        ensure!(task.leftovers()?.iter().any(is_socket), "the shim has no socket");
        if let Some(number) = end {
            signal(task.shim()?, number)?;
            wait::until(&format!("the socket to go after signal {number}"), SOON, async || {
                Ok((!task.leftovers()?.iter().any(is_socket)).then_some(()))
            })
            .await?;
        }
        task.remove().await?;
    }
    Ok(())
}

/// Trap 22: CRI sends the stop signal once per container; a second StopContainer only waits. The first signal, kept for
/// the sidecar's turn, is not lost when its caller goes away.
#[tokio::test]
async fn trap_22_a_second_stop_finds_the_first_signal_delivered() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("trap22")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy").term_exit_code(3))
        .container(Program::new("app").term_delay(Duration::from_secs(3)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    // The first caller goes away while it waits, like a restarted kubelet.
    for name in ["proxy", "app"] {
        let gone =
            tokio::time::timeout(Duration::from_secs(1), pod.stop(name, Duration::from_secs(60))).await;
        ensure!(gone.is_err(), "{name} was stopped at once: {}", pod.timeline()?);
    }
    pod.stop_all_at_once(Duration::from_secs(60)).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!(timeline.count("app", Term) == 1 && timeline.count("proxy", Term) == 1, "{timeline}");
    pod.remove().await
}

/// Trap 23: containerd leaves a pod's containers running when its pause is killed; with a plan podshim ends them, in
/// order (K16).
#[tokio::test]
async fn trap_23_a_planned_pod_ends_with_its_pause() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("trap23")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy"))
        .container(Program::new("app").term_delay(Duration::from_millis(300)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "app"]).await?;
    for name in ["proxy", "app"] {
        pod.wait_for(name, Event::Started, 1, SOON).await?;
    }
    node.ctr().run(&["-n", "k8s.io", "task", "kill", "-s", "KILL", pod.sandbox()]).await?;
    for name in ["app", "proxy"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    pod.remove().await
}

/// Trap 26: a runtime named by its path. After a restart containerd still finds the binary for `delete`: a killed
/// shim's container does not run on without a shim, and nothing is left.
#[tokio::test]
async fn trap_26_a_runtime_named_by_path_is_found_again_after_a_restart() -> Result<()> {
    let node = Containerd::start().await?;
    let binaries = std::fs::read_to_string(node.directory().join("bin"))?;
    let binary = format!("{}/containerd-shim-podshim-v2", binaries.trim());
    let task = Task::run(&node, "trap26", &["--runtime", &binary], &["sleep", "600"]).await?;
    let pid = task.wait_status("RUNNING").await?;
    node.kill().await?;
    node.start_again().await?;
    ensure!(task.wait_status("RUNNING").await? == pid, "another process");
    signal(task.shim()?, libc::SIGKILL)?;
    wait::until("the container to end with its shim", SOON, async || {
        Ok((!e2e::instance::is_alive(pid)).then_some(()))
    })
    .await?;
    task.remove().await
}

/// Trap 13: `start` gives every container of a pod the same shim, which stays until the last of them is deleted, in any
/// order. The Shutdown after each Delete must not end it, nor the end of the first container, in whose bundle it was
/// started.
#[tokio::test]
async fn trap_13_a_groups_shim_lives_as_long_as_its_last_container() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = unique("trap13");
    let sleep = ["sleep", "600"];
    let first = Task::run_in_group(&node, "trap13-first", &group, &[], &sleep).await?;
    let second = Task::run_in_group(&node, "trap13-second", &group, &[], &sleep).await?;
    // Its command line names the group.
    let shim = Footprint::of_containers(&[&group]);
    let pid = shim_pid(&shim.find(&node)?)?;
    first.remove().await?;
    ensure!(e2e::instance::is_alive(pid), "the shim ended with its first container");
    let third = Task::run_in_group(&node, "trap13-third", &group, &[], &sleep).await?;
    third.remove().await?;
    second.wait_status("RUNNING").await?;
    ensure!(shim_pid(&shim.find(&node)?)? == pid, "another shim");
    second.remove().await?;
    shim.wait_gone(&node, SOON).await
}
