//! What the shim of a pod holds: at rest, with more containers, after work.

use std::time::Duration;

use anyhow::Result;
use e2e::durations::SOON;
use e2e::{Event, Pod, Program};

use crate::contender::{Contender, SHIMS};
use crate::figures::{Figures, Unit};
use crate::process::Shim;
use crate::rounds::{Bench, pod_of};

/// Sizes of pods, the pause container not counted.
const CONTAINERS: [usize; 3] = [1, 3, 10];

/// How many pods without containers are there at once: what they share counts for each in part, as on a node.
const EMPTY: usize = 20;

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    bench
        .alternate("memory of empty pods", bench.choose(3, 1), &SHIMS, figures, async |contender, figures| {
            empty(bench, contender, figures).await
        })
        .await?;
    for containers in CONTAINERS {
        let what = format!("memory of {containers} containers");
        let rounds = bench.choose(5, 2);
        bench
            .alternate(&what, rounds, &SHIMS, figures, async |contender, figures| {
                at_rest(bench, contender, containers, figures).await
            })
            .await?;
    }
    let execs = bench.choose(360, 60);
    bench
        .alternate("memory after execs", bench.choose(2, 1), &SHIMS, figures, async |contender, figures| {
            after_execs(bench, contender, execs, figures).await
        })
        .await?;
    let restarts = bench.choose(100, 10);
    after_restarts(bench, restarts, figures).await
}

/// Pods of a sandbox alone.
async fn empty(bench: &Bench, contender: Contender, figures: &mut Figures) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    let mut pods = Vec::new();
    for _ in 0..EMPTY {
        pods.push(pod_of(0, "bench-memory", bench.node, runtime).await?);
    }
    let ids: Vec<String> = pods.iter().map(|pod| pod.sandbox().to_owned()).collect();
    let shims = Shim::of_each(&ids)?;
    shims[EMPTY - 1].settle().await?;
    let what = |name| format!("each of {EMPTY} pods without containers: {name}");
    for shim in shims {
        let (own, sandbox) = (shim.holdings()?.proportional, shim.sandbox_proportional()?);
        figures.add(&what("shim and sandbox, proportional"), Unit::Kilobytes, contender, own + sandbox);
        figures.add(&what("sandbox, proportional"), Unit::Kilobytes, contender, sandbox);
        figures.add(&what("the sandbox's cgroup"), Unit::Kilobytes, contender, shim.sandbox_cgroup()?);
    }
    for pod in pods {
        pod.remove().await?;
    }
    Ok(())
}

async fn at_rest(
    bench: &Bench,
    contender: Contender,
    containers: usize,
    figures: &mut Figures,
) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    let pod = pod_of(containers, "bench-memory", bench.node, runtime).await?;
    let shim = Shim::of(pod.sandbox())?;
    shim.settle().await?;
    add(figures, &format!("pause + {containers}"), contender, &shim)?;
    pod.remove().await
}

/// 360 execs are an hour of an exec probe every ten seconds.
async fn after_execs(bench: &Bench, contender: Contender, execs: usize, figures: &mut Figures) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    let mut pod = Pod::new("bench-memory").container(Program::new("app")).run(bench.node, runtime).await?;
    pod.start("app").await?;
    for _ in 0..execs {
        pod.exec("app", &["/bin/true"]).await?;
    }
    let shim = Shim::of(pod.sandbox())?;
    shim.settle().await?;
    add(figures, &format!("pause + 1 after {execs} execs"), contender, &shim)?;
    pod.remove().await
}

/// Only podshim restarts containers by itself.
async fn after_restarts(bench: &Bench, restarts: usize, figures: &mut Figures) -> Result<()> {
    eprintln!("bench: memory after {restarts} restarts");
    let Some(runtime) = Contender::Podshim.handler() else { return Ok(()) };
    let mut pod = Pod::new("bench-memory")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("restart.proxy", "always;first=100ms;base=100ms;max=100ms")
        .container(Program::new("proxy").runs_for(Duration::from_millis(50)))
        .container(Program::new("app"))
        .run(bench.node, runtime)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    let within = SOON + Duration::from_secs(1) * u32::try_from(restarts)?;
    pod.wait_for("proxy", Event::Started, restarts + 1, within).await?;
    let shim = Shim::of(pod.sandbox())?;
    add(figures, &format!("pause + 2 after {restarts} restarts"), Contender::Podshim, &shim)?;
    pod.remove().await
}

fn add(figures: &mut Figures, what: &str, contender: Contender, shim: &Shim) -> Result<()> {
    let held = shim.holdings()?;
    for (name, unit, value) in [
        ("resident", Unit::Kilobytes, held.resident),
        ("proportional", Unit::Kilobytes, held.proportional),
        ("private dirty", Unit::Kilobytes, held.private_dirty),
        ("threads", Unit::Count, held.threads),
        ("open files", Unit::Count, held.open_files),
    ] {
        figures.add(&format!("{what}: {name}"), unit, contender, value);
    }
    Ok(())
}
