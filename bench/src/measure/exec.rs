//! How many short commands a container runs: one after another, several at once.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{Cri, Pod, Program, RunningPod};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::run::to_its_end;
use crate::contender::{Contender, SHIMS};
use crate::figures::{Figures, Unit};
use crate::rounds::{Bench, timed};

const AT_ONCE: usize = 8;

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let commands = bench.choose(100, 24);
    let rounds = bench.choose(5, 2);
    bench
        .alternate("exec", rounds, &SHIMS, figures, async |contender, figures| {
            of_pod(bench, contender, commands, figures).await
        })
        .await
}

async fn of_pod(bench: &Bench, contender: Contender, commands: usize, figures: &mut Figures) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    let mut pod = Pod::new("bench-exec").container(Program::new("app")).run(bench.node, runtime).await?;
    pod.start("app").await?;
    let (cri, id) = (bench.node.cri()?, pod.id("app")?.to_owned());
    let one_by_one = timed(run(&cri, &id, commands)).await?.1;
    let ((), at_once) = timed(async {
        let mut lanes = JoinSet::new();
        for _ in 0..AT_ONCE {
            let (cri, id) = (cri.clone(), id.clone());
            lanes.spawn(async move { run(&cri, &id, commands / AT_ONCE).await });
        }
        while let Some(done) = lanes.join_next().await {
            done??;
        }
        Ok(())
    })
    .await?;
    let per_second = |count: usize, time: Duration| {
        #[expect(clippy::cast_precision_loss, reason = "hundreds")]
        let count = count as f64;
        count / time.as_secs_f64()
    };
    let (alone, together) = ("one after another", format!("{AT_ONCE} at once"));
    figures.add(alone, Unit::PerSecond, contender, per_second(commands, one_by_one));
    figures.add(&together, Unit::PerSecond, contender, per_second(commands / AT_ONCE * AT_ONCE, at_once));
    if contender == Contender::Podshim {
        let time = runtime_alone(bench, &pod, commands).await?;
        figures.add(alone, Unit::PerSecond, Contender::Runtime, per_second(commands, time));
    }
    pod.remove().await
}

async fn run(cri: &Cri, id: &str, commands: usize) -> Result<()> {
    for _ in 0..commands {
        let output = cri.exec_sync(id, &["/bin/true"], Duration::from_secs(60)).await?;
        ensure!(output.exit_code == 0, "exec: {output:?}");
    }
    Ok(())
}

/// Times the runtime's own `exec` in the pod's container, with the state directory that the shim uses.
async fn runtime_alone(bench: &Bench, pod: &RunningPod<'_>, commands: usize) -> Result<Duration> {
    let mut total = Duration::ZERO;
    // The state directory of both shims (CONTRACT §8), in this instance's own /run.
    let root = "/run/containerd/runc/k8s.io";
    ensure!(std::path::Path::new(root).exists(), "{root}: not in the instance {:?}", bench.node.directory());
    for _ in 0..commands {
        let mut command = Command::new("runc");
        command.args(["--root", root, "exec", pod.id("app")?, "/bin/true"]);
        total += to_its_end(command).await?;
    }
    Ok(total)
}
