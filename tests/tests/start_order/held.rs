//! The hold (U7, U8, U10, R7): what callers, users and the container's own log see of a container that was started and
//! waits for its gates.

use std::time::Duration;

use anyhow::{Result, bail, ensure};
use e2e::Event::{Started, Starting};
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{
    AMPLE, SOON, TOLERANCE, are_running, exit_with, held_for, lines_of_podshim, milliseconds, ready_in_run,
    seconds, task, wait_started,
};

/// F1, F11, U7, U10: a main that is started before its sidecar exists waits and then runs. Start returns at once, the
/// state is RUNNING, stderr says what it waits for, and stdout has only the program's output.
#[tokio::test]
async fn u7_u10_a_main_waits_for_a_sidecar_that_comes_late() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u7")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "tcp::8080;period=100ms")
        .container(Program::new("s1").listens(8080, seconds(1)))
        .container(Program::new("app").prints("only mine"))
        .run(&node, Runtime::Podshim)
        .await?;
    let id = pod.create("app").await?;
    // The runtime's create takes most of this time; if Start waited for the gate, it would never return.
    wait::at_most(SOON, "Start blocks", node.cri()?.start_container(&id)).await?;
    are_running(&pod, &["app"]).await?;
    let shown = task(&node, &id).await?;
    ensure!(shown.status == "RUNNING", "{shown:?}");
    let line = held_for(&pod, "app").await?;
    ensure!(line.starts_with("held: waiting for ") && line.contains(r#""s1""#), "{line}");
    ensure!(line.contains("not created yet"), "{line}");

    wait::quiet_time(seconds(1)).await;
    pod.timeline()?.doesnt_start("app")?;
    pod.start("s1").await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.distance(("s1", Starting), ("app", Starting), seconds(1), TOLERANCE)?;
    ensure!(task(&node, &id).await? == shown, "the process is not the one that Start reported");
    let output = pod.output("app")?;
    let of_podshim = output.lines().filter(|line| line.contains("podshim:")).collect::<Vec<_>>();
    // U13: a line more where s1 takes more than a second to be started, and one where its gate does.
    ensure!(
        (1..=3).contains(&of_podshim.len()) && of_podshim.iter().all(|line| line.contains(" stderr ")),
        "{output}"
    );
    pod.remove().await
}

/// U7: a hold of less than a second leaves no line. The machine decides how long it takes, so a longer hold is retried.
#[tokio::test]
async fn u7_a_short_hold_is_not_worth_a_line() -> Result<()> {
    let node = Containerd::connect().await?;
    for _ in 0..10 {
        let mut pod = Pod::new("u7-short")
            .annotate("plan", "s1=sidecar, app=main")
            .container(Program::new("s1"))
            .container(Program::new("app").exits(0))
            .run(&node, Runtime::Podshim)
            .await?;
        let (app, sidecar) = (pod.create("app").await?, pod.create("s1").await?);
        node.cri()?.start_container(&app).await?;
        node.cri()?.start_container(&sidecar).await?;
        exit_with(&pod, &[("app", 0)]).await?;
        // Measured from s1's creation: the hold cannot have been longer.
        let created = Duration::from_nanos(pod.status("s1").await?.created_at.try_into()?);
        let held = pod.timeline()?.time_of("app", Starting)?.saturating_sub(created);
        let output = pod.output("app")?;
        pod.remove().await?;
        if held < seconds(1) {
            ensure!(lines_of_podshim(&output).is_empty(), "held for {held:?}: {output}");
            return Ok(());
        }
    }
    bail!("every hold took a second or more")
}

/// U8, F2: podshim runs an exec in a held container: hooks do not deadlock, and users can debug.
#[tokio::test]
async fn u8_an_exec_into_a_held_container_runs() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u8")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", &ready_in_run("s1", 1, "period=100ms"))
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("app").await?;
    let output = pod.exec("app", &["sh", "-c", "ls /; exit 3"]).await?;
    ensure!(output.stdout.lines().any(|line| line == "pod") && output.exit_code == 3, "{output:?}");
    pod.exec("app", &["touch", "/root/hook"]).await?;
    pod.timeline()?.doesnt_start("app")?;
    pod.start("s1").await?;
    wait_started(&pod, &["app"]).await?.before(("s1", Starting), ("app", Starting))?;
    // The program starts in the root file system that the exec changed.
    ensure!(pod.exec("app", &["test", "-e", "/root/hook"]).await?.exit_code == 0, "the exec's file is gone");
    pod.remove().await
}

/// R7: a held container whose process is killed from outside is recreated and stays held. It starts once, when its gate
/// opens.
#[tokio::test]
async fn r7_a_held_container_killed_from_outside_stays_held() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r7-held")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", &ready_in_run("s1", 1, "period=100ms"))
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("app").await?;
    let id = pod.id("app")?.to_owned();
    let first = task(&node, &id).await?;
    let sandbox = task(&node, pod.sandbox()).await?;
    signal(first.pid, libc::SIGKILL)?;
    // Between the two processes podshim reports the sandbox's pid (F13).
    wait::until("a new process that is held", SOON, async || {
        let now = task(&node, &id).await?;
        ensure!(now.status == "RUNNING", "{now:?}");
        Ok((now.pid != first.pid && now.pid != sandbox.pid).then_some(()))
    })
    .await?;
    are_running(&pod, &["app"]).await?;
    wait::quiet_time(milliseconds(500)).await;
    pod.timeline()?.doesnt_start("app")?;
    pod.start("s1").await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    timeline.before(("s1", Starting), ("app", Starting))?;
    timeline.has_not_restarted("app")?;
    pod.stop_all_at_once(AMPLE).await?;
    exit_with(&pod, &[("app", 0), ("s1", 0)]).await?;
    ensure!(pod.timeline()?.count("app", Started) == 1, "{}", pod.timeline()?);
    pod.remove().await
}
