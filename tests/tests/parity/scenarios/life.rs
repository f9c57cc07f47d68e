//! Create, Start, Wait, State, Delete: in order, in the wrong order, and of ids that do not exist.

use anyhow::Result;

use crate::run::{Exec, Run};
use e2e::direct::bundle::Bundle;

/// The life of a container, with every read-only request in each of its states.
pub async fn a_life(run: &mut Run) -> Result<()> {
    run.bundle("c", Bundle::shell("trap 'exit 7' TERM; sleep 1000 & echo ready; wait")).await?;
    run.connect("c").await;
    run.create("c").await;
    run.files("c");
    run.connect("c").await;
    run.state("c").await;
    run.pids("c").await;
    run.start("c").await;
    run.line("c").await;
    run.connect("c").await;
    run.state("c").await;
    run.pids("c").await;
    run.kill("c", 15).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.state("c").await;
    run.pids("c").await;
    run.connect("c").await;
    run.wait("c").await;
    run.output("c").await?;
    run.delete("c").await;
    run.files("c");
    run.state("c").await;
    run.wait("c").await;
    run.delete("c").await;
    run.connect("c").await;
    Ok(())
}

/// Each request in each state where it is invalid.
pub async fn wrong_orders(run: &mut Run) -> Result<()> {
    run.bundle("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.create("c").await;
    run.create("c").await;
    run.pause("c").await;
    run.resume("c").await;
    run.close_io("c").await;
    run.resize("c", 80, 24).await;
    run.start("c").await;
    run.line("c").await;
    run.start("c").await;
    run.create("c").await;
    run.delete("c").await;
    run.resume("c").await;
    run.resize("c", 80, 24).await;
    run.close_io("c").await;
    run.shutdown("c").await;
    run.state("c").await;
    run.kill("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.start("c").await;
    run.pause("c").await;
    run.resume("c").await;
    run.kill("c", 15).await;
    run.kill_all("c", 9).await;
    run.resize("c", 80, 24).await;
    run.close_io("c").await;
    run.create("c").await;
    run.exec("c/late", Exec::shell("true")).await?;
    run.start("c/late").await;
    Ok(())
}

/// Every request with an unknown container, and with an unknown exec.
pub async fn unknown_ids(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.line("c").await;
    for name in ["ghost", "c/ghost", "ghost/ghost"] {
        run.state(name).await;
        run.start(name).await;
        run.wait(name).await;
        run.kill(name, 0).await;
        run.kill(name, 15).await;
        run.kill_all(name, 15).await;
        run.delete(name).await;
        run.resize(name, 80, 24).await;
        run.close_io(name).await;
    }
    run.exec("ghost/e", Exec::shell("true")).await?;
    for id in ["ghost", ""] {
        run.connect(id).await;
        run.pids(id).await;
        run.pause(id).await;
        run.resume(id).await;
        run.update(id, serde_json::json!({})).await;
        run.stats(id).await;
    }
    run.shutdown("ghost").await;
    run.state("c").await;
    Ok(())
}
