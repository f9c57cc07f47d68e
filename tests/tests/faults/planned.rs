//! An OCI runtime that fails under a plan. No caller would repeat what the shim does by itself.

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::{AMPLE, SOON, TOLERANCE, at_most, seconds};
use e2e::instance::signal;
use e2e::{Containerd, Fault, FaultyRuntime, Pod, Program, RunningPod, Runtime};
use tokio::time::Instant;

/// R6, R4: podshim repeats a restart in place until it succeeds, whatever fails in it, and no other container is
/// affected. The caller's own requests get the error, and can be repeated.
#[tokio::test]
async fn r6_a_restart_that_goes_wrong_is_tried_again() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    let mut pod = Pod::new("r6-faults")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart.s1", "always;base=200ms;max=200ms")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    pod.wait_for("s1", Started, 1, SOON).await?;
    let app = node.cri()?.container_pid(pod.id("app")?).await?;
    for command in ["delete", "create", "start"] {
        for fault in Fault::QUICK {
            let runs = pod.timeline()?.count("s1", Started);
            runtime.break_command(command, fault)?;
            signal(init_of(&pod.leftovers()?)?, libc::SIGKILL)?;
            runtime.wait_broken(command).await?;
            runtime.mend(command)?;
            // A start that fails after its work may have run the program, once in each try.
            let is_back = async {
                loop {
                    pod.wait_for("s1", Started, runs + 1, SOON).await?;
                    if pod.exec("s1", &["true"]).await.is_ok_and(|output| output.exit_code == 0) {
                        return anyhow::Ok(());
                    }
                }
            };
            tokio::time::timeout(2 * SOON, is_back)
                .await
                .with_context(|| format!("{command} {fault:?}"))??;
        }
    }
    let now = node.cri()?.container_pid(pod.id("app")?).await?;
    ensure!(now == app, "app had pid {app}, now {now}");
    pod.timeline()?.has_not_restarted("app")?;

    for fault in Fault::QUICK {
        runtime.break_command("update", fault)?;
        let error = node.cri()?.update_memory_limit(pod.id("app")?, 64 << 20).await.unwrap_err().to_string();
        ensure!(error.contains(fault.words()), "{fault:?}: {error}");
        runtime.mend("update")?;
        node.cri()?.update_memory_limit(pod.id("app")?, 64 << 20).await?;
    }
    pod.remove().await
}

/// U2: a probe has failed if the runtime does not run it, or reports that it did not. The gate opens with the first
/// probe that the runtime runs.
#[tokio::test]
async fn u2_a_gate_opens_once_the_runtime_runs_its_probe() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    for fault in Fault::QUICK_IN_MAKING {
        let mut pod = Pod::new("u2-faults")
            .annotate("plan", "s1=sidecar, app=main")
            .annotate("ready.s1", "exec:true;period=100ms;fail=1000")
            .container(Program::new("s1").in_many_groups())
            .container(Program::new("app").in_many_groups())
            .run(&node, Runtime::Podshim)
            .await?;
        runtime.break_command("exec", fault)?;
        pod.start_all(&["app", "s1"]).await?;
        for _ in 0..3 {
            runtime.wait_broken("exec").await?;
            runtime.break_command("exec", fault)?;
        }
        ensure!(pod.timeline()?.count("app", Starting) == 0, "{fault:?}: {}", pod.timeline()?);
        runtime.mend("exec")?;
        pod.wait_for("app", Started, 1, SOON).await.with_context(|| format!("after {fault:?}"))?;
        pod.timeline()?.has_not_restarted("s1")?;
        pod.remove().await.with_context(|| format!("after {fault:?}"))?;
    }
    Ok(())
}

async fn run_with_hooks<'node>(node: &'node Containerd, grace: &str) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new("h3-faults")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("grace", grace)
        .annotate("on-terminate.s1", "exec:true")
        .annotate("pre-stop.app", "exec:true")
        .annotate("pre-stop.s1", "exec:true")
        .container(Program::new("s1").in_many_groups())
        .container(Program::new("app").in_many_groups())
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    for name in ["app", "s1"] {
        pod.wait_for(name, Started, 1, SOON).await?;
    }
    Ok(pod)
}

