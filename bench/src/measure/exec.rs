//! How many short commands a container runs: one after another, several at once; and what podshim's own ones cost, those of gates.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::processor_time::{processor_time, time_inside};
use e2e::{Cri, Pod, Program, RunningPod, Runtime, wait};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use tokio::process::Command;
use tokio::task::JoinSet;

use super::run::to_its_end;
use crate::contender::{Contender, SHIMS};
use crate::figures::{Figures, Unit};
use crate::rounds::{Bench, timed};

const AT_ONCE: usize = 8;
/// As many containers with an `exec:` gate, and how often each is asked in a second.
const GATES: usize = 6;
const ASKED: u32 = 10;

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let commands = bench.choose(100, 24);
    let rounds = bench.choose(5, 2);
    bench
        .alternate("exec", rounds, &SHIMS, figures, async |contender, figures| {
            of_pod(bench, contender, commands, figures).await?;
            // containerd's shim has no gates.
            if contender == Contender::Podshim { gates(bench, figures).await } else { Ok(()) }
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
        let time = runtime_alone(bench, &pod, "app", commands).await?;
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
async fn runtime_alone(
    bench: &Bench,
    pod: &RunningPod<'_>,
    container: &str,
    commands: usize,
) -> Result<Duration> {
    let mut total = Duration::ZERO;
    // The state directory of both shims (CONTRACT §8), in this instance's own /run.
    let root = "/run/containerd/runc/k8s.io";
    ensure!(std::path::Path::new(root).exists(), "{root}: not in the instance {:?}", bench.node.directory());
    for _ in 0..commands {
        let mut command = Command::new("runc");
        command.args(["--root", root, "exec", pod.id(container)?, "/bin/true"]);
        total += to_its_end(command).await?;
    }
    Ok(total)
}

/// The processor time for the questions of `GATES` gates, beside what their programs use in the pod's own cgroup, for a second; below
/// it what as many execs of the OCI runtime take.
async fn gates(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let seconds = u32::try_from(bench.choose(20, 5))?;
    let names: Vec<String> = (1..=GATES).map(|number| format!("s{number}")).collect();
    let mut pod = Pod::new("bench-gates").annotate("plan", &(names.join("+") + "=sidecar, app=main"));
    for name in &names {
        let gate = format!("exec:/bin/false;period={}ms;fail=100000", 1000 / ASKED);
        pod = pod.annotate(&format!("ready.{name}"), &gate).container(Program::new(name));
    }
    let mut pod = pod.container(Program::new("app")).run(bench.node, Runtime::Podshim).await?;
    for name in &names {
        pod.start(name).await?;
    }
    let shim = pod.shim_pid()?;
    wait::quiet_time(Duration::from_secs(2)).await;
    let (before, inside_before) = (processor_time(shim)?, time_inside(bench.node, &pod)?);
    wait::quiet_time(Duration::from_secs(seconds.into())).await;
    let (now, inside) = (processor_time(shim)?, time_inside(bench.node, &pod)? - inside_before);
    let beside = (now.own - before.own) + (now.called - before.called).saturating_sub(inside);
    let label =
        format!("{GATES} `exec:` gates, {ASKED} times a second: processor time beside the pod in 1 s");
    figures.add_time(&label, Contender::Podshim, beside / seconds);
    let execs = u32::try_from(bench.choose(100, 24))?;
    let inside_before = time_inside(bench.node, &pod)?;
    let used_before = used_by_children()?;
    runtime_alone(bench, &pod, "s1", execs.try_into()?).await?;
    let used =
        (used_by_children()? - used_before).saturating_sub(time_inside(bench.node, &pod)? - inside_before);
    figures.add_time(&label, Contender::Runtime, used * u32::try_from(GATES)? * ASKED / execs);
    pod.remove().await
}

/// Processor time of the processes that this one has waited for.
fn used_by_children() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let microseconds = (usage.user_time() + usage.system_time()).num_microseconds();
    Ok(Duration::from_micros(microseconds.try_into()?))
}
