//! `podshim switch`: lets the standby of a sidecar take over (V-rules).

use std::time::Duration;

use clap::Args;

use control_api::client::Client;

use super::inspect::failed;
use crate::arguments::{ExactPodArgument, NodeArguments, ResultArguments, duration_or_seconds};
use crate::outcome::{CommandError, Outcome};
use crate::output::{Format, print, print_json};
use crate::shims::{ANSWER_LIMIT, title};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Lets the standby of a sidecar (a plan's proxy|proxy-next=sidecar) take over: podshim starts it, waits for its gate, runs
its migrate hook, and then stops and holds its partner. SIDECAR is either of the two. If the standby fails, the active
one stays as it is, and the command prints the reason.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 there is no such pod, or the switch has failed; 2 wrong arguments.";

/// Arguments of `podshim switch`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// How long to wait for the switch; a bare number is seconds. The switch itself goes on
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration_or_seconds)]
    timeout: Duration,
    #[command(flatten)]
    result: ResultArguments,
    #[command(flatten)]
    node: NodeArguments,
    #[command(flatten)]
    pod: ExactPodArgument,
    /// Either of the two
    #[arg(value_name = "SIDECAR")]
    sidecar: String,
}

/// Runs the command.
///
/// # Errors
/// No such pod or sidecar, a switch that failed.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let (pod, sidecar) = (&arguments.pod.pod, &arguments.sidecar);
    let entry = arguments.pod.find(&arguments.node)?;
    let name = title(&entry);
    Client::connect(&entry.socket, ANSWER_LIMIT)
        .and_then(|client| client.switch(sidecar, arguments.timeout))
        .map_err(|source| failed(&name, source))?;
    match arguments.result.format() {
        Format::Json => print_json(&serde_json::json!({
            "pod": pod, "name": name, "id": entry.id, "sidecar": sidecar, "switched": true,
        }))?,
        Format::Text => print(&format!("pod {name}: the standby of {sidecar} has taken over\n"))?,
    }
    Ok(Outcome::Success)
}
