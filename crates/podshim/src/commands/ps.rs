//! `podshim ps`: lists the pods of the node, with each container's role and state.

use std::error::Error;
use std::fmt;
use std::io::stdout;
use std::time::Duration;

use clap::Args;
use control_api::container::{Role, State};
use node_state::entry::Entry;
use pod_spec::nearest_word;
use serde::Serialize;

use crate::arguments::{NamespaceArgument, NodeArguments, ResultArguments};
use crate::clock::now_ms;
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Cut, Format, Table, print, print_json};
use crate::pods::{ContainerReport, PodReport, PodState, STOPPING, display_name};
use crate::shims::{self, FindError, SHORT_ID};
use crate::terminal::columns;
use crate::words::DisplayWord;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Lists the pods of this node that podshim runs: their containers in the order of the plan, with role and state. It asks
all shims at once and waits two seconds; a shim that is dead or does not answer is listed as such.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 there is no such POD, or the directory cannot be read; 2 wrong arguments.";

/// Arguments of `podshim ps`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Only pods in this state, such as running, stopping or failed
    #[arg(long, value_name = "STATE", value_parser = state)]
    state: Option<PodState>,
    /// Also show the release of each pod's shim
    #[arg(long)]
    wide: bool,
    #[command(flatten)]
    namespace: NamespaceArgument,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    node: NodeArguments,
    /// Only these: a name, namespace/name or id, or a prefix of one
    #[arg(value_name = "POD")]
    pods: Vec<String>,
}

/// A state by its word in `--json` or in the table.
fn state(text: &str) -> Result<PodState, UnknownState> {
    let word = text.replace(' ', "-");
    PodState::ALL.into_iter().find(|state| word_of(*state) == word).ok_or(UnknownState { word })
}

fn word_of(state: PodState) -> String {
    state.words().replace(' ', "-")
}

/// No state of a pod.
#[derive(Debug)]
struct UnknownState {
    word: String,
}

impl Error for UnknownState {}

impl fmt::Display for UnknownState {
    /// The word itself is in what is said before.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = PodState::ALL.map(word_of);
        write!(formatter, "one of {}", words.join(", "))?;
        match nearest_word(&self.word, words.iter().map(String::as_str)) {
            Some(nearest) => write!(formatter, " (did you mean {nearest:?}?)"),
            None => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct Report {
    pods: Vec<PodReport>,
}

/// Runs the command.
///
/// # Errors
/// The directory cannot be read.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let mut shims = shims::all(&arguments.node.run_dir)?;
    shims.retain(|shim| arguments.lists(&shim.entry));
    if shims.is_empty() && !arguments.pods.is_empty() {
        return Err(FindError::Unknown { pod: arguments.pods.join(" ") }.into());
    }
    let mut pods: Vec<_> = shims.into_iter().map(PodReport::of).collect();
    pods.retain(|pod| arguments.state.is_none_or(|state| pod.state == state));
    match arguments.result.format() {
        Format::Json => print_json(&Report { pods })?,
        Format::Text => {
            let shown = if arguments.wide { Shown::WithShim } else { Shown::Usual };
            print(&show(&pods, shown, now_ms(), ColorMode::of(&stdout()), columns()))?;
        }
    }
    Ok(Outcome::Success)
}

impl Arguments {
    fn lists(&self, entry: &Entry) -> bool {
        let is_in = |namespace: &String| entry.pod_namespace == *namespace;
        self.namespace.namespace.as_ref().is_none_or(is_in)
            && (self.pods.is_empty() || shims::is_one_of(entry, &self.pods))
    }
}

/// Which columns are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    Usual,
    /// With the release of the pod's shim.
    WithShim,
}

