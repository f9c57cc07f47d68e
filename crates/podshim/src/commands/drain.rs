//! `podshim drain`: ends every pod of the node, each in its own order, class after class (N7, N11).

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use control_api::paths::{DRAINING_FILE, NODE_FILE, STATE_ROOT};
use pod_spec::Node;
use serde::Serialize;

use crate::arguments::ResultArguments;
use crate::drain::{End, Ended, drain};
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, milliseconds, print, print_json};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Ends every pod on this node that runs on podshim: each in its order, within its own grace. Pods with a lower
podshim.io/drain-priority (0 without it) end first, all pods of one at the same time. It prints each pod as it ends (with
--json all at the end), and waits for the last. Meanwhile and afterwards podshim refuses
new pods and containers on this node, because a live kubelet would recreate them as fast as they end: until --undo, or the
next boot.

podshim-drain.service calls it when the node goes down, after the kubelet was stopped and before containerd is.";
const EXIT_CODES: &str = "\
Exit codes: 0 all pods ended in time; 1 some did not, or it could not be done; 2 wrong arguments.";

/// Arguments of `podshim drain`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Such as 90s or 5m. Each priority gets an equal part of what is left of it. What still runs then gets its
    /// stop signal, if it had none yet, and SIGKILL 2s later
    #[arg(long, value_name = "DURATION", value_parser = pod_spec::parse_duration, conflicts_with = "undo")]
    timeout: Option<Duration>,
    /// Take new pods again
    #[arg(long)]
    undo: bool,
    #[command(flatten)]
    result: ResultArguments,
}

#[derive(Serialize)]
struct Report {
    /// Whether podshim refuses new pods on this node now.
    draining: bool,
    pods: Vec<DrainedPod>,
}

#[derive(Serialize)]
struct DrainedPod {
    pod: String,
    end: &'static str,
    after_ms: u64,
    reason: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// A `draining` file that cannot be written or removed (not root), or a directory of shims that cannot be
/// read.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let file = Path::new(DRAINING_FILE);
    let failed = |what: &str, path: &Path, error: &io::Error| {
        CommandError::Input(format!("{}: cannot be {what}: {error}", path.display()))
    };
    let format = arguments.result.format();
    if !arguments.undo {
        mark(file).map_err(|error| failed("written", file, &error))?;
        return drain_all(Path::new(STATE_ROOT), arguments.timeout, format);
    }
    let done = match fs::remove_file(file) {
        Ok(()) => "This node takes new pods again.\n",
        Err(error) if error.kind() == ErrorKind::NotFound => "This node was not draining.\n",
        Err(error) => return Err(failed("removed", file, &error)),
    };
    match format {
        Format::Json => print_json(&Report { draining: false, pods: Vec::new() })?,
        Format::Text => print(done)?,
    }
    Ok(Outcome::Success)
}

fn mark(file: &Path) -> io::Result<()> {
    fs::create_dir_all(STATE_ROOT)?;
    fs::write(file, "podshim drain\n")
}

/// What the node's file says of priorities. A mistake in it is a finding of `podshim doctor`, and no reason not to drain.
fn node() -> Node {
    fs::read_to_string(NODE_FILE).ok().and_then(|text| Node::parse(&text).ok()).unwrap_or_default()
}

fn drain_all(state_root: &Path, timeout: Option<Duration>, format: Format) -> Result<Outcome, CommandError> {
    let paint = ColorMode::of(&io::stdout());
    let report = |ended: &Ended| {
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
    let all = drain(state_root, &node(), timeout, report)?;
    let late = all.iter().filter(|ended| ended.end != End::InTime).count();
    let pods = format!("{} pod{}", all.len(), if all.len() == 1 { "" } else { "s" });
    match (format, late) {
        (Format::Json, _) => {
            let pods = all.into_iter().map(DrainedPod::of).collect();
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

impl DrainedPod {
    fn of(ended: Ended) -> Self {
        let (end, reason) = match ended.end {
            End::InTime => ("in-time", None),
            End::CutShort => ("cut-short", None),
            End::Failed { reason } => ("not-ended", Some(reason)),
        };
        let after_ms = milliseconds(ended.after);
        Self { pod: ended.pod, end, after_ms, reason }
    }
}
