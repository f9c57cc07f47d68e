//! `podshim history`: the pods that were on this node.

use std::ffi::OsString;
use std::io::stdout;
use std::path::PathBuf;

use serde::Serialize;

use super::ps::{age, now_ms};
use crate::arguments::{CommandError, Outcome, Parsed, pod_arguments};
use crate::history::{date, time_of_day};
use crate::output::{Colour, Format, Paint, Table, print, print_json};
use crate::past::{self, PastReport};
use crate::pods::{ContainerReport, PodState, called};
use crate::terminal::columns;

const NAME: &str = "history";
/// What `-h` says.
pub const HELP: &str = "\
usage: podshim history [--since DURATION] [--history-dir DIR] [--json] [NAME]

Lists the pods that have ended on this node, the newest last: when, how, why they were stopped, and what each container exited
with. `podshim timeline --past POD` draws one.

Each pod leaves a record when it is gone, also when its shim was killed. How much is kept is the node's word, in
/etc/podshim/config.toml: history-size, history-namespace-size, history-age. A record has no commands and no environment.

NAME is a pod's name, namespace/name, an id, or the beginning of one.

  --since DURATION   only pods that ended since then, such as 12h or 30m
  --history-dir DIR  where the records are (/var/lib/podshim/history)
  --json             for programs: docs/podshim-json.md
  -h                 this help

Exit codes: 0; 1 the directory, or a record in it, cannot be read; 2 a wrong call.
";

#[derive(Serialize)]
struct Report<'a> {
    pods: &'a [PastReport],
    unreadable: usize,
}

/// Runs the command.
///
/// # Errors
/// A wrong call, or the directory cannot be read.
pub fn run(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let arguments = match pod_arguments(NAME, arguments, &[], &["NAME"], &["since", "history-dir"])? {
        Parsed::Help => return Ok(print(HELP).map(|()| Outcome::Success)?),
        Parsed::Run(arguments) => arguments,
    };
    let root = arguments.option("history-dir").map_or_else(past::default_root, PathBuf::from);
    let since = arguments.duration(NAME, "since")?;
    let since_ms = since.map_or(i64::MIN, |since| {
        now_ms().saturating_sub(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    });
    let (mut pods, unreadable) = past::list(&root, since_ms)?;
    if let Some(name) = arguments.words.first() {
        pods.retain(|pod| pod.is_called(name));
    }
    match arguments.format {
        Format::Json => print_json(&Report { pods: &pods, unreadable })?,
        Format::Text => print(&show(&pods, unreadable, Paint::of(&stdout()), columns()))?,
    }
    Ok(if unreadable == 0 { Outcome::Success } else { Outcome::Findings })
}

fn show(pods: &[PastReport], unreadable: usize, paint: Paint, columns: Option<usize>) -> String {
    let mut table = Table::new(&["ENDED (UTC)", "POD", "LIVED", "RESULT", "WHY", "RESTARTS", "EXIT CODES"]);
    for past in pods {
        let time = time_of_day(past.ended_at_ms);
        let seconds = time.split('.').next().unwrap_or_default();
        let ended = past.pod.containers.iter().filter(|container| container.role != "sandbox");
        let codes: Vec<_> = ended.filter_map(|container| exit(container, &past.pod.id)).collect();
        table.row(vec![
            (format!("{} {seconds}", date(past.ended_at_ms)), None),
            (past.pod.title(), None),
            (past.lived_ms().map_or_else(|| "-".to_owned(), age), None),
            (past.pod.state.words().to_owned(), colour_of(past.pod.state)),
            (past.why().to_owned(), None),
            (past.restarts(), None),
            (if codes.is_empty() { "-".to_owned() } else { codes.join(", ") }, None),
        ]);
    }
    let mut text = table.show(paint, columns);
    if unreadable > 0 {
        text += &format!("\n{unreadable} records cannot be read.\n");
    }
    text
}

/// A container's exit code, and what its caller was shown if that was another.
fn exit(container: &ContainerReport, pod_id: &str) -> Option<String> {
    let (name, real) = (called(&container.name, pod_id), container.real_exit_code?);
    Some(match container.shown_exit_code {
        Some(shown) if shown != real => format!("{name} {real} (shown as {shown})"),
        _ => format!("{name} {real}"),
    })
}

fn colour_of(state: PodState) -> Option<Colour> {
    match state {
        PodState::Completed => Some(Colour::Green),
        PodState::Failed => Some(Colour::Red),
        _ => None,
    }
}
