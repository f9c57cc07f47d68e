//! `podshim check`: finds what is wrong in manifests, in the node's file and in containerd's configuration.

use std::ffi::OsString;
use std::io::stdout;

use serde::Serialize;

use crate::arguments::{CommandError, Outcome, Parsed, file_arguments};
use crate::check::{Looked, Outside, check};
use crate::finding::{Finding, Severity};
use crate::output::{Colour, Format, Paint, print, print_json};
use crate::source::Source;

const NAME: &str = "check";
/// The text of `-h`.
pub const HELP: &str = "\
usage: podshim check [--json] [--node-file FILE] [--injected NAME]... FILE...

Finds what is wrong with FILE, with line, value, the nearest valid word, and what to write instead. FILE is
  *.yaml, *.json   Kubernetes manifests: the annotations of podshim on Pods and on the pod templates of Deployments,
                   StatefulSets, DaemonSets, ReplicaSets, Jobs and CronJobs, and whether they fit the pod; or annotations
                   alone, as `podshim plan` reads them
  *.toml           the node's file (/etc/podshim/config.toml), or containerd's configuration: recognised by its tables
  -                standard input: either
Nothing is changed, and nothing but FILE is read.

  --node-file FILE   check the manifests as a node with this file takes them: what it forbids is an error
  --injected NAME    a container that something adds to each pod later, such as istio-proxy: the plan may name it
  --json             for programs: docs/podshim-json.md
  -h                 this help

Exit codes: 0 no errors (warnings and notes do not count); 1 errors, or a file cannot be read; 2 wrong arguments.
";

#[derive(Serialize)]
struct Report {
    findings: Vec<Finding>,
    errors: usize,
    warnings: usize,
}

/// Runs the command.
///
/// # Errors
/// A wrong call, or a file that cannot be read.
pub fn run(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let arguments = match file_arguments(NAME, arguments, &Outside::OPTIONS)? {
        Parsed::Help => return Ok(print(HELP).map(|()| Outcome::Success)?),
        Parsed::Run(arguments) => arguments,
    };
    let outside = Outside::of(&arguments)?;
    let mut findings = Vec::new();
    let mut looked_at = Vec::new();
    for file in &arguments.files {
        let (looked, found) = check(&Source::read(file)?, &outside);
        findings.extend(found);
        looked_at.push((file, looked));
    }
    let count = |severity| findings.iter().filter(|finding: &&Finding| finding.severity == severity).count();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    match arguments.format {
        Format::Json => print_json(&Report { findings, errors, warnings })?,
        Format::Text => {
            let paint = Paint::of(&stdout());
            let mut text: String = findings.iter().map(|finding| finding.show(paint)).collect();
            for (file, looked) in looked_at {
                let is_reported =
                    |finding: &Finding| finding.file == *file && finding.severity != Severity::Note;
                if !findings.iter().any(is_reported) {
                    text += &format!("{file}: {} ({})\n", paint.text(Colour::Green, "ok"), what(looked));
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

fn what(looked: Looked) -> String {
    match looked {
        Looked::Pods(count) => counted(count, "pod"),
        Looked::NodeFile => "the node's file".to_owned(),
        Looked::ContainerdConfig => "containerd's configuration".to_owned(),
    }
}

fn counted(count: usize, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}
