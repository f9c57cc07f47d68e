//! `podshim bypass`: the quick way back for a node whose pods podshim harms, and its undoing.

use clap::Args;
use node_setup::install::{self, InstallError};

use super::install::{ChangeArguments, carry_out, then_restart};
use crate::outcome::{CommandError, Outcome};
use crate::output::print;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Points the runtime \"podshim\" of this node's containerd at containerd's own shim, for a night in which podshim is suspected: it
needs no RuntimeClass, no pod and no API server to change. Pods that run keep podshim, and their order, until they end. Each
new pod of the RuntimeClass starts without order: its annotations say nothing to that shim, and init containers of a plan start
at once beside the others. --undo puts every byte back. Shows each change and asks; containerd takes it at its next restart,
through which pods live. An installer (install --stay) refuses to undo it by itself. docs/upgrades.md has the whole page.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 something stands in the way, and nothing was changed, or the answer was no; 2 wrong arguments.";

/// Arguments of `podshim bypass`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    change: ChangeArguments,
    /// Put podshim back
    #[arg(long)]
    undo: bool,
}

/// Runs the command.
///
/// # Errors
/// There is no runtime of podshim, or a file cannot be read or written.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let layout = arguments.change.layout()?;
    let changes = if arguments.undo { install::without_bypass(&layout) } else { install::bypass(&layout) };
    let changes = changes.map_err(|error: InstallError| CommandError::Input(error.to_string()))?;
    let nothing = if arguments.undo { "podshim is not bypassed" } else { "podshim is bypassed already" };
    let made = carry_out(&changes, arguments.change.confirmation(), "bypass", nothing)?;
    if made.is_all() {
        let restart = then_restart(&layout);
        let restart = restart.trim_start_matches(" && ");
        let restart = if restart.is_empty() { "containerd restarts by itself" } else { restart };
        let (pods, back) = match arguments.undo {
            false => ("new ones run without order", "\nBack: podshim bypass --undo"),
            true => ("new ones run on podshim", ""),
        };
        print(&format!("Next: {restart} (pods that run stay as they are; {pods}){back}\n"))?;
    }
    Ok(made.outcome())
}
