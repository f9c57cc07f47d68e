//! Many pods started at the same moment, and stopped at the same moment.

use std::time::Duration;

use anyhow::Result;
use e2e::{Containerd, RunningPod, Runtime};
use tokio::task::{JoinSet, LocalSet};

use crate::contender::{Contender, SHIMS};
use crate::figures::{Figures, Unit};
use crate::process::Shim;
use crate::rounds::{Bench, pod_of, timed};

/// How many pods, of how many containers each.
const SIZES: [(usize, usize); 5] = [(10, 1), (50, 1), (100, 1), (200, 1), (100, 3)];

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let sizes = &SIZES[..bench.choose(SIZES.len(), 1)];
    for &(pods, containers) in sizes {
        let rounds = if pods > 50 && containers == 1 { 1 } else { bench.choose(3, 2) };
        for round in 0..rounds {
            for turn in 0..SHIMS.len() {
                let contender = SHIMS[(round + turn) % SHIMS.len()];
                eprintln!(
                    "bench: scale: {pods} pods of {containers} on {}, round {} of {rounds}",
                    contender.label(),
                    round + 1
                );
                at_once(bench, contender, pods, containers, figures).await?;
            }
        }
    }
    Ok(())
}

async fn at_once(
    bench: &Bench,
    contender: Contender,
    count: usize,
    containers: usize,
    figures: &mut Figures,
) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    let (results, started) = timed(start(bench.node, runtime, count, containers)).await?;
    let (running, failed): (Vec<_>, Vec<_>) = results.into_iter().partition(Result::is_ok);
    for error in failed.iter().filter_map(|result| result.as_ref().err()) {
        eprintln!("bench: scale: {error:#}");
    }
    let pods: Vec<RunningPod<'static>> = running.into_iter().flatten().collect();
    let ids: Vec<String> = pods.iter().map(|pod| pod.sandbox().to_owned()).collect();
    let (mut proportional, mut processor) = (0.0, Duration::ZERO);
    for shim in Shim::of_each(&ids)? {
        proportional += shim.holdings()?.proportional;
        processor += shim.processor_time()?;
    }
    let ((), ended) = timed(end(pods)).await?;
    let size = if containers == 1 { String::new() } else { format!(" of {containers} containers") };
    let what = |name: &str| format!("{count} pods{size}: {name}");
    figures.add(&what("until all run"), Unit::Seconds, contender, started.as_secs_f64());
    #[expect(clippy::cast_precision_loss, reason = "a few hundred")]
    figures.add(&what("failed"), Unit::Count, contender, failed.len() as f64);
    figures.add(&what("proportional memory of all shims"), Unit::Megabytes, contender, proportional / 1000.0);
    figures.add(&what("processor time of all shims"), Unit::Seconds, contender, processor.as_secs_f64());
    figures.add(&what("until all are gone"), Unit::Seconds, contender, ended.as_secs_f64());
    Ok(())
}

/// Starts pods at once: each a sandbox and so many containers, one after another, as a kubelet does.
async fn start(
    node: &'static Containerd,
    runtime: Runtime,
    count: usize,
    containers: usize,
) -> Result<Vec<Result<RunningPod<'static>>>> {
    let mut starts = JoinSet::new();
    for _ in 0..count {
        starts.spawn(async move { pod_of(containers, "bench-scale", node, runtime).await });
    }
    let mut results = Vec::new();
    while let Some(joined) = starts.join_next().await {
        results.push(joined?);
    }
    Ok(results)
}

async fn end(pods: Vec<RunningPod<'static>>) -> Result<()> {
    // On this thread, because the future that waits for a pod's end is not `Send`.
    let here = LocalSet::new();
    let mut ends = JoinSet::new();
    for pod in pods {
        ends.spawn_local_on(pod.remove(), &here);
    }
    here.run_until(async {
        while let Some(joined) = ends.join_next().await {
            joined??;
        }
        Ok(())
    })
    .await
}
