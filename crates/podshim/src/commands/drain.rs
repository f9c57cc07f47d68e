//! `podshim drain`: every pod of the node ends, each in its order, all at the same time (N7).

use std::ffi::OsString;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use control_api::entry::STATE_ROOT;
use lexopt::Arg;

use crate::arguments::{CommandError, Outcome, Parsed};
use crate::drain::{End, Ended, drain};
use crate::output::{Colour, Paint, print};

const NAME: &str = "drain";
/// What `-h` says.
pub const HELP: &str = "\
usage: podshim drain [--timeout DURATION]
       podshim drain --undo

Ends every pod on this node that runs on podshim: each in its order, within its own grace, all pods at the same time. Says
which has ended when, and waits for the last. From its begin on the node takes no new pod and no new container of podshim:
a live kubelet would create them again as fast as they end. That stays so until --undo, or the next boot.

podshim-drain.service calls it when the node goes down, after the kubelet was stopped and before containerd is.

  --timeout DURATION   as in 90s, 5m: what has not ended by then gets its stop signal if it had none yet, and 2s
  --undo               take new pods again
  -h                   this help

Exit codes: 0 all pods ended in time; 1 some did not, or it could not be done; 2 a wrong call.
";

enum Task {
    Drain(Option<Duration>),
    Undo,
}

/// Runs the command.
///
/// # Errors
/// A wrong call, or that this is not root.
pub fn run(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let file = Path::new(STATE_ROOT).join("draining");
    let failed = |what: &str, path: &Path, error: &io::Error| {
        CommandError::Input(format!("{}: cannot be {what}: {error}", path.display()))
    };
    match parse(arguments)? {
        Parsed::Help => Ok(print(HELP).map(|()| Outcome::Success)?),
        Parsed::Run(Task::Undo) => match fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed("removed", &file, &error)),
            Ok(()) => Ok(print("This node takes new pods again.\n").map(|()| Outcome::Success)?),
            Err(_) => Ok(print("This node was not draining.\n").map(|()| Outcome::Success)?),
        },
        Parsed::Run(Task::Drain(timeout)) => {
            mark(&file).map_err(|error| failed("written", &file, &error))?;
            drain_all(Path::new(STATE_ROOT), timeout)
        }
    }
}

fn mark(file: &Path) -> io::Result<()> {
    fs::create_dir_all(STATE_ROOT)?;
    fs::write(file, "podshim drain\n")
}

fn drain_all(state_root: &Path, timeout: Option<Duration>) -> Result<Outcome, CommandError> {
    let paint = Paint::of(&io::stdout());
    let tell = |ended: &Ended| {
        let how = match &ended.end {
            End::InTime => paint.text(Colour::Green, "ended"),
            End::CutShort => paint.text(Colour::Yellow, "ended, its time cut short,"),
            End::Failed { reason } => format!("{} ({reason})", paint.text(Colour::Red, "has not ended")),
        };
        // Progress: who closed the other end does not see it.
        let _ = print(&format!("{}: {how} after {:.1}s\n", ended.pod, ended.after.as_secs_f64()));
    };
    let all = drain(state_root, timeout, tell)?;
    let late = all.iter().filter(|ended| ended.end != End::InTime).count();
    let pods = format!("{} pod{}", all.len(), if all.len() == 1 { "" } else { "s" });
    match late {
        0 => {
            print(&format!(
                "{pods} ended in time. This node takes no new ones until podshim drain --undo.\n"
            ))?;
            Ok(Outcome::Success)
        }
        _ => {
            print(&format!("{late} of {pods} did not end in time.\n"))?;
            Ok(Outcome::Findings)
        }
    }
}

fn parse(arguments: Vec<OsString>) -> Result<Parsed<Task>, CommandError> {
    let wrong = |error: lexopt::Error| CommandError::usage(NAME, error);
    let mut parser = lexopt::Parser::from_args(arguments);
    let mut task = Task::Drain(None);
    while let Some(argument) = parser.next().map_err(wrong)? {
        match argument {
            Arg::Short('h') | Arg::Long("help") => return Ok(Parsed::Help),
            Arg::Long("undo") => task = Task::Undo,
            Arg::Long("timeout") => {
                let value = parser.value().map_err(wrong)?;
                let value = value.to_string_lossy();
                let timeout = pod_spec::parse_duration(&value)
                    .map_err(|error| CommandError::usage(NAME, format!("--timeout {error}")))?;
                task = Task::Drain(Some(timeout));
            }
            other => return Err(wrong(other.unexpected())),
        }
    }
    Ok(Parsed::Run(task))
}
