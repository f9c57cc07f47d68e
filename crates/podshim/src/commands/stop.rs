//! `podshim stop`: stops one pod in order, and waits for its end.

use std::io::stdout;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use control_api::client::{Client, ClientError};
use control_api::container::State;
use node_state::entry::Entry;
use node_state::past;
use node_state::paths::NODE_FILE;
use pod_spec::{BoundedDuration, Node};
use serde::Serialize;

use super::inspect::failed;
use crate::arguments::{
    ExactPodArgument, HistoryArguments, NodeArguments, ResultArguments, duration_or_seconds,
};
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, milliseconds, print, print_json};
use crate::pods::PodReport;
use crate::shims::{ANSWER_LIMIT, title};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Stops a pod in order (mains, then sidecars in reverse, then the sandbox) within one budget, and waits for the end and for the
pod's record, which `podshim timeline --past` draws. podshim restarts nothing of the pod and refuses new containers; the caller
that created it still has to remove it.";
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
    history: HistoryArguments,
    #[command(flatten)]
    pod: ExactPodArgument,
}

/// Two seconds after the budget podshim has sent SIGKILL to all that is left of the pod (T6); five more are for the
/// kernel to end it.
const AFTER_BUDGET: Duration = Duration::from_secs(2 + 5);
/// How long one call waits for an event before the pod's state is read again.
const EVENT_WAIT: Duration = Duration::from_secs(1);

/// How long to wait until the caller has deleted what has ended, so that the shim ends, and then until the pod's record is
/// written: containerd deletes at once, and the record waits for a disk.
const UNTIL_GONE: Duration = Duration::from_secs(5);
const UNTIL_RECORDED: Duration = Duration::from_secs(5);
/// How often to look for these.
const INTERVAL: Duration = Duration::from_millis(20);

#[derive(Serialize)]
struct Report {
    stopped: bool,
    took_ms: u64,
    /// The pod's whole name, and its id: POD may have been either.
    name: String,
    id: String,
    /// Whether `podshim timeline --past` has it; `null` if podshim keeps no record of this pod.
    recorded: Option<bool>,
    pod: Option<PodReport>,
}

/// Runs the command.
///
/// # Errors
/// No such pod, a shim that does not answer.
#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let root = &arguments.node.run_dir;
    let entry = arguments.pod.find(&arguments.node)?;
    let name = title(&entry);
    let begun = Instant::now();
    let wrong = |source| failed(&name, source);
    let client = Client::connect(&entry.socket, ANSWER_LIMIT).map_err(wrong)?;
    client.stop(arguments.grace).map_err(wrong)?;
    let left = wait(&client, begun).map_err(wrong)?;
    if left.is_none() {
        removed(root, &entry).map_err(wrong)?;
    }
    let took = begun.elapsed();
    let stopped = left.as_ref().is_none_or(PodReport::has_stopped);
    let recorded = if stopped { record(root, &entry, &arguments.history.history_dir) } else { None };
    match arguments.result.format() {
        Format::Json => {
            let took_ms = milliseconds(took);
            print_json(&Report { stopped, took_ms, name, id: entry.id, recorded, pod: left })?;
        }
        Format::Text => {
            print(&show(&name, took, left.as_ref(), ColorMode::of(&stdout())))?;
            if recorded == Some(false) {
                eprintln!("podshim: its record is not written yet: `podshim history` will have it");
            }
        }
    }
    Ok(if stopped { Outcome::Success } else { Outcome::Findings })
}

/// N12: waits until the record of a stopped pod is there, so that `podshim timeline --past` has the pod. `None` if podshim keeps
/// none: one of ctr's may have no plan and then no record, and the node's file may say so. A shim lives until its caller has deleted
/// everything, which ctr's user may do at any time: there a record is not waited for either.
#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
fn record(root: &Path, entry: &Entry, history: &Path) -> Option<bool> {
    if entry.pod_name.is_empty() {
        return None;
    }
    let within = |limit: Duration, is_so: &dyn Fn() -> bool| {
        let until = Instant::now() + limit;
        while !is_so() && Instant::now() < until {
            thread::sleep(INTERVAL);
        }
        is_so()
    };
    let is_gone = || !Entry::list(root).is_ok_and(|all| all.contains(entry));
    if !within(UNTIL_GONE, &is_gone) || keeps_nothing() {
        return None;
    }
    Some(within(UNTIL_RECORDED, &|| past::has(history, &entry.id).unwrap_or(false)))
}

/// Whether the node's file says that no record is kept.
fn keeps_nothing() -> bool {
    let text = std::fs::read_to_string(NODE_FILE).unwrap_or_default();
    Node::parse(&text).is_ok_and(|node| node.history().size == 0 || node.history().namespace_size == 0)
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
        thread::sleep(INTERVAL);
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
fn show(name: &str, took: Duration, left: Option<&PodReport>, paint: ColorMode) -> String {
    let seconds = format!("{:.1}s", took.as_secs_f64());
    if left.is_none_or(PodReport::has_stopped) {
        return format!("pod {name}: {} in {seconds}\n", paint.text(Colour::Green, "stopped"));
    }
    let containers = left.iter().flat_map(|pod| &pod.containers);
    let left: Vec<_> = containers
        .filter(|container| !matches!(container.state, State::STOPPED | State::NOT_CREATED))
        .map(|container| format!("{} is {}", container.name, container.state_word))
        .collect();
    format!("pod {name}: {} after {seconds}: {}\n", paint.text(Colour::Red, "not stopped"), left.join(", "))
}
