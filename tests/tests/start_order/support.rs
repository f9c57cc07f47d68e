//! Helpers that the tests of this binary share: durations, and looking at containers from outside the CRI. Knows no
//! rule.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::cri::ContainerState;
pub(crate) use e2e::durations::{AMPLE, REMAKING, SOON, TOLERANCE, at_most, milliseconds, near, seconds};
use e2e::{Containerd, Event, RunningPod, Timeline, wait};

/// A gate that opens in the sidecar's run number `run` (from 1), as soon as the program has recorded its start. With
/// run 1 the order of lines in the log is certain. By U1 alone it is not: after its exec a program has written nothing
/// yet.
pub(crate) fn ready_in_run(name: &str, run: u32, options: &str) -> String {
    format!(r#"exec:sh -c 'test $(grep -c "{name} Starting" /pod/timeline.log) -ge {run}';{options}"#)
}

/// Waits until each of these containers has recorded that its program has started.
pub(crate) async fn wait_started(pod: &RunningPod<'_>, names: &[&str]) -> Result<Timeline> {
    for name in names {
        pod.wait_for(name, Event::Started, 1, SOON).await?;
    }
    pod.timeline()
}

/// Waits until these containers have exited, and checks their exit codes.
pub(crate) async fn exit_with(pod: &RunningPod<'_>, expected: &[(&str, i32)]) -> Result<()> {
    for (name, code) in expected {
        let status = pod.wait_exited(name, SOON).await?;
        ensure!(status.exit_code == *code, "{name} must exit with {code}: {status:?}\n{}", pod.timeline()?);
    }
    Ok(())
}

/// Checks that the CRI shows these containers as running.
pub(crate) async fn are_running(pod: &RunningPod<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        let status = pod.status(name).await?;
        let running = status.state() == ContainerState::ContainerRunning;
        ensure!(running, "{name} must be running: {status:?}\n{}", pod.timeline()?);
    }
    Ok(())
}

/// When each run of a container began, since the Unix epoch.
pub(crate) fn starts(timeline: &Timeline, name: &str) -> Vec<Duration> {
    timeline.of(name, Event::Starting).map(|entry| entry.at).collect()
}

/// An answer of the CRI as its server wrote it: printing a gRPC status escapes the quotes of its message.
pub(crate) fn message(error: &anyhow::Error) -> String {
    format!("{error:#}").replace("\\\"", "\"")
}

/// The lines that podshim wrote into a container's log, without times and stream names.
pub(crate) fn lines_of_podshim(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.split_once(" stderr F podshim: ").map(|(_, text)| text)).collect()
}

/// The reason for which a container is held, from its own log.
pub(crate) async fn held_for(pod: &RunningPod<'_>, name: &str) -> Result<String> {
    wait::until("the hold's line", SOON, async || {
        let output = pod.output(name)?;
        Ok(lines_of_podshim(&output).first().map(|line| (*line).to_owned()))
    })
    .await
}

/// A task as `ctr task ls` shows it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Task {
    pub(crate) pid: libc::pid_t,
    pub(crate) status: String,
}

/// The task of a container, or of a sandbox, of a CRI pod.
pub(crate) async fn task(node: &Containerd, id: &str) -> Result<Task> {
    let list = node.ctr().run(&["-n", "k8s.io", "task", "ls"]).await?;
    let words = list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut found = words.filter_map(|words| <[&str; 3]>::try_from(words).ok());
    let [_, pid, status] =
        found.find(|[task, _, _]| *task == id).with_context(|| format!("no {id} in {list}"))?;
    Ok(Task { pid: pid.parse()?, status: status.to_owned() })
}
