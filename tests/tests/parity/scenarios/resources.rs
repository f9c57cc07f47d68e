//! Limits and statistics: Update, Stats, and the kernel's kill when memory runs out.

use anyhow::Result;
use serde_json::json;

use crate::run::Run;
use e2e::direct::bundle::Bundle;

const LIVES: &str = "echo ready; sleep 1000";

fn limited() -> Bundle {
    Bundle::shell(LIVES).spec(|spec| {
        spec["linux"]["resources"]["memory"] = json!({"limit": 64 << 20});
        spec["linux"]["resources"]["cpu"] = json!({"shares": 300, "quota": 50_000, "period": 100_000});
        spec["linux"]["resources"]["pids"] = json!({"limit": 50});
    })
}

/// Limits change in a created and in a running container, and are refused for an ended one.
pub async fn updates(run: &mut Run) -> Result<()> {
    run.bundle("c", limited()).await?;
    run.update("c", json!({"pids": {"limit": 44}})).await;
    run.create("c").await;
    run.limits("c");
    run.update("c", json!({"memory": {"limit": 48 << 20}})).await;
    run.limits("c");
    run.start("c").await;
    run.line("c").await;
    run.update("c", json!({"memory": {"limit": 32 << 20}, "pids": {"limit": 33}})).await;
    run.limits("c");
    run.update("c", json!({"cpu": {"shares": 400, "quota": 60_000, "period": 120_000}})).await;
    run.limits("c");
    run.update("c", json!({})).await;
    run.limits("c");
    for wrong in [
        "",
        "{",
        "null",
        "[]",
        "7",
        r#"{"memory": "much"}"#,
        r#"{"memory": {"limit": 1}}"#,
        r#"{"cpu": {"cpus": "nonsense"}}"#,
    ] {
        run.update_with("c", wrong).await;
        run.limits("c");
    }
    run.kill("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.update("c", json!({"pids": {"limit": 44}})).await;
    Ok(())
}

/// Each number of Stats, in every state of a container.
pub async fn stats(run: &mut Run) -> Result<()> {
    run.bundle("c", limited()).await?;
    run.stats("c").await;
    run.create("c").await;
    run.stats("c").await;
    run.start("c").await;
    run.line("c").await;
    run.stats("c").await;
    run.pause("c").await;
    run.stats("c").await;
    run.resume("c").await;
    run.update("c", json!({"memory": {"limit": 32 << 20}})).await;
    run.stats("c").await;
    run.kill("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    // Until its release a dead process counts in `pids.current`, and podshim tells the exit first (H3).
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    run.stats("c").await;
    run.delete("c").await;
    run.stats("c").await;
    Ok(())
}

/// A container without limits.
pub async fn stats_without_limits(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell(LIVES)).await?;
    run.line("c").await;
    run.stats("c").await;
    Ok(())
}

/// Memory figures that are large enough to exceed what the kernel may not have counted yet.
pub async fn stats_of_used_memory(run: &mut Run) -> Result<()> {
    let script = "x=$(head -c 16000000 /dev/zero | tr '\\0' x); echo ready; sleep 1000; echo $x";
    run.container("c", Bundle::shell(script)).await?;
    run.line("c").await;
    run.stats("c").await;
    Ok(())
}

/// The kernel kills a container's only process.
pub async fn out_of_memory(run: &mut Run) -> Result<()> {
    let script = "echo ready; read line; exec tail /dev/zero";
    let bundle = Bundle::shell(script).streams(e2e::direct::streams::Streams::All).spec(|spec| {
        spec["linux"]["resources"]["memory"] = json!({"limit": 16 << 20, "swap": 16 << 20});
    });
    run.container("c", bundle).await?;
    run.line("c").await;
    run.write("c", "go\n");
    run.wait("c").await;
    run.event("exit", "c").await;
    run.event("oom", "c").await;
    run.state("c").await;
    Ok(())
}
