//! `podshim doctor`: reports whether this node is ready, and what to do if not.

use std::io::stdout;
use std::path::{Path, PathBuf};

use clap::Args;
use node_setup::doctor::{Check, NodeUnderTest, Status, examine};
use node_setup::install::place;
use node_setup::install::root::Root;
use node_setup::node::Release;
use serde::Serialize;

use crate::arguments::ResultArguments;
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, print, print_json};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Checks whether this node is ready for pods with a plan: containerd and its configuration (with its imports), the shim and
the OCI runtime, kernel, cgroups, room, the node's file, the unit that drains it, the RuntimeClass. It reports each
problem with what to do about it, and changes nothing.";
const EXIT_CODES: &str = "\
Exit codes: 0 ready (warnings do not count); 1 something blocks; 2 wrong arguments.";

/// Arguments of `podshim doctor`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    result: ResultArguments,
    /// containerd's configuration; without it that of the k3s, rke2, k0s or microk8s on the node, else
    /// /etc/containerd/config.toml
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Assume this version, where no containerd answers
    #[arg(long, value_name = "VERSION")]
    containerd: Option<Release>,
    /// Look at the file system there instead; no program of it is run
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

#[derive(Serialize)]
struct Report {
    checks: Vec<Check>,
    errors: usize,
    warnings: usize,
}

/// The file that the node's containerd reads. With more than one distribution, that of a containerd of its own.
fn configuration(root: &Path) -> PathBuf {
    let found = place::find(&Root::new(root)).map(|found| found.configuration());
    found.unwrap_or_else(|_| place::CONFIG.into())
}

/// Runs the command.
///
/// # Errors
/// A wrong call.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let node = NodeUnderTest {
        root: arguments.root.clone(),
        config: arguments.config.clone().unwrap_or_else(|| configuration(&arguments.root)),
        release: arguments.containerd,
    };
    let checks = examine(&node);
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (errors, warnings) = (count(Status::Error), count(Status::Warning));
    match arguments.result.format() {
        Format::Json => print_json(&Report { checks, errors, warnings })?,
        Format::Text => {
            let paint = ColorMode::of(&stdout());
            let text: String = checks.iter().map(|check| show(check, paint)).collect();
            let verdict = match errors {
                0 => paint.text(Colour::Green, "This node is ready for podshim."),
                _ => paint.text(Colour::Red, "This node is not ready for podshim."),
            };
            print(&format!("{text}{verdict}\n"))?;
        }
    }
    Ok(if errors == 0 { Outcome::Success } else { Outcome::Findings })
}

fn show(check: &Check, paint: ColorMode) -> String {
    let (word, colour) = match check.status {
        Status::Ok => ("ok", Colour::Green),
        Status::Warning => ("warning", Colour::Yellow),
        Status::Error => ("error", Colour::Red),
    };
    let mut text =
        format!("{}  {:<13}  {}\n", paint.text(colour, &format!("{word:<7}")), check.subject, check.message);
    if let Some(fix) = &check.fix {
        text += &format!("{:24}fix: {fix}\n", "");
    }
    text
}
