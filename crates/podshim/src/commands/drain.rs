//! `podshim drain`: ends every pod of the node, each in its own order, all at the same time (N7).

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use control_api::entry::STATE_ROOT;
use lexopt::Arg;
use serde::Serialize;

use crate::arguments::{CommandError, Outcome, Parsed};
use crate::drain::{End, Ended, drain};
use crate::output::{Colour, Format, Paint, print, print_json};

const NAME: &str = "drain";
/// The text of `-h`.
pub const HELP: &str = "\
usage: podshim drain [--timeout DURATION] [--json]
       podshim drain --undo [--json]

Ends every pod on this node that runs on podshim: each in its order, within its own grace, all pods at the same time. It
prints each pod as it ends, and waits for the last. From its start on podshim refuses new pods and containers on this node:
a live kubelet would recreate them as fast as they end. That holds until --undo, or the next boot.

podshim-drain.service calls it when the node goes down, after the kubelet was stopped and before containerd is.

  --timeout DURATION   as in 90s, 5m: what has not ended by then gets its stop signal if it had none yet, and 2s
  --undo               take new pods again
  --json               for programs, when all have ended: docs/podshim-json.md
  -h                   this help

Exit codes: 0 all pods ended in time; 1 some did not, or it could not be done; 2 wrong arguments.
";

enum Task {
    Drain(Option<Duration>),
    Undo,
}

#[derive(Serialize)]
struct Report {
    /// Whether podshim refuses new pods on this node now.
    draining: bool,
    pods: Vec<PodReport>,
}

#[derive(Serialize)]
struct PodReport {
    pod: String,
    end: &'static str,
    after_ms: u64,
    reason: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// A wrong call, a `draining` file that cannot be written or removed (not root), or a directory of shims that cannot be
/// read.
pub fn run(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let file = Path::new(STATE_ROOT).join("draining");
    let failed = |what: &str, path: &Path, error: &io::Error| {
        CommandError::Input(format!("{}: cannot be {what}: {error}", path.display()))
    };
    let (task, format) = match parse(arguments)? {
        Parsed::Help => return Ok(print(HELP).map(|()| Outcome::Success)?),
        Parsed::Run(parsed) => parsed,
    };
    match task {
        Task::Undo => {
            let said = match fs::remove_file(&file) {
                Ok(()) => "This node takes new pods again.\n",
                Err(error) if error.kind() == ErrorKind::NotFound => "This node was not draining.\n",
                Err(error) => return Err(failed("removed", &file, &error)),
            };
            match format {
                Format::Json => print_json(&Report { draining: false, pods: Vec::new() })?,
                Format::Text => print(said)?,
            }
            Ok(Outcome::Success)
        }
        Task::Drain(timeout) => {
            mark(&file).map_err(|error| failed("written", &file, &error))?;
            drain_all(Path::new(STATE_ROOT), timeout, format)
        }
    }
}

fn mark(file: &Path) -> io::Result<()> {
    fs::create_dir_all(STATE_ROOT)?;
    fs::write(file, "podshim drain\n")
}

fn drain_all(state_root: &Path, timeout: Option<Duration>, format: Format) -> Result<Outcome, CommandError> {
    let paint = Paint::of(&io::stdout());
    let tell = |ended: &Ended| {
        let how = match &ended.end {
            End::InTime => paint.text(Colour::Green, "ended"),
            End::CutShort => paint.text(Colour::Yellow, "ended, its time cut short,"),
            End::Failed { reason } => format!("{} ({reason})", paint.text(Colour::Red, "has not ended")),
        };
        if format == Format::Text {
            // This is only progress: the drain goes on even if the reader of the output has gone.
            let _ = print(&format!("{}: {how} after {:.1}s\n", ended.pod, ended.after.as_secs_f64()));
        }
    };
    let all = drain(state_root, timeout, tell)?;
    let late = all.iter().filter(|ended| ended.end != End::InTime).count();
    let pods = format!("{} pod{}", all.len(), if all.len() == 1 { "" } else { "s" });
    match (format, late) {
        (Format::Json, _) => {
            let pods = all.into_iter().map(PodReport::of).collect();
            print_json(&Report { draining: true, pods })?;
        }
        (Format::Text, 0) => {
            print(&format!(
                "{pods} ended in time. This node takes no new ones until podshim drain --undo.\n"
            ))?;
        }
        (Format::Text, _) => print(&format!("{late} of {pods} did not end in time.\n"))?,
    }
    Ok(if late == 0 { Outcome::Success } else { Outcome::Findings })
}

impl PodReport {
    fn of(ended: Ended) -> Self {
        let (end, reason) = match ended.end {
            End::InTime => ("in-time", None),
            End::CutShort => ("cut-short", None),
            End::Failed { reason } => ("not-ended", Some(reason)),
        };
        let after_ms = u64::try_from(ended.after.as_millis()).unwrap_or(u64::MAX);
        Self { pod: ended.pod, end, after_ms, reason }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Parsed<(Task, Format)>, CommandError> {
    let wrong = |error: lexopt::Error| CommandError::usage(NAME, error);
    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut timeout, mut undo, mut format) = (None, None, Format::Text);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Long("undo") => undo = Some(Task::Undo),
            Arg::Long("json") => format = Format::Json,
            Arg::Long("timeout") => {
                let value = parser.value().map_err(wrong)?;
                let value = value.to_string_lossy();
                let read = pod_spec::parse_duration(&value);
                timeout =
                    Some(read.map_err(|error| CommandError::usage(NAME, format!("--timeout {error}")))?);
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    if undo.is_some() && timeout.is_some() {
        return Err(CommandError::usage(NAME, "--undo waits for nothing: it takes no --timeout"));
    }
    Ok(Parsed::Run((undo.unwrap_or(Task::Drain(timeout)), format)))
}
