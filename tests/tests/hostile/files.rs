//! File systems that do not answer.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::Starting;
use e2e::fuse::{ENDLESS, Fuse, PROGRAM};
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{PROMPT, ensure_serving};

/// Issue 18: after a create, an exec, a probe and a hook the shim looked up which program runs, and so asked the
/// program's file system. Here the tenant serves that file system.
#[tokio::test]
async fn u1_a_program_on_a_file_system_that_never_answers_stops_no_other() -> Result<()> {
    let node = Containerd::connect().await?;
    let fuse = Fuse::mount(&node, "program").await?;
    let mut pod = Pod::new("fuse-program")
        .annotate("plan", "app=main, other=main")
        .container(Program::new("app").mount(fuse.path(), "/fuse"))
        .container(Program::new("other"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "other"]).await?;
    let program = format!("/fuse/{PROGRAM}");
    // The program can be run.
    let run = pod.exec("app", &[&program, "0"]).await?;
    ensure!(run.exit_code == 0, "{run:?}");
    fuse.falls_silent();
    for _ in 0..3 {
        let words = [program.as_str(), "1"];
        let (ran, served) = tokio::join!(pod.exec("app", &words), async {
            wait::quiet_time(Duration::from_millis(400)).await;
            ensure_serving(&pod, "other").await
        });
        served?;
        ensure!(ran?.exit_code == 0);
    }
    ensure!(fuse.unanswered() == 0, "{} requests got no answer", fuse.unanswered());
    ensure_serving(&pod, "other").await?;
    fuse.end().await?;
    pod.remove().await
}

/// U2: a `file:` gate on such a file system blocks only a helper process, which podshim kills, and the pod ends in
/// time.
#[tokio::test]
async fn u2_a_file_gate_on_a_file_system_that_never_answers_stops_no_other() -> Result<()> {
    let node = Containerd::connect().await?;
    let fuse = Fuse::mount(&node, "gate").await?;
    fuse.falls_silent();
    let mut pod = Pod::new("fuse-gate")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", &format!("file:/fuse/{ENDLESS};period=100ms;timeout=200ms;fail=1000"))
        .container(Program::new("s1").mount(fuse.path(), "/fuse"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait::until("a lookup without an answer", PROMPT, async || Ok((fuse.unanswered() > 0).then_some(())))
        .await?;
    // While one lookup waits, podshim starts no other.
    wait::quiet_time(Duration::from_secs(1)).await;
    ensure!(fuse.unanswered() == 1, "{} lookups", fuse.unanswered());
    ensure_serving(&pod, "s1").await?;
    wait::at_most(PROMPT, "the sandbox does not stop", pod.stop_sandbox()).await?;
    fuse.end().await?;
    pod.remove().await
}

/// The same for an `exec:` gate: its process waits in its own exec, in the container's cgroup. One at a time is there; others' gates open,
/// and execs are served.
#[tokio::test]
async fn u2_an_exec_gate_on_a_file_system_that_never_answers_stops_no_other() -> Result<()> {
    let node = Containerd::connect().await?;
    let fuse = Fuse::mount(&node, "exec-gate").await?;
    fuse.falls_silent();
    let mut pod = Pod::new("fuse-exec-gate")
        .annotate("plan", "s1+s2=sidecar, app=main")
        .annotate("after.app", "s2=ready")
        .annotate("ready.s1", &format!("exec:/fuse/{ENDLESS};period=100ms;timeout=200ms;fail=1000"))
        .annotate("ready.s2", "exec:true;period=100ms")
        .container(Program::new("s1").mount(fuse.path(), "/fuse"))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("s1").await?;
    wait::until("a lookup without an answer", PROMPT, async || Ok((fuse.unanswered() > 0).then_some(())))
        .await?;
    pod.start_all(&["s2", "app"]).await?;
    wait::until("the main behind another gate", PROMPT, async || {
        Ok((pod.timeline()?.count("app", Starting) > 0).then_some(()))
    })
    .await?;
    wait::quiet_time(Duration::from_secs(2)).await;
    let waiting = processes_of(pod.id("s1")?)?;
    ensure!(waiting == 2, "{waiting} processes: the container's own, and its gate's");
    for container in ["s1", "app"] {
        ensure_serving(&pod, container).await?;
    }
    // The kernel ends no process that waits for an answer of such a server.
    fuse.end().await?;
    wait::at_most(PROMPT, "the sandbox does not stop", pod.stop_sandbox()).await?;
    pod.remove().await
}

/// How many processes are in the groups of this container.
fn processes_of(container: &str) -> Result<usize> {
    let processes = std::fs::read_dir("/proc")?.flatten();
    let groups = processes.filter_map(|process| std::fs::read_to_string(process.path().join("cgroup")).ok());
    Ok(groups.filter(|groups| groups.contains(container)).count())
}
