//! `podshim inspect`: shows all that is known of one pod.

use std::io::stdout;
use std::time::Duration;

use clap::Args;
use control_api::client::ClientError;
use control_api::container::State;
use control_api::event::Cause;
use pod_spec::DurationText;

use super::ps::{age, colour_of_container};
use crate::arguments::{NodeArguments, PodArgument, ResultArguments};
use crate::clock::now_ms;
use crate::outcome::{CommandError, Outcome};
use crate::output::{ColorMode, Colour, Format, Table, print, print_json};
use crate::pods::{ContainerReport, PodReport, PodState, STOPPING, display_name};
use crate::shims::Shim;
use crate::terminal::columns;
use crate::words::DisplayWord;

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Shows a pod: each container's role, state, gate and what it waits for, restarts, real exit codes beside those that callers
see, signals that wait for their turn or that a container ignores, what the kernel killed for memory, and what is left of a stop's
time; and the processor time that podshim spent for
the pod outside of its containers' cgroups: the shim, exec probes, hooks, restarts, requests.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 there is no such pod, or its shim is dead or does not answer; 2 wrong arguments.";

/// Arguments of `podshim inspect`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    pod: PodArgument,
}

/// Runs the command.
///
/// # Errors
/// No such pod.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let entry = arguments.pod.find(&arguments.node)?;
    let pod = PodReport::of(Shim::asked(entry));
    match arguments.result.format() {
        Format::Json => print_json(&pod)?,
        Format::Text => print(&show(&pod, now_ms(), ColorMode::of(&stdout())))?,
    }
    let known = !matches!(pod.state, PodState::ShimDead | PodState::ShimSilent);
    Ok(if known { Outcome::Success } else { Outcome::Findings })
}

/// A hook takes some milliseconds: they are not rounded away.
fn spent(milliseconds: u64) -> String {
    if milliseconds < 1000 { format!("{milliseconds}ms") } else { duration(milliseconds) }
}

fn show(pod: &PodReport, now_ms: i64, paint: ColorMode) -> String {
    let mut text = format!("{}\n", paint.text(Colour::Bold, &format!("Pod {}", pod.title())));
    let mut line = |key: &str, value: String| text += &format!("  {key:<12} {value}\n");
    line("id", pod.id.clone());
    if let Some(uid) = &pod.uid {
        line("uid", uid.clone());
    }
    line("containerd", format!("namespace {}", pod.namespace));
    if let (Some(release), Some(at)) = (&pod.release, pod.started_at_ms) {
        line("shim", format!("podshim {release}, started {} ago", age(now_ms - at)));
    }
    if let Some(away) = pod.longest_away_ms {
        let on = pod.longest_away_on.as_deref().map(|on| format!(", on {on}")).unwrap_or_default();
        line("longest away", format!("{away}ms{on}"));
    }
    if let Some(now @ 1..) = pod.streams_away_ms {
        line("streams", format!("a container has held up a thread of theirs for {}", duration(now)));
    } else if let Some(longest @ 1000..) = pod.streams_longest_away_ms {
        line("streams", format!("a container held up a thread of theirs for {}", duration(longest)));
    }
    if let Some(cost) = &pod.cost {
        let parts = cost.parts().into_iter().filter(|(_, time)| *time > 0);
        let parts: Vec<_> = parts.map(|(name, time)| format!("{name} {}", spent(time))).collect();
        line("processor", if parts.is_empty() { "-".to_owned() } else { parts.join(", ") });
    }
    line("state", pod.state.words().to_owned());
    if let Some(fault) = &pod.fault {
        line("fault", paint.text(Colour::Red, fault));
    }
    if let Some(own) = pod.kubelets_own.as_ref().filter(|own| !own.is_empty()) {
        line("kubelet's", own.join(", "));
    }
    if let Some(stop) = &pod.stop {
        let left = stop.left_ms.map(|left| format!(", {} left", duration(left))).unwrap_or_default();
        let [reason, budget] = [stop.reason.word(), &stop.budget.word()];
        line("stop", format!("{reason}; budget {budget}{left}"));
    }
    if let Some(error) = &pod.error {
        line("error", paint.text(Colour::Red, error));
    }
    if pod.state == PodState::ShimDead {
        text += "\nAs soon as containerd notices, or is started again, it runs podshim's `delete`: that ends the pod's containers,\n\
                 in the plan's order as far as four seconds allow. A pod that stays here has no containerd: start it.\n";
    }
    if !pod.containers.is_empty() {
        let mut table = Table::new(&["CONTAINER", "ROLE", "STATE", "PID", "GATE", "RESTARTS", "EXIT"]);
        for container in &pod.containers {
            table.row(row(container, &pod.id, now_ms));
        }
        text += &format!("\n{}", table.show(paint, columns()));
        let notes: String = pod.containers.iter().flat_map(|container| notes(container, &pod.id)).collect();
        if !notes.is_empty() {
            text += &format!("\n{notes}");
        }
    }
    text
}

