//! Pause and Resume, and everything else while a container is frozen.

use anyhow::Result;
use serde_json::json;

use crate::run::{Exec, Run};
use e2e::direct::bundle::Bundle;

/// The states before, during and after a pause, and each request while frozen.
pub async fn pause_and_resume(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("trap 'exit 7' TERM; sleep 1000 & echo ready; wait")).await?;
    run.line("c").await;
    run.exec("c/e", Exec::shell("sleep 1000 & echo in; wait")).await?;
    run.start("c/e").await;
    run.line("c/e").await;
    run.exec("c/added", Exec::shell("true")).await?;
    run.pause("c").await;
    run.state("c").await;
    run.state("c/e").await;
    run.pids("c").await;
    run.pause("c").await;
    run.start("c").await;
    run.delete("c").await;
    run.exec("c/new", Exec::shell("true")).await?;
    run.state("c/added").await;
    run.update("c", json!({"cpu": {"shares": 512}})).await;
    run.resume("c").await;
    run.state("c").await;
    run.resume("c").await;
    run.exec_to_end("c/after", Exec::shell("echo after")).await?;
    run.kill("c", 15).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.pause("c").await;
    run.resume("c").await;
    Ok(())
}

/// A frozen container is killed.
pub async fn killed_while_paused(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; sleep 1000 & wait")).await?;
    run.line("c").await;
    run.pause("c").await;
    run.kill("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.state("c").await;
    run.delete("c").await;
    Ok(())
}

/// A frozen container is killed as CRI does it: with `all`.
pub async fn all_killed_while_paused(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; sleep 1000 & wait")).await?;
    run.line("c").await;
    run.exec("c/e", Exec::shell("echo in; sleep 1000")).await?;
    run.start("c/e").await;
    run.line("c/e").await;
    run.pause("c").await;
    run.kill_all("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.state("c").await;
    run.state("c/e").await;
    run.delete("c").await;
    Ok(())
}

/// Another signal waits until the thaw.
pub async fn signalled_while_paused(run: &mut Run) -> Result<()> {
    run.container(
        "c",
        Bundle::shell("trap 'echo got; exit 7' TERM; echo ready; while true; do sleep 0.05; done"),
    )
    .await?;
    run.line("c").await;
    run.pause("c").await;
    run.kill("c", 15).await;
    run.state("c").await;
    run.resume("c").await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.output("c").await?;
    Ok(())
}
