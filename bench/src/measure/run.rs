//! What users wait for: `ctr run` of a container that ends at once, and a pod's start and stop through CRI.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::direct::bundle::{Bundle, root_file_system};
use e2e::durations::SOON;
use e2e::{Event, Pod, Program};
use tokio::process::Command;

use crate::contender::{ALL, Contender, SHIMS};
use crate::figures::Figures;
use crate::rounds::{Bench, timed};

const IMAGE: &str = "podshim.test/busybox:1";

/// The state directory of the runtime alone, different from that of the shims.
pub const RUNTIME_ROOT: &str = "/run/podshim-bench";

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("podshim-bench").tempdir()?;
    let bundle = directory.path().join("bundle");
    let mut number = 0;
    let prepared = Bundle::program(&["true"]);
    prepared.write(&bundle, &format!("{}/bench-run", bench.node.cgroup()))?;
    // Without a shim nothing is mounted into the bundle, so runc gets the root file system's own path.
    let root = root_file_system(directory.path())?.source;
    use_root(&bundle, &root)?;
    let rounds = bench.choose(60, 8);
    bench
        .alternate("ctr run", rounds, &ALL, figures, async |contender, figures| {
            number += 1;
            let time = match contender.handler() {
                Some(runtime) => ctr_run(bench, runtime.runtime_type(), number).await?,
                None => runtime_run(&bundle, number).await?,
            };
            figures.add_time("ctr run --rm, a program that ends at once", contender, time);
            Ok(())
        })
        .await?;
    let rounds = bench.choose(15, 4);
    bench
        .alternate("pod", rounds, &SHIMS, figures, async |contender, figures| {
            pod(bench, contender, figures).await
        })
        .await
}

/// Makes a bundle's container use `root` as its root file system.
pub fn use_root(bundle: &Path, root: &str) -> Result<()> {
    let path = bundle.join("config.json");
    let mut spec: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
    spec["root"]["path"] = root.into();
    Ok(std::fs::write(path, spec.to_string())?)
}

async fn ctr_run(bench: &Bench, runtime: &str, number: usize) -> Result<Duration> {
    let socket = bench.node.directory().join("containerd.sock");
    let id = format!("bench-{number}");
    let mut command = Command::new("ctr");
    command.arg("--address").arg(socket).args(["-n", "k8s.io", "run", "--rm", "--runtime", runtime]);
    command.args([IMAGE, &id, "/bin/true"]);
    to_its_end(command).await
}

async fn runtime_run(bundle: &Path, number: usize) -> Result<Duration> {
    let mut command = Command::new("runc");
    command.args(["--root", RUNTIME_ROOT, "run", "--bundle"]).arg(bundle).arg(format!("bench-{number}"));
    to_its_end(command).await
}

/// Runs a command to its end and returns how long it took; an error if it fails.
pub async fn to_its_end(mut command: Command) -> Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
    let program = format!("{:?}", command.as_std());
    let run = async { command.output().await.with_context(|| format!("cannot run {program}")) };
    let (output, time) = timed(run).await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program}: {}: {errors}", output.status);
    Ok(time)
}

async fn pod(bench: &Bench, contender: Contender, figures: &mut Figures) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    let pod = Pod::new("bench-run").container(Program::new("app"));
    let (mut pod, sandbox) = timed(pod.run(bench.node, runtime)).await?;
    let ((), started) = timed(pod.start("app")).await?;
    // The program must have its SIGTERM handler first: without one, the first process of a pid namespace ignores the
    // signal.
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    let ((), stopped) = timed(pod.stop("app", Duration::from_secs(30))).await?;
    let ((), ended) = timed(pod.stop_sandbox()).await?;
    figures.add_time("RunPodSandbox", contender, sandbox);
    figures.add_time("CreateContainer and StartContainer", contender, started);
    figures.add_time("StopContainer, a program that goes at SIGTERM", contender, stopped);
    figures.add_time("StopPodSandbox", contender, ended);
    pod.remove().await
}
