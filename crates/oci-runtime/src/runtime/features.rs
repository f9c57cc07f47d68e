//! What an OCI runtime can do: the answer to its `features` command (runtime-spec 1.1).
//!
//! podshim calls it without a container and without the state directory, as containerd's own shim does.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use processes::reaper::{Child, Reaper};
use serde_json::{Map, Value};

use super::command::{Captured, Streams};

/// A runtime answers from its own tables. One that hangs must not delay containerd's start.
const TIME_LIMIT: Duration = Duration::from_secs(5);

/// The runtime's features as compact JSON. `None` if it has no such command (crun before 1.8.6, youki) or prints
/// something other than an object: containerd then treats every feature as missing.
///
/// # Errors
///
/// The system's error if the binary cannot be run at all; `TimedOut` if it has not answered after 5 s.
pub async fn features(reaper: &Reaper, binary: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut command = Command::new(binary);
    // A process group of its own: it can be killed together with the processes it waits for.
    command.arg("features").process_group(0);
    let output = Streams::Captured(Captured::new(None)?).attach(&mut command)?;
    let Child { process, mut exit, report } = reaper.spawn(&mut command)?;
    let Ok(exit) = tokio::time::timeout(TIME_LIMIT, &mut exit).await else {
        // podshim does not wait for the killed runtime: podshim itself ends next.
        killpg(process.pid(), Signal::SIGKILL)?;
        return Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("`features` not answered within {TIME_LIMIT:?}"),
        ));
    };
    if let Some(error) = report.failure() {
        return Err(error);
    }
    let output = (exit.code == 0).then(|| output.stdout());
    let object: Option<Map<String, Value>> = output.and_then(|output| serde_json::from_slice(&output).ok());
    Ok(object.and_then(|object| serde_json::to_vec(&object).ok()))
}

#[cfg(test)]
mod tests;
