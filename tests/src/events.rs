//! containerd's event stream, recorded by `ctr events`. Owns that process and its file; tests decide which order is
//! right.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::process::{Child, Command};

use crate::{Containerd, command, wait};

/// A recorder that needs longer than this to see an event has no subscription.
const SUBSCRIPTION: Duration = Duration::from_secs(20);

static NEXT: AtomicU32 = AtomicU32::new(0);

/// An event about one task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskEvent {
    /// Its topic without the leading `/tasks/`: `create`, `exit`, `exec-started`.
    pub topic: String,
    /// The exec it is about; `None` for the container itself.
    pub exec: Option<String>,
    /// The process, where the event names one.
    pub pid: Option<u64>,
    /// Exit code of `exit` and `delete`; containerd leaves out a zero.
    pub exit_status: u64,
}

/// Records events from [`record`](Self::record) until it is dropped.
#[derive(Debug)]
pub struct EventLog {
    // The recording shell ends when its stdin closes.
    _recorder: Child,
    file: PathBuf,
}

impl EventLog {
    /// Subscribes. Every event after the return is recorded.
    ///
    /// # Errors
    /// If an event that this function causes does not arrive.
    pub async fn record(node: &Containerd) -> Result<Self> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mark = format!("events-{}-{number}", std::process::id());
        let file = node.directory().join(&mark);
        // Ends when this process closes its end of the stdin, also by being killed.
        let script = format!("ctr events >{} & read -r _; kill $!", file.display());
        let recorder = Command::new(command::script("ctr"))
            .arg("--dir")
            .arg(node.directory())
            .args(["--run", "sh", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()?;
        let log = Self { _recorder: recorder, file };
        wait::until("the event subscription", SUBSCRIPTION, async || {
            // A label on an image causes an event and disturbs no test.
            let label = format!("podshim.test/{mark}=yes");
            node.ctr().run(&["images", "label", "podshim.test/busybox:1", &label]).await?;
            Ok((!std::fs::read_to_string(&log.file).unwrap_or_default().is_empty()).then_some(()))
        })
        .await?;
        Ok(log)
    }

    /// The task events of one container so far, as containerd published them.
    ///
    /// # Errors
    /// If a line has another form than `ctr` 1.6 and later write.
    pub fn of(&self, container: &str) -> Result<Vec<TaskEvent>> {
        let text = std::fs::read_to_string(&self.file)?;
        // The last line may be incomplete.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let mut events = Vec::new();
        for line in lines {
            let Some((_, rest)) = line.split_once(" /tasks/") else { continue };
            let (topic, json) = rest.split_once(' ').with_context(|| format!("no event in {line}"))?;
            let event: serde_json::Value =
                serde_json::from_str(json).with_context(|| format!("not JSON: {line}"))?;
            let text = |key: &str| event[key].as_str().filter(|text| !text.is_empty());
            if text("container_id") != Some(container) {
                continue;
            }
            let exec = text("exec_id").or(text("id").filter(|process| *process != container));
            events.push(TaskEvent {
                topic: topic.to_owned(),
                exec: exec.map(str::to_owned),
                pid: event["pid"].as_u64(),
                exit_status: event["exit_status"].as_u64().unwrap_or_default(),
            });
        }
        Ok(events)
    }

    /// Waits for the first event of a container that `wanted` accepts, and returns all of its events.
    ///
    /// # Errors
    /// If it does not come in time; the error shows what came.
    pub async fn wait_for(
        &self,
        container: &str,
        within: Duration,
        wanted: impl Fn(&TaskEvent) -> bool,
    ) -> Result<Vec<TaskEvent>> {
        wait::until("an event", within, async || {
            let events = self.of(container)?;
            Ok(events.iter().any(&wanted).then_some(events))
        })
        .await
        .with_context(|| format!("events of {container}: {:#?}", self.of(container)))
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        // An error does no harm: the file has been read, and the instance's directory is removed with the instance.
        let _ = std::fs::remove_file(&self.file);
    }
}
