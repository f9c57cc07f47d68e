//! `podshim stop`: stops one pod in order, and waits for its end.

use std::io::stdout;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use control_api::client::{Client, ClientError};
use control_api::container::State;
use control_api::entry::Entry;
use pod_spec::BoundedDuration;
use serde::Serialize;

use super::inspect::failed;
use crate::arguments::{NodeArguments, PodArgument, ResultArguments, duration_or_seconds};
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, milliseconds, print, print_json};
use crate::pods::PodReport;
use crate::shims::{self, ANSWER_LIMIT};
use crate::words::DisplayWord;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Stops a pod in order (mains, then sidecars in reverse, then the sandbox) within one budget, and waits for the end. podshim
restarts nothing of it and refuses new containers; the caller that created the pod still has to remove it.";
const EXIT_CODES: &str = "\
Exit codes: 0 all of it has ended; 1 something has not, there is no such pod, or its shim does not answer; 2 wrong arguments.";

/// Arguments of `podshim stop`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// The budget; a bare number is seconds. It can shorten the pod's own (podshim.io/grace), not extend it
    #[arg(long, value_name = "TIME", value_parser = duration_or_seconds)]
    grace: Option<Duration>,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    pod: PodArgument,
}

/// Two seconds after the budget podshim has sent SIGKILL to all that is left of the pod (T6); five more are for the
/// kernel to end it.
const AFTER_BUDGET: Duration = Duration::from_secs(2 + 5);
/// How long one call waits for an event before the pod's state is read again.
const EVENT_WAIT: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Report {
    stopped: bool,
    took_ms: u64,
    pod: Option<PodReport>,
}

/// Runs the command.
///
/// # Errors
/// No such pod, a shim that does not answer.
#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let pod = &arguments.pod.pod;
    let entry = shims::find(&arguments.node.run_dir, pod)?;
    let begun = Instant::now();
    let wrong = |source| failed(pod, source);
    let client = Client::connect(&entry.socket, ANSWER_LIMIT).map_err(wrong)?;
    client.stop(arguments.grace).map_err(wrong)?;
    let left = wait(&client, begun).map_err(wrong)?;
    if left.is_none() {
        removed(&arguments.node.run_dir, &entry).map_err(wrong)?;
    }
    let took = begun.elapsed();
    let stopped = left.as_ref().is_none_or(PodReport::has_stopped);
    match arguments.result.format() {
        Format::Json => {
            let took_ms = milliseconds(took);
            print_json(&Report { stopped, took_ms, pod: left })?;
        }
        Format::Text => print(&show(pod, took, left.as_ref(), ColorMode::of(&stdout())))?,
    }
    Ok(if stopped { Outcome::Success } else { Outcome::Findings })
}

/// Waits until the pod has stopped, or until its budget and [`AFTER_BUDGET`] are over. `None`: its shim has gone.
#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
fn wait(client: &Client, begun: Instant) -> Result<Option<PodReport>, ClientError> {
    let mut seen = 0;
    let mut until = None;
    loop {
        let Some(answer) = unless_gone(client.inspect())? else { return Ok(None) };
        let budget = BoundedDuration::of_milliseconds(answer.budget_left_ms).get() + AFTER_BUDGET;
        let until = *until.get_or_insert(begun + budget);
        let report = PodReport::of_answer(answer);
        if report.has_stopped() || Instant::now() >= until {
            return Ok(Some(report));
        }
        match unless_gone(client.events(seen, EVENT_WAIT))? {
            Some(answer) => seen = answer.events.last().map_or(seen, |event| event.sequence),
            None => return Ok(None),
        }
    }
}

/// Waits until the shim has removed its entry: a shim that has nothing left does so, a shim that was killed does not.
#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
fn removed(root: &Path, entry: &Entry) -> Result<(), ClientError> {
    let until = Instant::now() + AFTER_BUDGET;
    while Entry::list(root).unwrap_or_default().contains(entry) {
        if Instant::now() >= until {
            return Err(ClientError::Dead { socket: entry.socket.clone() });
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// `None` if the shim has gone: when its pod has been removed a shim exits, and either closes the connection or answers
/// with an error first.
fn unless_gone<T>(answer: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(ClientError::Dead { .. }) => Ok(None),
        Err(error) if error.may_be_its_end() => Ok(None),
        Err(error) => Err(error),
    }
}

/// `left` is the pod as it is, if its shim has not gone.
fn show(pod: &str, took: Duration, left: Option<&PodReport>, paint: ColorMode) -> String {
    let seconds = format!("{:.1}s", took.as_secs_f64());
    if left.is_none_or(PodReport::has_stopped) {
        return format!("pod {pod}: {} in {seconds}\n", paint.text(Colour::Green, "stopped"));
    }
    let containers = left.iter().flat_map(|pod| &pod.containers);
    let left: Vec<_> = containers
        .filter(|container| !matches!(container.state, State::STOPPED | State::NOT_CREATED))
        .map(|container| format!("{} is {}", container.name, container.state.word()))
        .collect();
    format!("pod {pod}: {} after {seconds}: {}\n", paint.text(Colour::Red, "not stopped"), left.join(", "))
}
