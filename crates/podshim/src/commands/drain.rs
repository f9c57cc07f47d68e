//! `podshim drain`: ends every pod of the node, each in its own order, class after class (N7, N11).

use std::fs;
use std::io::{self, ErrorKind, stderr, stdout};
use std::path::Path;
use std::time::Duration;

use clap::Args;
use nix::unistd::{Pid, getppid};
use node_state::paths::{DRAINING_FILE, NODE_FILE};
use pod_spec::Node;
use serde::Serialize;

use super::ps::colour_of;
use crate::arguments::{NodeArguments, ResultArguments, duration_or_seconds};
use crate::drain::{End, Ended, MOST_CLASSES, drain};
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Cut, Format, Table, milliseconds, print, print_json};
use crate::pods::{PodReport, PodState};
use crate::question::{Answer, ask};
use crate::shims::{self, title};
use crate::terminal::columns;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Ends every pod on this node that runs on podshim: each in its order, within its own grace. It lists them and asks first. Pods with
a lower podshim.io/drain-priority (0 without it) end first, all pods of one at the same time. It prints each pod as it ends (with
--json all at the end), and waits for the last. Meanwhile and afterwards podshim refuses
new pods and containers on this node, because a live kubelet would recreate them as fast as they end: until --undo, or the
next boot.

podshim-drain.service calls it when the node goes down, after the kubelet was stopped and before containerd is.";
const EXIT_CODES: &str = "\
Exit codes: 0 all pods ended in time, or the answer was no; 1 some did not, or it could not be done; 2 wrong arguments.";

/// Arguments of `podshim drain`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Such as 90s or 5m; a bare number is seconds. Each priority gets an equal part of what is left of it. What still runs then gets its
    /// stop signal, if it had none yet, and SIGKILL 2s later
    #[arg(long, value_name = "TIME", value_parser = duration_or_seconds, conflicts_with = "undo")]
    timeout: Option<Duration>,
    /// Take new pods again
    #[arg(long, conflicts_with_all = ["yes", "dry_run"])]
    undo: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
    /// Only list what would end, in its classes
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    result: ResultArguments,
}

#[derive(Serialize)]
struct Report {
    /// Whether podshim refuses new pods on this node now.
    draining: bool,
    pods: Vec<DrainedPod>,
    /// With `--dry-run`.
    would_end: Option<Vec<PodToEnd>>,
}

#[derive(Serialize)]
struct PodToEnd {
    pod: String,
    id: String,
    drain_priority: i32,
    state: PodState,
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
/// A `draining` file that cannot be written or removed (not root), a directory of shims that cannot be read, or no terminal to
/// ask on.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let root = &arguments.node.run_dir;
    let file = root.join(Path::new(DRAINING_FILE).file_name().unwrap_or_default());
    let format = arguments.result.format();
    if arguments.undo {
        return undo(&file, format);
    }
    if arguments.dry_run {
        let draining = file.exists();
        let would_end = would_end(root)?;
        match format {
            Format::Json => print_json(&Report { draining, pods: Vec::new(), would_end: Some(would_end) })?,
            Format::Text => print(&list(&would_end, ColorMode::of(&stdout()), columns()))?,
        }
        return Ok(Outcome::Success);
    }
    if !arguments.yes && !is_unit_of_the_release_before() {
        let would_end = would_end(root)?;
        eprint!("{}", list(&would_end, ColorMode::of(&stderr()), columns()));
        let question = format!("End {} and refuse new ones?", counted(would_end.len()));
        if ask(&question, "drain")? == Answer::No {
            print("Nothing was changed.\n")?;
            return Ok(Outcome::Success);
        }
    }
    mark(root, &file).map_err(|error| failed("written", &file, &error))?;
    drain_all(root, arguments.timeout, format)
}

/// N17: a unit of systemd that was loaded before this release was installed calls the drain without `--yes`, and a node that goes
/// down must not lose its order by that.
fn is_unit_of_the_release_before() -> bool {
    std::env::var_os("INVOCATION_ID").is_some() && getppid() == Pid::from_raw(1)
}

fn undo(file: &Path, format: Format) -> Result<Outcome, CommandError> {
    let done = match fs::remove_file(file) {
        Ok(()) => "This node takes new pods again.\n",
        Err(error) if error.kind() == ErrorKind::NotFound => "This node was not draining.\n",
        Err(error) => return Err(failed("removed", file, &error)),
    };
    match format {
        Format::Json => print_json(&Report { draining: false, pods: Vec::new(), would_end: None })?,
        Format::Text => print(done)?,
    }
    Ok(Outcome::Success)
}

fn failed(what: &str, path: &Path, error: &io::Error) -> CommandError {
    CommandError::Input(format!("{}: cannot be {what}: {error}", path.display()))
}

/// The pods of the node in the order of their classes (N11).
fn would_end(root: &Path) -> Result<Vec<PodToEnd>, CommandError> {
    let node = node();
    let mut pods: Vec<_> = shims::all(root)?
        .into_iter()
        .map(|shim| {
            let (drain_priority, pod) = (node.drain_priority(shim.entry.drain_priority), title(&shim.entry));
            let report = PodReport::of(shim);
            PodToEnd { pod, id: report.id, drain_priority, state: report.state }
        })
        .collect();
    pods.sort_by_key(|pod| pod.drain_priority);
    Ok(pods)
}

fn list(pods: &[PodToEnd], paint: ColorMode, columns: Option<usize>) -> String {
    let mut table = Table::new(&["DRAIN PRIORITY", "POD", "STATUS"]).cutting(&[Cut::Never, Cut::Middle]);
    for pod in pods {
        let status = (pod.state.words().to_owned(), colour_of(pod.state));
        table.row(vec![(pod.drain_priority.to_string(), None), (pod.pod.clone(), None), status]);
    }
    let mut classes: Vec<_> = pods.iter().map(|pod| pod.drain_priority).collect();
    classes.dedup();
    let classes = match classes.len().min(MOST_CLASSES) {
        0 | 1 => "all at the same time".to_owned(),
        many => format!("in {many} classes, the lowest priority first"),
    };
    match pods {
        [] => "No pod of podshim is on this node.\n".to_owned(),
        pods => format!("{}{} would end, {classes}.\n", table.show(paint, columns), counted(pods.len())),
    }
}

fn counted(pods: usize) -> String {
    format!("{pods} pod{}", if pods == 1 { "" } else { "s" })
}

fn mark(root: &Path, file: &Path) -> io::Result<()> {
    fs::create_dir_all(root)?;
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
    let pods = counted(all.len());
    match (format, late) {
        (Format::Json, _) => {
            let pods = all.into_iter().map(DrainedPod::of).collect();
            print_json(&Report { draining: true, pods, would_end: None })?;
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
