//! The questions, each a file of this folder. What they share is [`crate::rounds`].

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

use anyhow::Result;

use crate::figures::Figures;
use crate::rounds::Bench;

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
