//! `podshim history`: the pods that were on this node.

use std::io::stdout;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use control_api::container::Role;
use serde::Serialize;

use super::inspect::{OOM_KILLED, times};
use super::ps::{age, now_ms};
use crate::arguments::{HistoryArguments, ResultArguments, duration_or_seconds};
use crate::events::{date, time_of_day};
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, Table, print, print_json};
use crate::past::{self, PastReport};
use crate::pods::{ContainerReport, PodState, display_name};
use crate::terminal::columns;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Lists the pods that have ended on this node, the newest last, one line each. `podshim timeline --past POD` draws one.

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
    /// Only pods that ended since then, such as 12h or 30m
    #[arg(long, value_name = "DURATION", value_parser = duration_or_seconds)]
    since: Option<Duration>,
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

fn show(pods: &[PastReport], unreadable: &[PathBuf], paint: ColorMode, columns: Option<usize>) -> String {
    let mut table = Table::new(&["ENDED (UTC)", "POD", "LIVED", "RESULT", "WHY", "RESTARTS", "EXIT CODES"]);
    for past in pods {
        let time = time_of_day(past.ended_at_ms);
        let seconds = time.split('.').next().unwrap_or_default();
        let ended = past.pod.containers.iter().filter(|container| container.role != Role::SANDBOX);
        let codes: Vec<_> = ended.filter_map(|container| exit(container, &past.pod.id)).collect();
        table.row(vec![
            (format!("{} {seconds}", date(past.ended_at_ms)), None),
            (past.pod.title(), None),
            (past.lived_ms().map_or_else(|| "-".to_owned(), age), None),
            (past.pod.state.words().to_owned(), colour_of(past.pod.state)),
            (past.why(), None),
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