fn row(container: &ContainerReport, pod_id: &str, now_ms: i64) -> Vec<(String, Option<Colour>)> {
    let dash = || "-".to_owned();
    let gate = match (&container.gate, container.gate_state) {
        (Some(gate), Some(state)) => format!("{gate} ({})", state.word()),
        _ => dash(),
    };
    let exit = match (container.real_exit_code, container.shown_exit_code) {
        (Some(real), Some(shown)) if real != shown => format!("{real}, shown as {shown}"),
        (Some(code), _) | (None, Some(code)) if container.out_of_memory => format!("{code} {OOM_KILLED}"),
        (Some(code), _) | (None, Some(code)) => code.to_string(),
        (None, None) => dash(),
    };
    let state = match container.exited_at_ms.filter(|_| container.state == State::EXITED) {
        Some(at) => format!("exited {} ago", age(now_ms - at)),
        None => container.state_word.clone(),
    };
    vec![
        (display_name(&container.name, pod_id), None),
        (container.role.word(), None),
        (state, colour_of_container(container)),
        (container.pid.map_or_else(dash, |pid| pid.to_string()), None),
        (gate, None),
        (container.all_restarts().to_string(), None),
        (exit, None),
    ]
}

fn notes(container: &ContainerReport, pod_id: &str) -> Vec<String> {
    let name = display_name(&container.name, pod_id);
    let held = container.held_for.as_ref().map(|reason| format!("{name}: held, waiting for {reason}\n"));
    let signal = container.pending_signal.as_ref();
    let signal = signal.map(|signal| format!("{name}: {signal} waits for its turn\n"));
    let stop = container.stopping_for_ms.zip(container.stop_signal.as_ref()).map(|(time, signal)| {
        let why = container.stop_cause.map(Cause::because).unwrap_or_default();
        format!("{name}: {STOPPING} since {signal} {} ago: {why}\n", duration(time))
    });
    let kill = container.kill_in_ms.map(|left| format!("{name}: SIGKILL in {}\n", duration(left)));
    let restart =
        container.restart_in_ms.map(|left| format!("{name}: started again in {}\n", duration(left)));
    let recent = container.restarts_total.filter(|total| *total != container.restarts).map(|total| {
        format!("{name}: {total} restarts, {} since it last ran for ten minutes\n", container.restarts)
    });
    let memory = container.oom_kills.filter(|kills| *kills > 0).map(|kills| {
        let last = if container.out_of_memory { ", at last in the run that ended last" } else { "" };
        format!("{name}: {OOM_KILLED} {}{last}\n", times(kills))
    });
    [held, signal, stop, kill, restart, recent, memory].into_iter().flatten().collect()
}

/// What the kernel did to it for memory, as Kubernetes calls it.
pub(super) const OOM_KILLED: &str = "OOM killed";

/// How often, for people.
pub(super) fn times(count: u32) -> String {
    match count {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        more => format!("{more} times"),
    }
}

/// A duration for people: tenths of a second are enough.
fn duration(milliseconds: u64) -> String {
    DurationText(Duration::from_millis(milliseconds / 100 * 100)).to_string()
}

/// The error of a call to a shim, with the pod's name.
pub(crate) fn failed(pod: &str, source: ClientError) -> CommandError {
    CommandError::Shim { pod: pod.to_owned(), source }
}
