//! What the questions share: in which order contenders are measured, how often, and on which pods. Never knows a question.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime};
use tokio::time::Instant;

use crate::contender::Contender;
use crate::figures::Figures;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Enough rounds for figures to be quoted.
    Full,
    /// All questions within a few minutes.
    Quick,
}

/// A pod of so many containers, started one after another, as a kubelet does.
pub async fn pod_of(
    containers: usize,
    name: &str,
    node: &'static Containerd,
    runtime: Runtime,
) -> Result<RunningPod<'static>> {
    let names: Vec<String> = (1..=containers).map(|number| format!("c{number}")).collect();
    let pod = names.iter().fold(Pod::new(name), |pod, name| pod.container(Program::new(name)));
    let mut pod = pod.run(node, runtime).await?;
    for name in &names {
        pod.start(name).await?;
    }
    Ok(pod)
}

/// Where and how much is measured.
pub struct Bench {
    pub node: &'static Containerd,
    pub effort: Effort,
}

impl Bench {
    /// Chooses between a number for full and one for quick measurements.
    pub fn choose(&self, full: usize, quick: usize) -> usize {
        match self.effort {
            Effort::Full => full,
            Effort::Quick => quick,
        }
    }

    /// Measures each contender once for warm-up, because the first run fills caches. Then measures all of them in each
    /// round, and each round begins with the next contender, so that other load on the machine disturbs all alike.
    pub async fn alternate(
        &self,
        what: &str,
        rounds: usize,
        contenders: &[Contender],
        figures: &mut Figures,
        mut ask: impl AsyncFnMut(Contender, &mut Figures) -> Result<()>,
    ) -> Result<()> {
        let mut warm_up = Figures::default();
        for contender in contenders {
            ask(*contender, &mut warm_up)
                .await
                .with_context(|| format!("warm-up of {}", contender.label()))?;
        }
        for round in 0..rounds {
            eprintln!("bench: {what}: round {} of {rounds}", round + 1);
            for turn in 0..contenders.len() {
                let contender = contenders[(round + turn) % contenders.len()];
                ask(contender, figures)
                    .await
                    .with_context(|| format!("round {} of {}", round + 1, contender.label()))?;
            }
        }
        Ok(())
    }
}

/// The result of `future`, and how long it took.
pub async fn timed<T>(future: impl Future<Output = Result<T>>) -> Result<(T, Duration)> {
    let begin = Instant::now();
    let value = future.await?;
    Ok((value, begin.elapsed()))
}