fn show(pods: &[PodReport], shown: Shown, now_ms: i64, paint: ColorMode, columns: Option<usize>) -> String {
    let mut headings = vec!["POD ID", "POD", "AGE", "STATUS", "CONTAINER", "ROLE", "STATE", "RESTARTS"];
    headings.extend((shown == Shown::WithShim).then_some("SHIM"));
    let mut table = Table::new(&headings).cutting(&[Cut::Never, Cut::Middle]);
    for pod in pods {
        let id: String = pod.id.chars().take(SHORT_ID).collect();
        let title = pod.name.as_ref().map_or_else(|| "-".to_owned(), |_| pod.title());
        let age = pod.started_at_ms.map_or_else(|| "-".to_owned(), |at| age(now_ms - at));
        let mut first = vec![(id, None), (title, None), (age, None)];
        first.push((pod.state.words().to_owned(), colour_of(pod.state)));
        let mut shim =
            (shown == Shown::WithShim).then(|| pod.release.clone().unwrap_or_else(|| "-".to_owned()));
        let mut containers =
            pod.containers.iter().filter(|container| container.role != Role::SANDBOX).peekable();
        if containers.peek().is_none() {
            first.extend(["-", "-", "-", "-"].map(|dash| (dash.to_owned(), None)));
            first.extend(shim.map(|shim| (shim, None)));
            table.row(first);
            continue;
        }
        for container in containers {
            let mut row =
                if first.is_empty() { vec![(String::new(), None); 4] } else { std::mem::take(&mut first) };
            row.push((display_name(&container.name, &pod.id), None));
            row.push((container.role.word(), None));
            row.push((state_of(container), colour_of_container(container)));
            row.push((container.all_restarts().to_string(), None));
            row.extend(shim.take().map(|shim| (shim, None)));
            table.row(row);
        }
    }
    let mut text = table.show(paint, columns);
    for (pod, fault) in pods.iter().filter_map(|pod| Some((pod, pod.fault.as_ref()?))) {
        text += &format!("{}: {fault}\n", pod.title());
    }
    text
}

/// The colour of a pod's state; `None` for the terminal's own.
pub(super) fn colour_of(state: PodState) -> Option<Colour> {
    match state {
        PodState::Running | PodState::Completed => Some(Colour::Green),
        PodState::Stopping | PodState::Restarting => Some(Colour::Yellow),
        PodState::Stopped => None,
        PodState::Failed | PodState::ShimDead | PodState::ShimSilent => Some(Colour::Red),
    }
}

/// A container's state with what matters most of it: its exit code, or since when it ignores a signal that is to end it.
fn state_of(container: &ContainerReport) -> String {
    match (container.state, container.real_exit_code, container.stopping_for_ms, container.stop_cause) {
        (State::EXITED, Some(code), ..) => format!("exited ({code})"),
        (State::RUNNING, _, Some(time), Some(cause)) => {
            let time = age(i64::try_from(time).unwrap_or(i64::MAX));
            format!("{STOPPING} {time} ({})", cause.word())
        }
        _ => container.state_word.clone(),
    }
}

/// The colour of a container's state; `None` for the terminal's own.
pub(crate) fn colour_of_container(container: &ContainerReport) -> Option<Colour> {
    match container.state {
        State::RUNNING if container.stopping_for_ms.is_some() => Some(Colour::Yellow),
        State::RUNNING | State::COMPLETED => Some(Colour::Green),
        State::STOPPED | State::EXITED => None,
        _ => Some(Colour::Yellow),
    }
}

/// A duration as one number with its unit, as kubectl shows ages.
pub(crate) fn age(milliseconds: i64) -> String {
    let seconds = Duration::from_millis(u64::try_from(milliseconds).unwrap_or_default()).as_secs();
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_are_one_number() {
        let seconds = |seconds: i64| age(seconds * 1000);
        assert_eq!([seconds(0), seconds(119), seconds(120), seconds(7199)], ["0s", "119s", "2m", "119m"]);
        assert_eq!([seconds(7200), seconds(172_799), seconds(172_800)], ["2h", "47h", "2d"]);
        assert_eq!(age(-5), "0s", "a clock that was set back");
    }
}
