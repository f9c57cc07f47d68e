//! What the shim still answers for a container that has exited and is not deleted.

use anyhow::{Result, ensure};
use e2e::durations::SOON;
use e2e::{Containerd, Footprint, Runtime, wait};

on_both_runtimes!(an_exited_container_has_its_last_numbers);

/// CONTRACT §3: containerd 2.3 calls Stats for a task that has exited with 137.
async fn an_exited_container_has_its_last_numbers(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let id = format!("exited-{}-{}", runtime.handler(), std::process::id());
    let image = "podshim.test/busybox:1";
    let run =
        ["run", "-d", "--null-io", "--runtime", runtime.runtime_type(), image, &id, "sh", "-c", "exit 3"];
    node.ctr().run(&run).await?;
    wait::until("its exit", SOON, async || {
        let list = node.ctr().run(&["task", "ls"]).await?;
        let mut lines = list.lines();
        let line = lines.find(|line| line.split_whitespace().next() == Some(&id));
        Ok(line.is_some_and(|line| line.contains("STOPPED")).then_some(()))
    })
    .await?;
    let metrics = node.ctr().run(&["task", "metrics", "--format", "json", &id]).await?;
    let numbers: serde_json::Value = serde_json::from_str(&metrics)?;
    ensure!(numbers.get("memory").is_some() && numbers.get("cpu").is_some(), "{metrics}");
    node.ctr().output(&["task", "rm", &id]).await?;
    node.ctr().run(&["container", "rm", &id]).await?;
    Footprint::of_containers(&[&id]).wait_gone(&node, SOON).await
}
