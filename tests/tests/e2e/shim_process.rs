//! The shim's own process, compared with containerd's own shim: what the kernel is told about it.

use anyhow::{Context, Result, ensure};
use e2e::{Containerd, Pod, Runtime};

/// CONTRACT §8, upstream's TestShimOOMScore: one more than containerd's, so that the daemon is the last to be killed.
#[tokio::test]
async fn its_oom_score_is_containerds_and_one() -> Result<()> {
    let node = Containerd::connect().await?;
    let daemon = std::fs::read_to_string(node.directory().join("containerd.pid"))?;
    let expected = (oom_score(daemon.trim())? + 1).min(1000);
    for runtime in [Runtime::Runc, Runtime::Podshim] {
        let pod = Pod::new("oom-score").run(&node, runtime).await?;
        let mark = format!(" -id {} ", pod.sandbox());
        let found = pod.leftovers()?;
        let shim = found.iter().find(|line| line.starts_with("process: ") && line.contains(&mark));
        let pid = shim.and_then(|line| line.split(' ').nth(1)).context("no shim")?;
        let score = oom_score(pid)?;
        ensure!(score == expected, "{runtime:?}: {score}, not {expected}");
        pod.remove().await?;
    }
    Ok(())
}

fn oom_score(pid: &str) -> Result<i32> {
    let path = format!("/proc/{pid}/oom_score_adj");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    text.trim().parse().context(path)
}
