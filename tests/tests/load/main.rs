//! A shim under load: nothing fails, nothing grows, and podshim answers State as fast as containerd's own shim. Prints
//! its figures. `hack/test` runs a twentieth of the load, `hack/stress --load` all of it.

mod flood;
mod requests;

use std::future::Future;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Started, Starting};
use e2e::durations::{AMPLE, SOON};
use e2e::instance::status_number;
use e2e::task::Task;
use e2e::{Containerd, Pod, Program, Runtime};

/// Environment variable with the percentage of the whole load.
const LOAD: &str = "PODSHIM_LOAD";

/// How much more memory a shim may hold after the load than before it, in kB: what its allocator keeps.
const GROWTH: u64 = 1024;

/// This run's share of the whole load; at least one.
fn share_of(whole: usize) -> usize {
    let percent = std::env::var(LOAD).ok().and_then(|percent| percent.parse().ok()).unwrap_or(5);
    (whole * percent / 100).max(1)
}

/// The resources that a shim holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Usage {
    descriptors: usize,
    watches: usize,
    threads: u64,
    resident: u64,
}

impl Usage {
    fn of(shim: libc::pid_t) -> Result<Self> {
        let mut watches = 0;
        let mut descriptors = 0;
        for entry in std::fs::read_dir(format!("/proc/{shim}/fdinfo"))?.flatten() {
            descriptors += 1;
            let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
            watches += info.lines().filter(|line| line.starts_with("inotify ")).count();
        }
        let (threads, resident) = (status_number(shim, "Threads")?, status_number(shim, "VmRSS")?);
        Ok(Self { descriptors, watches, threads, resident })
    }

    /// Waits until a shim holds no more than this; [`GROWTH`] is allowed on top of its memory.
    async fn wait_regained(self, shim: libc::pid_t) -> Result<()> {
        let regained = e2e::wait::until("the shim to hold no more than before", SOON, async || {
            let now = Self::of(shim)?;
            let is_regained = now.descriptors <= self.descriptors
                && now.watches <= self.watches
                && now.threads <= self.threads
                && now.resident <= self.resident + GROWTH;
            Ok(is_regained.then_some(()))
        });
        regained.await.with_context(|| format!("before {self:?}, now {:?}", Self::of(shim)))?;
        println!("before {self:?}, after {:?}", Self::of(shim)?);
        Ok(())
    }
}

/// Runs all futures at the same time. When all have ended, returns the first failure.
async fn all<T>(futures: impl Iterator<Item = impl Future<Output = Result<T>>>) -> Result<()> {
    let mut left: Vec<Pin<Box<_>>> = futures.map(Box::pin).collect();
    let mut result = Ok(());
    std::future::poll_fn(|context| {
        left.retain_mut(|future| match future.as_mut().poll(context) {
            Poll::Pending => true,
            Poll::Ready(Ok(_)) => false,
            Poll::Ready(Err(error)) => {
                if result.is_ok() {
                    result = Err(error);
                }
                false
            }
        });
        if left.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    result
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
    all((0..count).map(|_| live())).await?;
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
