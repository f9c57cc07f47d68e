//! `podshim check`: finds what is wrong in manifests, in the node's file and in containerd's configuration.

use std::io::stdout;

use clap::Args;
use manifests::finding::{Finding, Severity};
use node_setup::node::Release;
use serde::Serialize;

use crate::arguments::{ContextArguments, FileArguments, ResultArguments};
use crate::check::{FileKind, check};
use crate::finding_text::show;
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, print, print_json};
use crate::source;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Finds what is wrong with FILE, with line, value, the nearest valid word, and what to write instead. FILE is
  *.yaml, *.json   Kubernetes manifests: the annotations of podshim on Pods and on the pod templates of objects of any kind
                   (a spec with containers, and metadata beside it), and whether they fit the pod; or annotations
                   alone, as `podshim plan` reads them
  *.toml           the node's file (/etc/podshim/config.toml), or containerd's configuration: recognised by its tables
Nothing is changed, and nothing but FILE is read.";
const EXIT_CODES: &str = "\
Exit codes: 0 no errors (warnings and notes do not count); 1 errors, or a file cannot be read; 2 wrong arguments.";

/// Arguments of `podshim check`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    context: ContextArguments,
    /// The node's containerd: what its configuration asks for must be possible with it
    #[arg(long, value_name = "VERSION")]
    containerd: Option<Release>,
    #[command(flatten)]
    files: FileArguments,
}

#[derive(Serialize)]
struct Report {
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

/// Runs the command.
///
/// # Errors
/// A file that cannot be read.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let context = arguments.context.read()?;
    let mut findings = Vec::new();
    let mut checked = Vec::new();
    for file in &arguments.files.files {
        let (kind, found) = check(&source::read(file)?, &context, arguments.containerd);
        findings.extend(found);
        checked.push((file, kind));
    }
    let count = |severity| findings.iter().filter(|finding: &&Finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    match arguments.result.format() {
        Format::Json => print_json(&Report { findings, errors, warnings })?,
        Format::Text => {
            let paint = ColorMode::of(&stdout());
            let mut text: String = findings.iter().map(|finding| show(finding, paint)).collect();
            for (file, kind) in checked {
                let is_reported =
                    |finding: &Finding| finding.file == *file && finding.severity != Severity::Note;
                if !findings.iter().any(is_reported) {
                    text += &format!("{file}: {} ({})\n", paint.text(Colour::Green, "ok"), what(kind));
                }
            }
            if errors + warnings > 0 {
                text += &format!("{}, {}\n", counted(errors, "error"), counted(warnings, "warning"));
            }
            print(&text)?;
        }
    }
    Ok(if errors == 0 { Outcome::Success } else { Outcome::Findings })
}

fn what(kind: FileKind) -> String {
    match kind {
        FileKind::Pods(count) => counted(count, "pod"),
        FileKind::NodeFile => "the node's file".to_owned(),
        FileKind::ContainerdConfig => "containerd's configuration".to_owned(),
    }
}

fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}
