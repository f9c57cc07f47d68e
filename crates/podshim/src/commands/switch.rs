//! `podshim switch`: lets the standby of a sidecar take over (V-rules).

use std::ffi::OsString;
use std::time::Duration;

use super::inspect::{connect, failed};
use crate::arguments::{CommandError, Outcome, Parsed, pod_arguments};
use crate::output::{Format, print, print_json};

const NAME: &str = "switch";
/// The text of `-h`.
pub const HELP: &str = "\
usage: podshim switch [--timeout TIME] [--json] [--run-dir DIR] POD SIDECAR

Lets the standby of a sidecar (a plan's proxy|proxy-next=sidecar) take over: podshim starts it, waits for its gate, runs
its migrate hook, and then stops and holds its partner. SIDECAR is either of the two. If the standby fails, the active
one stays as it is, and the command prints the reason.

POD is a pod's name, namespace/name or id, or a unique prefix of one.

  --timeout TIME  how long to wait for the switch (5m); a bare number is seconds. The switch itself goes on
  --json          for programs: docs/podshim-json.md
  --run-dir DIR   where the shims are found (/run/podshim)
  -h              this help

Exit codes: 0; 1 there is no such pod, or the switch has failed; 2 wrong arguments.
";

const TIMEOUT: Duration = Duration::from_secs(300);

/// Runs the command.
///
/// # Errors
/// A wrong call, no such pod or sidecar, a switch that failed.
pub fn run(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let arguments = match pod_arguments(NAME, arguments, &["POD", "SIDECAR"], &[], &["timeout"])? {
        Parsed::Help => return Ok(print(HELP).map(|()| Outcome::Success)?),
        Parsed::Run(arguments) => arguments,
    };
    let within = arguments.duration(NAME, "timeout")?.unwrap_or(TIMEOUT);
    let (pod, sidecar) = (&arguments.words[0], &arguments.words[1]);
    connect(&arguments.root, pod)?.switch(sidecar, within).map_err(|source| failed(pod, source))?;
    match arguments.format {
        Format::Json => print_json(&serde_json::json!({ "pod": pod, "sidecar": sidecar, "switched": true }))?,
        Format::Text => print(&format!("pod {pod}: the standby of {sidecar} has taken over\n"))?,
    }
    Ok(Outcome::Success)
}
