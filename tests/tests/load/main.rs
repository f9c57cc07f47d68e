//! A shim under load: nothing fails, nothing grows, and podshim answers State as fast as containerd's own shim. Prints
//! its figures. `hack/test` runs a twentieth of the load, `hack/stress --load` all of it.

mod flood;
mod requests;

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Started, Starting};
use e2e::durations::{AMPLE, SOON};
use e2e::task::Task;
use e2e::{Containerd, Pod, Program, Runtime, Usage, wait};

/// Environment variable with the percentage of the whole load.
const LOAD: &str = "PODSHIM_LOAD";

/// This run's share of the whole load; at least one.
fn share_of(whole: usize) -> usize {
    let percent = std::env::var(LOAD).ok().and_then(|percent| percent.parse().ok()).unwrap_or(5);
    (whole * percent / 100).max(1)
}

#[tokio::test]
async fn pods_that_start_and_stop_at_once_all_do() -> Result<()> {
    let node = Containerd::connect().await?;
    let count = share_of(100);
    let live = async || {
        let mut pod = Pod::new("load")
            .annotate("plan", "s1=sidecar, a=main, b=main, c=main")
            // Without a gate the mains may write their first line before s1 does (U1).
            .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms;fail=1000")
            .container(Program::new("s1").ready_file("/tmp/ready", Duration::ZERO))
            .container(Program::new("a"))
            .container(Program::new("b"))
            .container(Program::new("c"))
            .run(&node, Runtime::Podshim)
            .await?;
        pod.start_all(&["a", "b", "c", "s1"]).await?;
        for name in ["a", "b", "c", "s1"] {
            pod.wait_for(name, Started, 1, 10 * AMPLE).await?;
        }
        pod.timeline()?.in_order(&[("s1", Starting), ("a", Starting)])?;
        pod.stop_all_at_once(10 * AMPLE).await?;
        pod.timeline()?.exits_before("a", "s1")?;
        pod.remove().await
    };
    wait::all((0..count).map(|_| live())).await?;
    println!("{count} pods of 4 containers: none failed, none left anything");
    Ok(())
}

#[tokio::test]
async fn execs_in_a_row_leave_nothing_behind() -> Result<()> {
    let node = Containerd::connect().await?;
    let task = Task::run(&node, "execs", &[], &["sleep", "3600"]).await?;
    let exec = async || {
        let output = task.exec(&[], &["true"]).await?;
        ensure!(output.exit_code == Some(0), "{output:?}");
        anyhow::Ok(())
    };
    exec().await?;
    let (shim, count) = (task.shim()?, share_of(500));
    let before = Usage::of(shim)?;
    for _ in 0..count {
        exec().await?;
    }
    println!("{count} execs");
    before.wait_regained(shim).await?;
    task.remove().await
}

#[tokio::test]
async fn restarts_leave_nothing_behind() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("restarts")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart.s1", "always;base=100ms;max=100ms")
        .container(Program::new("s1").runs_for(Duration::from_millis(50)).exits(1))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    pod.wait_for("s1", Started, 3, SOON).await?;
    let (shim, count) = (pod.shim_pid()?, share_of(100));
    let before = Usage::of(shim)?;
    pod.wait_for("s1", Started, 3 + count, 10 * AMPLE).await?;
    println!("{count} restarts");
    before.wait_regained(shim).await?;
    pod.remove().await
}
