//! `podshim restart`: restarts all planned containers of a pod in place, in order, and waits until they run (R14).

use std::io::stdout;
use std::time::{Duration, Instant};

use clap::Args;
use control_api::StopReason;
use control_api::client::{Client, ClientError};
use control_api::container::{Role, State};
use serde::Serialize;

use super::inspect::failed;
use crate::arguments::{ExactPodArgument, NodeArguments, ResultArguments, duration_or_seconds};
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, milliseconds, print, print_json};
use crate::pods::{ContainerReport, PodReport};
use crate::shims::{ANSWER_LIMIT, title};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Restarts all planned containers of a pod in place: they stop in order, within the pod's budget and with its hooks, and
start in order as at first. The sandbox, its address, the volumes and the containers themselves stay: the kubelet sees no exit
and counts no restart. The command waits until all of them run.

An exit that a caller has seen cannot be taken back: such a container stays as it ended. Under Never and OnFailure that is every
init that has completed, unless the plan has a fatal.c=restart, which keeps their exits from the caller. The command names those
that were not run again.";
const EXIT_CODES: &str = "\
Exit codes: 0 all of it runs again; 1 it does not in that time, there is no such pod, or it cannot be restarted now;
2 wrong arguments.";

/// Arguments of `podshim restart`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// How long to wait; a bare number is seconds. The restart itself goes on
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration_or_seconds)]
    timeout: Duration,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    pod: ExactPodArgument,
}

/// How long one call waits for an event before the pod's state is read again.
const EVENT_WAIT: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Report {
    restarted: bool,
    took_ms: u64,
    /// The pod's whole name, and its id: POD may have been either.
    name: String,
    id: String,
    /// What had ended before, and stays so.
    not_run_again: Vec<String>,
    pod: PodReport,
}

/// Runs the command.
///
/// # Errors
/// No such pod, one that cannot be restarted, a shim that does not answer.
#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let entry = arguments.pod.find(&arguments.node)?;
    let name = title(&entry);
    let begun = Instant::now();
    let wrong = |source| failed(&name, source);
    let client = Client::connect(&entry.socket, ANSWER_LIMIT).map_err(wrong)?;
    let before = PodReport::of_answer(client.inspect().map_err(wrong)?);
    client.restart().map_err(wrong)?;
    let pod = wait(&client, begun + arguments.timeout).map_err(wrong)?;
    let (took, restarted) = (begun.elapsed(), runs_again(&pod));
    let not_run_again = not_run_again(&before, &pod);
    match arguments.result.format() {
        Format::Json => {
            let took_ms = milliseconds(took);
            print_json(&Report { restarted, took_ms, name, id: entry.id, not_run_again, pod })?;
        }
        Format::Text => print(&show(&name, took, &pod, &not_run_again, ColorMode::of(&stdout())))?,
    }
    Ok(if restarted { Outcome::Success } else { Outcome::Findings })
}

/// What had shown its exit before the restart and has the same one after it (R14).
fn not_run_again(before: &PodReport, after: &PodReport) -> Vec<String> {
    let is_planned = |container: &ContainerReport| {
        !matches!(container.role, Role::SANDBOX | Role::PASSTHROUGH | Role::STANDBY)
    };
    let had_ended = |container: &ContainerReport| {
        is_planned(container) && matches!(container.state, State::STOPPED | State::EXITED)
    };
    let is_the_same = |old: &ContainerReport| {
        after
            .containers
            .iter()
            .any(|new| new.name == old.name && new.exited_at_ms == old.exited_at_ms && new.has_ended())
    };
    let ended = before.containers.iter().filter(|container| had_ended(container) && is_the_same(container));
    ended.map(|container| container.name.clone()).collect()
}

/// Waits until the pod runs again, or is stopped for another reason.
#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
fn wait(client: &Client, until: Instant) -> Result<PodReport, ClientError> {
    let mut seen = 0;
    loop {
        let pod = PodReport::of_answer(client.inspect()?);
        let is_stopped = pod.stop.as_ref().is_some_and(|stop| stop.reason != StopReason::RESTART);
        if runs_again(&pod) || is_stopped || Instant::now() >= until {
            return Ok(pod);
        }
        seen = client.events(seen, EVENT_WAIT)?.events.last().map_or(seen, |event| event.sequence);
    }
}

fn runs_again(pod: &PodReport) -> bool {
    pod.stop.is_none() && pod.containers.iter().all(is_at_work)
}

/// What waits, starts or ends is not: an init is until it has completed. A caller may have left out a container.
fn is_at_work(container: &ContainerReport) -> bool {
    let is_init = container.role == Role::INIT;
    match container.state {
        State::RUNNING | State::PAUSED => !is_init,
        State::HELD => container.role == Role::STANDBY,
        State::COMPLETED | State::STOPPED | State::EXITED | State::NOT_CREATED => true,
        _ => matches!(container.role, Role::SANDBOX | Role::PASSTHROUGH),
    }
}

fn show(name: &str, took: Duration, pod: &PodReport, not_run_again: &[String], paint: ColorMode) -> String {
    let seconds = format!("{:.1}s", took.as_secs_f64());
    if runs_again(pod) {
        let restarted = format!("pod {name}: {} in {seconds}\n", paint.text(Colour::Green, "restarted"));
        return match not_run_again {
            [] => restarted,
            names => {
                let names = names.join(", ");
                restarted + &format!("not run again, as their caller has seen their exits: {names}\n")
            }
        };
    }
    let why = match &pod.stop {
        Some(stop) if stop.reason != StopReason::RESTART => {
            format!("it is being stopped ({})", stop.reason.word())
        }
        _ => {
            let waiting = pod.containers.iter().filter(|container| !is_at_work(container));
            let words = waiting.map(|container| match &container.held_for {
                Some(reason) => format!("{} waits for {reason}", container.name),
                None => format!("{} is {}", container.name, container.state_word),
            });
            words.collect::<Vec<_>>().join(", ")
        }
    };
    format!("pod {name}: {} after {seconds}: {why}\n", paint.text(Colour::Red, "not restarted"))
}