/// H3: if the runtime does not run a hook, or reports that it did not, podshim logs it, and the stop goes on in order.
#[tokio::test]
async fn h3_a_hook_whose_runtime_goes_wrong_changes_nothing_in_a_stop() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    for fault in Fault::QUICK_IN_MAKING {
        let pod = run_with_hooks(&node, "60s").await?;
        runtime.break_command("exec", fault)?;
        let begin = Instant::now();
        pod.stop_all_at_once(AMPLE).await?;
        ensure!(at_most(begin.elapsed(), SOON), "{fault:?}: a stop of {:?}", begin.elapsed());
        pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("s1", Term), ("s1", Exiting)])?;
        let log = pod.wait_for_output("s1", "podshim: pre-stop hook: ").await?;
        ensure!(log.contains(fault.words()), "{fault:?} is not logged:\n{log}");
        runtime.mend("exec")?;
        pod.remove().await.with_context(|| format!("after {fault:?}"))?;
    }
    Ok(())
}

/// H3, T6: a runtime that hangs delays a stop by no more than the budget, as a hook that hangs does, and it ends with
/// its pod.
#[tokio::test]
async fn h3_t6_a_hook_whose_runtime_hangs_ends_with_its_pods_budget() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    let pod = run_with_hooks(&node, "2s").await?;
    runtime.break_command("exec", Fault::Hangs)?;
    let begin = Instant::now();
    pod.stop_all_at_once(AMPLE).await?;
    // The budget, and the 2 s that follow it.
    let limit = seconds(2) + seconds(2) + TOLERANCE;
    ensure!(at_most(begin.elapsed(), limit), "a stop of {:?}\n{}", begin.elapsed(), pod.timeline()?);
    for name in ["app", "s1"] {
        ensure!(pod.timeline()?.count(name, Term) == 1, "{}", pod.timeline()?);
    }
    pod.remove().await
}

/// T10, T6: a restart in place hangs in each of its calls of the runtime. Nothing waits for it: the sidecar has ended in its turn, within
/// the budget, its caller's StopContainer and StopPodSandbox come back, and nothing of the hanging runtime is left.
#[tokio::test]
async fn c6_t10_a_stop_does_not_wait_for_a_restart_that_hangs() -> Result<()> {
    let (runtime, node) = FaultyRuntime::of_a_node().await?;
    for command in ["create", "delete"] {
        let mut pod = Pod::new("c6-faults")
            .annotate("plan", "s1=sidecar, app=main")
            .annotate("grace", "5s")
            .container(Program::new("s1"))
            .container(Program::new("app"))
            .run(&node, Runtime::Podshim)
            .await?;
        pod.start_all(&["s1", "app"]).await?;
        pod.wait_for("app", Started, 1, SOON).await?;
        pod.wait_for("s1", Started, 1, SOON).await?;
        runtime.break_command(command, Fault::Hangs)?;
        signal(init_of(&pod.leftovers()?)?, libc::SIGKILL)?;
        runtime.wait_broken(command).await?;
        runtime.mend(command)?;
        let begin = Instant::now();
        pod.stop_all_at_once(AMPLE).await.with_context(|| format!("{command} hangs"))?;
        let limit = seconds(5) + seconds(2) + TOLERANCE;
        ensure!(at_most(begin.elapsed(), limit), "{command}: a stop of {:?}", begin.elapsed());
        pod.timeline()?.has_not_restarted("s1")?;
        // StopPodSandbox and the removals, and a look for what is left behind: no process of the runtime.
        pod.remove().await.with_context(|| format!("{command} hangs"))?;
        ensure!(at_most(begin.elapsed(), 2 * limit), "{command}: {:?} in all", begin.elapsed());
    }
    Ok(())
}

/// The pid of the sidecar's program, from the pod's leftovers.
fn init_of(found: &[String]) -> Result<libc::pid_t> {
    let line = found.iter().find(|line| line.starts_with("process: ") && line.contains("--name s1"));
    let pid = line.and_then(|line| line.split(' ').nth(1));
    Ok(pid.with_context(|| format!("no s1 in {found:#?}"))?.parse()?)
}
