//! `podshim timeline`: draws a pod's life as bars, on the terminal or as a picture.

use std::ffi::OsString;
use std::fs;
use std::io::stdout;
use std::path::{Path, PathBuf};
use std::time::Duration;

use control_api::client::Client;
use serde::Serialize;

use super::inspect::failed;
use super::ps::now_ms;
use crate::arguments::{CommandError, Outcome, Parsed, pod_arguments};
use crate::history::EventReport;
use crate::output::{Format, Paint, print, print_json};
use crate::past;
use crate::pods::PodReport;
use crate::shims::{self, ANSWER_LIMIT};
use crate::terminal::columns_of_picture;
use crate::timeline::{Timeline, html, svg, text};

const NAME: &str = "timeline";
/// The text of `-h`.
pub const HELP: &str = "\
usage: podshim timeline [--past] [--width COLUMNS] [--svg FILE] [--html FILE] [--json] [--run-dir DIR] [--history-dir DIR] POD

Draws a pod's life: when each container was created, held, started, ready, restarted and stopped, its gates, signals and
hooks, and the stop's budget; below it the last 256 events. With --past it draws the newest pod of that name that has ended:
`podshim history` lists them.

POD is a pod's name, namespace/name or id, or a unique prefix of one.

  --width COLUMNS  how wide the picture is (as the terminal, 80 to 200; 100 where there is none)
  --svg FILE       writes a picture instead
  --html FILE      writes a page with the picture and a table of all that happened instead
  --json           for programs: the events, docs/podshim-json.md
  --past           draw a pod that has ended
  --run-dir DIR    where the shims are found (/run/podshim)
  --history-dir DIR  where the records of ended pods are (/var/lib/podshim/history)
  -h               this help

Exit codes: 0; 1 there is no such pod, its shim does not answer, or the file cannot be written; 2 wrong arguments.
";

#[derive(Serialize)]
struct Report<'a> {
    pod: &'a PodReport,
    lost: u64,
    events: &'a [EventReport],
}

/// Runs the command.
///
/// # Errors
/// A wrong call, no such pod, a file that cannot be written.
pub fn run(mut arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let own = ["width", "svg", "html", "history-dir"];
    let given = arguments.len();
    arguments.retain(|argument| argument != "--past");
    let is_past = arguments.len() < given;
    let arguments = match pod_arguments(NAME, arguments, &["POD"], &[], &own)? {
        Parsed::Help => return Ok(print(HELP).map(|()| Outcome::Success)?),
        Parsed::Run(arguments) => arguments,
    };
    let width = match arguments.option("width") {
        Some(value) => value
            .parse()
            .map_err(|_| CommandError::usage(NAME, format!("--width {value}: not a number of columns")))?,
        None => columns_of_picture(),
    };
    let called = &arguments.words[0];
    let (pod, events, lost, until_ms) = if is_past {
        let root = arguments.option("history-dir").map_or_else(past::default_root, PathBuf::from);
        let past = past::find(&root, called)?;
        if past.shim_was_killed {
            eprintln!(
                "podshim: its shim was killed: only the last exits are known, and nothing of what happened before"
            );
        }
        (past.pod, past.events, past.lost, past.ended_at_ms)
    } else {
        let (pod, events, lost) = present(&arguments.root, called)?;
        (pod, events, lost, now_ms())
    };
    if arguments.format == Format::Json {
        print_json(&Report { pod: &pod, lost, events: &events })?;
        return Ok(Outcome::Success);
    }
    let timeline = Timeline::of(&pod, events, lost, until_ms);
    let mut written = false;
    for (name, draw) in [("svg", svg::draw as fn(&Timeline) -> String), ("html", html::page)] {
        if let Some(path) = arguments.option(name) {
            fs::write(path, draw(&timeline))
                .map_err(|error| CommandError::Input(format!("cannot write {path}: {error}")))?;
            written = true;
        }
    }
    if !written {
        print(&text::show(&timeline, width, Paint::of(&stdout())))?;
    }
    Ok(Outcome::Success)
}

/// A pod that a shim serves now, with its events and the number of those that the shim no longer keeps.
fn present(root: &Path, called: &str) -> Result<(PodReport, Vec<EventReport>, u64), CommandError> {
    let failed = |source| failed(called, source);
    let entry = shims::find(root, called)?;
    let client = Client::connect(&entry.socket, ANSWER_LIMIT).map_err(failed)?;
    let pod = client.inspect().map_err(failed)?;
    let answer = client.events(0, Duration::ZERO).map_err(failed)?;
    let events = answer.events.into_iter().map(EventReport::of).collect();
    Ok((PodReport::of_answer(pod), events, answer.lost))
}
