//! The pods of hack/vm-shutdown: starts them before the machine goes down, and checks their logs when it is up again.
//! Owns nothing but what they write on the disk; the machine's shutdown stops them.
//!
//! usage: shutdown start DIR HANDLER | shutdown check DIR kept|broken

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::Event::{Exiting, Started, Term};
use e2e::durations::SOON;
use e2e::{Containerd, Pod, Program, RunningPod, Timeline};

const PODS: [&str; 3] = ["one", "two", "three"];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["start", directory, handler] => start(Path::new(directory), handler).await?,
        ["check", directory, "kept"] => each(Path::new(directory), in_order)?,
        ["check", directory, "broken"] => each(Path::new(directory), |timeline| {
            ensure!(in_order(timeline).is_err(), "the order was kept:\n{timeline}");
            Ok(())
        })?,
        _ => bail!("usage: shutdown start DIR HANDLER | shutdown check DIR kept|broken"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts three pods whose containers take a second each to stop. The pods run on when this process has ended.
async fn start(directory: &Path, handler: &str) -> Result<()> {
    let node = Containerd::attach(directory)?;
    for name in PODS {
        let mut pod = Pod::new(name)
            .annotate("plan", "proxy=sidecar, logs=sidecar, app=main")
            .container(Program::new("app").term_delay(Duration::from_secs(1)))
            .container(Program::new("logs").term_delay(Duration::from_secs(1)))
            .container(Program::new("proxy").term_delay(Duration::from_secs(1)))
            .run_handler(&node, handler)
            .await?;
        pod.start_all(&["app", "logs", "proxy"]).await?;
        all_started(&pod).await?;
        println!("pod {name} runs");
    }
    Ok(())
}

async fn all_started(pod: &RunningPod<'_>) -> Result<()> {
    for container in ["app", "logs", "proxy"] {
        pod.wait_for(container, Started, 1, SOON).await?;
    }
    Ok(())
}

/// Checks T1: every container got its stop signal, in order.
fn in_order(timeline: &Timeline) -> Result<()> {
    timeline.in_order(&[
        ("app", Term),
        ("app", Exiting),
        ("logs", Term),
        ("logs", Exiting),
        ("proxy", Term),
        ("proxy", Exiting),
    ])
}

/// Checks the log of each pod; each has a folder in the instance's directory.
fn each(directory: &Path, check: impl Fn(&Timeline) -> Result<()>) -> Result<()> {
    let mut seen = 0;
    for entry in std::fs::read_dir(directory.join("pods"))? {
        let path: PathBuf = entry?.path();
        let log = std::fs::read_to_string(path.join("timeline.log"));
        let timeline = Timeline::parse(&log.with_context(|| format!("{}", path.display()))?)?;
        println!("{}:\n{timeline}", path.display());
        check(&timeline).with_context(|| format!("{}", path.display()))?;
        seen += 1;
    }
    ensure!(seen == PODS.len(), "{seen} pods left their logs");
    Ok(())
}
