//! The questions, and what they share: the order in which contenders are measured, and how often.

mod exec;
mod idle;
mod memory;
mod order;
mod own_shim;
mod rpc;
mod run;
mod scale;
mod start;
mod stdio;

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

/// What is measured; each question is a file of this folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    Memory,
    Run,
    Rpc,
    Order,
    Exec,
    Stdio,
    Scale,
    Idle,
    Start,
}

impl Question {
    /// All, in the order of `all`.
    pub const ALL: [Question; 9] = [
        Question::Memory,
        Question::Run,
        Question::Start,
        Question::Rpc,
        Question::Order,
        Question::Exec,
        Question::Stdio,
        Question::Idle,
        Question::Scale,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Question::Memory => "memory",
            Question::Run => "run",
            Question::Rpc => "rpc",
            Question::Order => "order",
            Question::Exec => "exec",
            Question::Stdio => "stdio",
            Question::Scale => "scale",
            Question::Idle => "idle",
            Question::Start => "start",
        }
    }

    /// The title of its table.
    pub fn title(self) -> &'static str {
        match self {
            Question::Memory => "What the shim of a pod holds",
            Question::Run => "A container's and a pod's start and stop",
            Question::Rpc => "Answers of the Task service",
            Question::Order => "From one container to the next",
            Question::Exec => "Short commands in a container",
            Question::Stdio => "A container's output",
            Question::Scale => "Many pods at once",
            Question::Idle => "Pods in which nothing happens",
            Question::Start => "The shim's start action",
        }
    }

    /// Measures it.
    pub async fn measure(self, bench: &Bench, figures: &mut Figures) -> Result<()> {
        match self {
            Question::Memory => memory::measure(bench, figures).await,
            Question::Run => run::measure(bench, figures).await,
            Question::Rpc => rpc::measure(bench, figures).await,
            Question::Order => order::measure(bench, figures).await,
            Question::Exec => exec::measure(bench, figures).await,
            Question::Stdio => stdio::measure(bench, figures).await,
            Question::Scale => scale::measure(bench, figures).await,
            Question::Idle => idle::measure(bench, figures).await,
            Question::Start => start::measure(bench, figures).await,
        }
    }
}

/// A pod of so many containers, started one after another, as a kubelet does.
async fn pod_of(
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
