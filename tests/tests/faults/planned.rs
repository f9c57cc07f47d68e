//! An OCI runtime that goes wrong under a plan: what the shim does by itself has no caller who would try again.

use anyhow::{Context, Result, ensure};
use e2e::Event::Started;
use e2e::durations::SOON;
use e2e::instance::signal;
use e2e::{Fault, FaultyRuntime, Pod, Program, Runtime};

/// R6, R4: a restart in place goes through whatever goes wrong in it, and nobody else notices. The caller's own
/// requests are told, and can be made again.
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
            // A start that fails afterwards may have let the program begin, once each time.
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

/// The sidecar's program among what the pod has.
fn init_of(found: &[String]) -> Result<libc::pid_t> {
    let line = found.iter().find(|line| line.starts_with("process: ") && line.contains("--name s1"));
    let pid = line.and_then(|line| line.split(' ').nth(1));
    Ok(pid.with_context(|| format!("no s1 in {found:#?}"))?.parse()?)
}
