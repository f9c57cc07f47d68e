//! `podshim doctor`: reports whether this node is ready, and what to do if not.

use std::ffi::OsString;
use std::io::stdout;
use std::path::PathBuf;

use lexopt::Arg;
use serde::Serialize;

use crate::arguments::{CommandError, Outcome, Parsed};
use crate::doctor::{Check, Node, Status, examine};
use crate::node::Release;
use crate::output::{Colour, Format, Paint, print, print_json};

const NAME: &str = "doctor";
/// The text of `-h`.
pub const HELP: &str = "\
usage: podshim doctor [options]

Checks whether this node is ready for pods with a plan: containerd and its configuration (with its imports), the shim and
the OCI runtime, kernel, cgroups, room, the node's file, the unit that drains it, the RuntimeClass. It reports each
problem with what to do about it, and changes nothing.

  --json                 for programs: docs/podshim-json.md
  --config FILE          containerd's configuration (/etc/containerd/config.toml)
  --containerd VERSION   assume this version, where no containerd answers
  --root DIR             look at the file system there instead; no program of it is run
  -h                     this help

Exit codes: 0 ready (warnings do not count); 1 something blocks; 2 wrong arguments.
";

#[derive(Serialize)]
struct Report {
    checks: Vec<Check>,
    errors: usize,
    warnings: usize,
}

/// Runs the command.
///
/// # Errors
/// A wrong call.
pub fn run(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let (node, format) = match parse(arguments)? {
        Parsed::Help => return Ok(print(HELP).map(|()| Outcome::Success)?),
        Parsed::Run(parsed) => parsed,
    };
    let checks = examine(&node);
    let count = |status| checks.iter().filter(|check| check.status == status).count();
    let (errors, warnings) = (count(Status::Error), count(Status::Warning));
    match format {
        Format::Json => print_json(&Report { checks, errors, warnings })?,
        Format::Text => {
            let paint = Paint::of(&stdout());
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

fn show(check: &Check, paint: Paint) -> String {
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

fn parse(arguments: Vec<OsString>) -> Result<Parsed<(Node, Format)>, CommandError> {
    let wrong = |error: lexopt::Error| CommandError::usage(NAME, error);
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut format = Format::default();
    let mut node = Node {
        root: PathBuf::from("/"),
        config: PathBuf::from("/etc/containerd/config.toml"),
        release: None,
    };
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Long("json") => format = Format::Json,
            Arg::Long("config") => node.config = parser.value().map_err(wrong)?.into(),
            Arg::Long("root") => node.root = parser.value().map_err(wrong)?.into(),
            Arg::Long("containerd") => {
                node.release = Some(Release::argument(NAME, &parser.value().map_err(wrong)?)?)
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    Ok(Parsed::Run((node, format)))
}
