//! The README's three commands, from nothing to an ordered pod on a cluster: read from there and run as they are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::durations::seconds;
use e2e::{Cluster, hack, wait};

use crate::readme_commands::{DIRECTORY, commands};
use crate::support::SOON;

/// U2, T1: the log that the README shows has the hold, and the app's start after it; `delete` then stops the app.
#[tokio::test]
async fn u2_t1_three_commands_show_an_ordered_pod() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?;
    let readme = fs::read_to_string(root.join("README.md"))?;
    let directory = PathBuf::from(format!("{}-readme", Cluster::connect()?.directory().display()));
    // A cluster of its own in place of the README's directory; paths are from the project's root.
    let words = |command: &[&str]| -> Vec<PathBuf> {
        let word = |word: &&str| match *word {
            DIRECTORY => directory.clone(),
            file if file.starts_with("hack/") => root.join(file),
            word => word.into(),
        };
        command.iter().map(word).collect()
    };
    let commands = commands(&readme);
    let [up, apply, logs] = commands.map_err(|calls| anyhow::anyhow!("not three commands: {calls:?}"))?;
    hack("cluster", words(&up)).await?;
    let result = async {
        hack("cluster", words(&apply)).await?;
        // The log ends with the app. The pod is Ready while the app is held (U9).
        let app = ["kubectl", DIRECTORY, "logs", "shop", "app"];
        let delete = ["kubectl", DIRECTORY, "delete", "pod", "shop"];
        let deleted = async {
            wait::until_seen_every(seconds(1), "the app to start", SOON, async || {
                // The container is not there at first.
                let log = hack("cluster", words(&app)).await.unwrap_or_default();
                Ok(log.contains("app Started").then_some(()))
            })
            .await?;
            hack("cluster", words(&delete)).await
        };
        let (log, _) = tokio::try_join!(hack("cluster", words(&logs)), deleted)?;
        let place = |words: &str| log.find(words).with_context(|| format!("no {words:?} in the log:\n{log}"));
        let (held, started) = (place("podshim: held: waiting for sidecar \"proxy\"")?, place("app Started")?);
        let stopped = place("app Term")?;
        ensure!(held < started && started < stopped, "{log}");
        anyhow::Ok(())
    };
    let result = result.await;
    hack("cluster", words(&["down", DIRECTORY])).await?;
    result
}
