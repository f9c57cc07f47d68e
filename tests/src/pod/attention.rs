//! Whether the shim of a removed pod was ever blocked for long (docs/trust.md). Reads the pod's record only, never the shim.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use control_api::Past;
use protobuf::Message;

use super::description::NAMESPACE;
use crate::durations::{LONGEST_AWAY, at_most};
use crate::{Containerd, wait};

/// The shim writes the record after its last answer.
const RECORD: Duration = Duration::from_secs(1);

/// Checks the record that a shim writes when its pod has ended. A shim that was killed leaves none.
///
/// # Errors
/// If the shim's thread served nothing for longer than [`LONGEST_AWAY`].
pub(super) async fn ensure_attentive(node: &Containerd, sandbox: &str) -> Result<()> {
    let record = wait::until("the pod's record", RECORD, async || record(node, sandbox)).await;
    let Some((away, on)) = record.ok().and_then(|past| {
        let pod = past.pod.into_option()?;
        Some((Duration::from_micros(pod.longest_away_us?), pod.longest_away_on))
    }) else {
        return Ok(());
    };
    node.note("longest-away", &format!("{} {on}", away.as_millis()))?;
    ensure_short(away, &on)
}

/// Checks a time for which a shim's thread served nothing.
///
/// # Errors
/// If it is longer than [`LONGEST_AWAY`].
pub fn ensure_short(away: Duration, on: &str) -> Result<()> {
    ensure!(at_most(away, LONGEST_AWAY), "the shim was away for {away:?}, on {on:?}");
    Ok(())
}

/// The record of a removed pod.
fn record(node: &Containerd, sandbox: &str) -> Result<Option<Past>> {
    let directory = node.root()?.join("var/lib/podshim/history").join(NAMESPACE);
    let is_its = |path: &PathBuf| {
        let name = path.to_string_lossy();
        name.ends_with(".past") && name.contains(&sandbox[..13])
    };
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let Some(file) = files.into_iter().find(is_its) else { return Ok(None) };
    Ok(Some(Past::parse_from_bytes(&std::fs::read(file)?)?))
}
