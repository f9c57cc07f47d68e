//! `podshim timeline`: draws a pod's life as bars, on the terminal or as a picture.

use std::fs;
use std::io::stdout;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use control_api::client::Client;
use serde::Serialize;

use super::inspect::failed;
use crate::arguments::{HistoryArguments, NodeArguments, PodArgument, ResultArguments, duration_or_seconds};
use crate::clock::now_ms;
use crate::events::EventReport;
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Format, milliseconds, print, print_json};
use crate::past;
use crate::pods::PodReport;
use crate::shims::ANSWER_LIMIT;
use crate::terminal::columns_of_picture;
use crate::timeline::{Timeline, Window, html, svg, text};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Draws a pod's life: when each container was created, held, started, ready, restarted and stopped, its gates, signals and
hooks, and the stop's budget; below it the last 256 events. --last, or --from and --to draw a part of it: a stop in a life of days
is one sign otherwise. With --past it draws the newest pod of that name that has ended:
`podshim history` lists them. With --json it prints the events.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 there is no such pod, its shim does not answer, or the file cannot be written; 2 wrong arguments.";

/// Arguments of `podshim timeline`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Draw a pod that has ended
    #[arg(long)]
    past: bool,
    /// Begin so long after the beginning of its life; a bare number is seconds
    #[arg(long, value_name = "TIME", value_parser = duration_or_seconds)]
    from: Option<Duration>,
    /// End so long after the beginning of its life
    #[arg(long, value_name = "TIME", value_parser = duration_or_seconds)]
    to: Option<Duration>,
    /// Draw only the last part of its life
    #[arg(long, value_name = "TIME", value_parser = duration_or_seconds, conflicts_with_all = ["from", "to"])]
    last: Option<Duration>,
    /// How wide the chart is; without it as the terminal, 80 to 200, or 100 where there is none
    #[arg(long, value_name = "COLUMNS", value_parser = columns)]
    width: Option<usize>,
    /// Write a picture instead
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Write a page with the picture and a table of all that happened instead
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    history: HistoryArguments,
    #[command(flatten)]
    pod: PodArgument,
}

#[derive(Serialize)]
struct Report<'a> {
    pod: &'a PodReport,
    lost: u64,
    events: &'a [EventReport],
}

/// Runs the command.
///
/// # Errors
/// No such pod, a file that cannot be written.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let called = &arguments.pod.pod;
    let (pod, events, lost, until_ms) = if arguments.past {
        let past =
            past::find(&arguments.history.history_dir, called, arguments.pod.namespace.namespace.as_deref())?;
        if past.shim_was_killed {
            eprintln!(
                "podshim: its shim was killed: known is only when its containers ended, and the exit codes that the shim had recorded"
            );
        }
        (past.pod, past.events, past.lost, past.ended_at_ms)
    } else {
        let (pod, events, lost) = present(arguments)?;
        (pod, events, lost, now_ms())
    };
    if arguments.result.format() == Format::Json {
        print_json(&Report { pod: &pod, lost, events: &events })?;
        return Ok(Outcome::Success);
    }
    let timeline = Timeline::of(&pod, events, lost, until_ms).window(arguments.window());
    let mut written = false;
    for (path, draw) in
        [(&arguments.svg, svg::draw as fn(&Timeline) -> String), (&arguments.html, html::page)]
    {
        if let Some(path) = path {
            fs::write(path, draw(&timeline))
                .map_err(|error| CommandError::Input(format!("cannot write {}: {error}", path.display())))?;
            written = true;
        }
    }
    if !written {
        print(&text::show(
            &timeline,
            arguments.width.unwrap_or_else(columns_of_picture),
            ColorMode::of(&stdout()),
        ))?;
    }
    Ok(Outcome::Success)
}

impl Arguments {
    fn window(&self) -> Window {
        match (self.last, self.from, self.to) {
            (Some(last), ..) => Window::Last(milliseconds(last)),
            (None, None, None) => Window::Whole,
            (None, from, to) => Window::Between(from.map_or(0, milliseconds), to.map(milliseconds)),
        }
    }
}

fn columns(text: &str) -> Result<usize, &'static str> {
    text.parse().map_err(|_| "not a number of columns")
}

/// A pod that a shim serves now, with its events and the number of those that the shim no longer keeps.
fn present(arguments: &Arguments) -> Result<(PodReport, Vec<EventReport>, u64), CommandError> {
    let failed = |source| failed(&arguments.pod.pod, source);
    let entry = arguments.pod.find(&arguments.node)?;
    let client = Client::connect(&entry.socket, ANSWER_LIMIT).map_err(failed)?;
    let pod = client.inspect().map_err(failed)?;
    let answer = client.events(0, Duration::ZERO).map_err(failed)?;
    let events = answer.events.into_iter().map(EventReport::of).collect();
    Ok((PodReport::of_answer(pod), events, answer.lost))
}
