//! The measurements of `hack/bench`: each asks the same of podshim and of containerd's own shim, in turn, on the same
//! containerd in the same run, and, where that is a floor, of the OCI runtime alone. Prints figures and checks nothing:
//! on a busy machine the maximum shows the machine's load. Must run inside the instance's namespaces.

#![forbid(unsafe_code)]

mod arguments;
mod chart;
mod contender;
mod figures;
mod measure;
mod process;
mod rounds;
mod setting;
mod table;

use anyhow::{Context, Result};
use e2e::Containerd;

use crate::arguments::{Arguments, Format};
use crate::figures::Figures;
use crate::rounds::Bench;

// One thread: with several, a request could get its number first and reach the socket second, which a Go server of
// ttrpc 1.2 (containerd 2.x) refuses.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Some(arguments) = Arguments::of_command_line()? else { return Ok(()) };
    // Leaked, because pods borrow their node, and spawned tasks that run pods need `'static`.
    let node: &'static Containerd = Box::leak(Box::new(Containerd::attach(&arguments.directory)?));
    let setting = setting::describe(node)?;
    let bench = Bench { node, effort: arguments.effort };
    let mut all = Vec::new();
    for question in &arguments.questions {
        let mut figures = Figures::default();
        question.measure(&bench, &mut figures).await.with_context(|| question.name())?;
        if arguments.format == Format::Table {
            // Printed as soon as measured, because all of them take a while.
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
