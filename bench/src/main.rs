//! The measurements of `hack/bench`: each puts one question to podshim and to containerd's own shim on the same
//! containerd in the same run, in turn, and where there is a floor, to the OCI runtime alone. Prints figures and judges
//! nothing: on a busy machine the maximum is the machine's. Must run inside the instance's namespaces.

mod arguments;
mod chart;
mod contender;
mod figures;
mod measure;
mod process;
mod setting;
mod table;

use anyhow::{Context, Result};
use e2e::Containerd;

use crate::arguments::{Arguments, Format};
use crate::figures::Figures;
use crate::measure::Bench;

// One thread: of many at once, requests would overtake each other between their number and the socket, which a Go server
// of ttrpc 1.2 (containerd 2.x) refuses.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Some(arguments) = Arguments::of_command_line()? else { return Ok(()) };
    // Pods borrow their node, and a task that runs a pod lives as long as it likes.
    let node: &'static Containerd = Box::leak(Box::new(Containerd::attach(&arguments.directory)?));
    let setting = setting::describe(node)?;
    let bench = Bench { node, effort: arguments.effort };
    let mut all = Vec::new();
    for question in &arguments.questions {
        let mut figures = Figures::default();
        question.measure(&bench, &mut figures).await.with_context(|| question.name())?;
        if arguments.format == Format::Table {
            // As they come: all of them take a while.
            print!("{}", table::render(question.title(), &figures));
        }
        all.push((*question, figures));
    }
    match arguments.format {
        Format::Table => println!("{setting}"),
        Format::Json => println!("{:#}", table::json(&setting, &all)),
    }
    if let Some(path) = &arguments.chart {
        std::fs::write(path, chart::svg(&setting, &all))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
