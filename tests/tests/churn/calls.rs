//! One shim, and many execs and restarts: it holds as much at the end as at first.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::Started;
use e2e::durations::{AMPLE, SOON, milliseconds};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, Usage, wait};
use tokio::time::Instant;

use crate::pods;

/// How much more private memory a shim may have, in kB.
const GROWTH: u64 = 64;

/// The RuntimeClass, and the memory that it adds to each pod's requests, in kB. A scheduler counts with it: a shim that needed more
/// would take what the node's other pods were given.
const RUNTIME_CLASS: &str = include_str!("../../../dist/kubernetes/base/runtimeclass.yaml");
const OVERHEAD: (&str, u64) = ("memory: 1Mi", 1024);

/// How often the restarts are counted, and how often a line says how far it is.
const INTERVAL: Duration = Duration::from_secs(1);
const PROGRESS: Duration = Duration::from_secs(30);

fn restarts(pod: &RunningPod<'_>) -> Result<usize> {
    Ok(pod.timeline()?.count("s1", Started))
}

/// Execs while the sidecar restarts, until both together are `count`. Returns how many of each there were.
async fn call(pod: &RunningPod<'_>, count: usize) -> Result<(usize, usize)> {
    let (before, mut checked, mut reported) = (restarts(pod)?, Instant::now(), Instant::now());
    let (mut execs, mut restarted) = (0, 0);
    while execs + restarted < count {
        let output = pod.exec("app", &["true"]).await?;
        ensure!(output.exit_code == 0, "{output:?}");
        execs += 1;
        // The log of the containers grows with each restart: it is not read after every exec.
        if checked.elapsed() >= INTERVAL {
            restarted = restarts(pod)? - before;
            checked = Instant::now();
        }
        if reported.elapsed() >= PROGRESS {
            println!("{execs} execs, {restarted} restarts");
            reported = Instant::now();
        }
    }
    Ok((execs, restarts(pod)? - before))
}

/// The largest of some readings: while a process is being started, it shares with the shim what is the shim's alone otherwise.
async fn largest(shim: libc::pid_t) -> Result<Usage> {
    let mut largest = Usage::of(shim)?;
    for _ in 0..20 {
        wait::quiet_time(milliseconds(20)).await;
        let now = Usage::of(shim)?;
        largest = if now.private > largest.private { now } else { largest };
    }
    Ok(largest)
}

#[tokio::test]
async fn a_shim_holds_as_much_after_many_execs_and_restarts_as_at_first() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("calls")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart.s1", "always;first=0s;base=100ms;max=100ms")
        .container(Program::new("s1").runs_for(milliseconds(10)).exits(1))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let shim = pod.shim_pid()?;
    call(&pod, (pods() / 50).max(20)).await?;
    let before = largest(shim).await?;
    let (execs, restarts) = call(&pod, pods()).await?;
    println!("{execs} execs, {restarts} restarts: at first {before:?}, now {:?}", Usage::of(shim)?);
    let after = before.wait_regained(shim).await?;
    // What a call under way needs goes with it; what is lost stays.
    let has_not_grown = wait::until("the memory of calls under way to be free", SOON, async || {
        Ok((Usage::of(shim)?.private <= before.private + GROWTH).then_some(()))
    });
    has_not_grown.await.with_context(|| format!("private memory has grown: {before:?}, {after:?}"))?;
    let (line, overhead) = OVERHEAD;
    ensure!(RUNTIME_CLASS.contains(line), "{RUNTIME_CLASS}");
    ensure!(after.private <= overhead, "more private memory than the RuntimeClass counts with: {after:?}");
    pod.stop_all_at_once(AMPLE).await?;
    pod.remove().await
}
