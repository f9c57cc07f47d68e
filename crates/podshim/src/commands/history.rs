//! `podshim history`: the pods that were on this node.

use std::io::stdout;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use control_api::container::Role;
use serde::Serialize;

use super::inspect::{OOM_KILLED, times};
use super::ps::age;
use crate::arguments::{HistoryArguments, NamespaceArgument, ResultArguments, duration_or_seconds};
use crate::clock::now_ms;
use crate::events::{date, time_of_day};
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Cut, Format, Table, print, print_json};
use crate::past::{self, PastReport};
use crate::pods::{ContainerReport, PodState, display_name};
use crate::terminal::columns;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Lists the pods that have ended on this node, the newest last, one line each; on a narrow terminal restarts and exit codes have a
line of their own. `podshim timeline --past POD` draws one.

RESULT is `completed` or `failed` if the pod's restart policy says that it has ended, else `stopped`. WHY is what began its
stop: caller (a kubelet, crictl, ctr), requested (podshim stop, a drain), completed, init-failed, sidecar-failed, fatal,
zero-grace, sandbox (its caller stopped it, or it ended, before any other stop began), or shim-killed; `-` if the pod ended
without a stop. EXIT CODES are the real ones, and beside each the one that the caller saw, if that differs; `?` where the shim
was killed before the container ended, so that no process saw its code. `OOM killed`: the kernel killed a process of it for
memory, in the run that ended last, or so often before.

podshim writes a record when a pod ends, even if the pod's shim was killed. It keeps 7 days, 64 MiB in all and 8 MiB of each
namespace; history-age, history-size and history-namespace-size in /etc/podshim/config.toml change that. A record has no
commands and no environment.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 no such pod, or a record cannot be read (all others are still listed); 2 wrong arguments.";

/// Arguments of `podshim history`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Only pods that ended since then, such as 12h or 30m; a bare number is seconds
    #[arg(long, value_name = "TIME", value_parser = duration_or_seconds)]
    since: Option<Duration>,
    #[command(flatten)]
    namespace: NamespaceArgument,
    #[command(flatten)]
    history: HistoryArguments,
    #[command(flatten)]
    result: ResultArguments,
    /// A pod's name, namespace/name or id, or a prefix of one
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

#[derive(Serialize)]
struct Report<'a> {
    pods: &'a [PastReport],
    unreadable: &'a [PathBuf],
}

/// Runs the command.
///
/// # Errors
/// The directory cannot be read.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let root = &arguments.history.history_dir;
    let since_ms = arguments.since.map_or(i64::MIN, |since| {
        now_ms().saturating_sub(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    });
    let (mut pods, unreadable) = past::list(root, since_ms)?;
    pods.retain(|pod| pod.is_in(arguments.namespace.namespace.as_deref()));
    if let Some(name) = &arguments.name {
        pods.retain(|pod| pod.has_name(name));
        if pods.is_empty() && arguments.result.format() == Format::Text {
            return Err(CommandError::Input(format!("no record of a pod {name:?} in {}", root.display())));
        }
    }
    match arguments.result.format() {
        Format::Json => print_json(&Report { pods: &pods, unreadable: &unreadable })?,
        Format::Text => print(&show(&pods, &unreadable, ColorMode::of(&stdout()), columns()))?,
    }
    Ok(if unreadable.is_empty() { Outcome::Success } else { Outcome::Findings })
}

/// What tells pods apart: time and name.
const CUTS: [Cut; 2] = [Cut::Never, Cut::Middle];
/// Where the second line of a pod begins: below its name.
const INDENT: usize = "2026-11-21 02:30:00  ".len();

/// One line each. Where that is wider than the terminal, restarts and exit codes have a line of their own.
fn show(pods: &[PastReport], unreadable: &[PathBuf], paint: ColorMode, columns: Option<usize>) -> String {
    let mut one_line =
        Table::new(&["ENDED (UTC)", "POD", "LIVED", "RESULT", "WHY", "RESTARTS", "EXIT CODES"])
            .cutting(&CUTS);
    let mut short = Table::new(&["ENDED (UTC)", "POD", "LIVED", "RESULT", "WHY"]).cutting(&CUTS);
    let mut second_lines = Vec::new();
    for past in pods {
        let time = time_of_day(past.ended_at_ms);
        let seconds = time.split('.').next().unwrap_or_default();
        let ended = past.pod.containers.iter().filter(|container| container.role != Role::SANDBOX);
        let codes: Vec<_> = ended.filter_map(|container| exit(container, &past.pod.id)).collect();
        let codes = if codes.is_empty() { "-".to_owned() } else { codes.join(", ") };
        let row = vec![
            (format!("{} {seconds}", date(past.ended_at_ms)), None),
            (past.pod.title(), None),
            (past.lived_ms().map_or_else(|| "-".to_owned(), age), None),
            (past.pod.state.words().to_owned(), colour_of(past.pod.state)),
            (past.why(), None),
        ];
        second_lines.push(format!("restarts {}; {codes}", past.restarts()));
        short.row(row.clone());
        one_line.row(row.into_iter().chain([(past.restarts(), None), (codes, None)]).collect());
    }
    let mut text = match columns {
        Some(columns) if one_line.width() > columns => {
            let shown = short.show(paint, Some(columns));
            let below = second_lines.iter().map(|line| wrapped(line, columns));
            let below = std::iter::once(String::new()).chain(below);
            shown.lines().zip(below).map(|(line, below)| format!("{line}\n{below}")).collect()
        }
        _ => one_line.show(paint, None),
    };
    for file in unreadable {
        text += &format!("cannot read {}: no record of podshim; remove it\n", file.display());
    }
    text
}

/// A text as lines below the name, each as long as there is room.
fn wrapped(text: &str, columns: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().filter(|line| {
            line.is_empty() || INDENT + line.chars().count() + 1 + word.chars().count() <= columns
        });
        match last {
            Some(line) if line.is_empty() => *line += word,
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_owned()),
        }
    }
    lines.iter().map(|line| format!("{:INDENT$}{line}\n", "")).collect()
}

/// A container's real exit code, and the code that its caller saw if that differs. `None` if it has not run.
fn exit(container: &ContainerReport, pod_id: &str) -> Option<String> {
    let name = display_name(&container.name, pod_id);
    // Also one that was restarted in place since, and has ended well.
    let memory = match (container.out_of_memory, container.oom_kills) {
        (true, _) => format!(" {OOM_KILLED}"),
        (false, Some(kills)) if kills > 0 => format!(" ({OOM_KILLED} {})", times(kills)),
        (false, _) => String::new(),
    };
    Some(match (container.real_exit_code, container.shown_exit_code) {
        (Some(real), Some(shown)) if shown != real => format!("{name} {real}{memory} (shown as {shown})"),
        (Some(real), _) => format!("{name} {real}{memory}"),
        (None, _) => {
            container.exited_at_ms?;
            format!("{name} ?")
        }
    })
}

fn colour_of(state: PodState) -> Option<Colour> {
    match state {
        PodState::Completed => Some(Colour::Green),
        PodState::Failed => Some(Colour::Red),
        _ => None,
    }
}
