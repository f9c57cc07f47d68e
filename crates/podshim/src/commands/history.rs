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
/// The text of `-h`.
pub const HELP: &str = "\
usage: podshim history [--since DURATION] [--history-dir DIR] [--json] [NAME]

Lists the pods that have ended on this node, the newest last, one line each. `podshim timeline --past POD` draws one.

RESULT is `completed` or `failed` if the pod's restart policy says that it has ended, else `stopped`. WHY is what began its stop:
caller (a kubelet, crictl, ctr), requested (podshim stop, a drain), completed, init-failed, sidecar-failed, fatal, zero-grace,
sandbox (its end came first), or shim-killed; `-` if it ended without a stop. EXIT CODES are the real ones, with what the caller was shown if that differs.

podshim writes a record when a pod ends, even if the pod's shim was killed. It keeps 7 days, 64 MiB in all and 8 MiB of each
namespace; history-age, history-size and history-namespace-size in /etc/podshim/config.toml change that. A record has no
commands and no environment.

NAME is a pod's name, namespace/name, an id, or the beginning of one.

  --since DURATION   only pods that ended since then, such as 12h or 30m
  --history-dir DIR  where the records are (/var/lib/podshim/history)
  --json             for programs: docs/podshim-json.md
  -h                 this help

Exit codes: 0; 1 no such pod, or a record cannot be read (all others are still listed); 2 wrong arguments.
";

#[derive(Serialize)]
struct Report<'a> {
    pods: &'a [PastReport],
    unreadable: &'a [PathBuf],
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
        if pods.is_empty() && arguments.format == Format::Text {
            return Err(CommandError::Input(format!("no record of a pod {name:?} in {}", root.display())));
        }
    }
    match arguments.format {
        Format::Json => print_json(&Report { pods: &pods, unreadable: &unreadable })?,
        Format::Text => print(&show(&pods, &unreadable, Paint::of(&stdout()), columns()))?,
    }
    Ok(if unreadable.is_empty() { Outcome::Success } else { Outcome::Findings })
}

fn show(pods: &[PastReport], unreadable: &[PathBuf], paint: Paint, columns: Option<usize>) -> String {
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
    for file in unreadable {
        text += &format!("cannot read {}: no record of podshim; remove it\n", file.display());
    }
    text
}

/// A container's real exit code, and the code that its caller saw if that differs.
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
