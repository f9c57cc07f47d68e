//! What idle pods cost.

use std::time::Duration;

use anyhow::Result;
use e2e::{Pod, Program, wait};

use crate::contender::{Contender, SHIMS};
use crate::figures::{Figures, Unit};
use crate::process::Shim;
use crate::rounds::Bench;

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let pods = bench.choose(100, 10);
    let seconds = bench.choose(60, 10).try_into()?;
    for contender in SHIMS {
        eprintln!("bench: idle: {pods} pods of {}, {seconds} s", contender.label());
        idle(bench, contender, pods, Duration::from_secs(seconds), figures).await?;
    }
    Ok(())
}

async fn idle(
    bench: &Bench,
    contender: Contender,
    count: usize,
    time: Duration,
    figures: &mut Figures,
) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    let mut pods = Vec::new();
    for _ in 0..count {
        let mut pod = Pod::new("bench-idle").container(Program::new("app")).run(bench.node, runtime).await?;
        pod.start("app").await?;
        pods.push(pod);
    }
    let ids: Vec<String> = pods.iter().map(|pod| pod.sandbox().to_owned()).collect();
    let shims = Shim::of_each(&ids)?;
    for shim in &shims {
        shim.settle().await?;
    }
    let before = sum(&shims)?;
    wait::quiet_time(time).await;
    let after = sum(&shims)?;
    let label = format!("{count} pods in {} s", time.as_secs());
    figures.add(&format!("{label}: wake-ups"), Unit::Count, contender, after.0 - before.0);
    figures.add_time(&format!("{label}: processor time"), contender, after.1 - before.1);
    for pod in pods {
        pod.remove().await?;
    }
    Ok(())
}

/// Wake-ups and processor time of all these shims since their start.
fn sum(shims: &[Shim]) -> Result<(f64, Duration)> {
    let mut total = (0.0, Duration::ZERO);
    for shim in shims {
        total.0 += shim.wake_ups()?;
        total.1 += shim.processor_time()?;
    }
    Ok(total)
}
