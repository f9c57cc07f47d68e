//! The shim's own process, compared with containerd's own shim: its OOM score, its answer to `-info`, and its open files.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::task::Task;
use e2e::{Containerd, Pod, Runtime};

/// CONTRACT §8, upstream's TestShimOOMScore: the score is one more than containerd's, so that the kernel kills the
/// daemon last.
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

/// CONTRACT §8: `-info` without options, as 2.3 calls it, reports everything about the OCI runtime that containerd's
/// own shim reports. That shim omits features that its version does not know yet, and has no `-info` before 2.0.
#[tokio::test]
async fn its_description_of_the_oci_runtime_is_that_of_containerds_shim() -> Result<()> {
    let node = Containerd::connect().await?;
    let setting = |name: &str| std::fs::read_to_string(node.directory().join(name));
    let path =
        format!("{}:{}{}", setting("bin")?.trim(), setting("programs")?.trim(), std::env::var("PATH")?);
    let podshim = features(&path, Runtime::Podshim).await?.context("podshim describes nothing")?;
    let runc = features(&path, Runtime::Runc).await?;
    ensure!(runc.is_some() == (node.version()? >= (2, 0)), "{runc:?}");
    if let Some(runc) = runc {
        ensure!(contains(&podshim, &runc), "containerd's shim reports {runc:#}\npodshim reports {podshim:#}");
    }
    Ok(())
}

/// D8: what an exec held is free when it has ended and its output has been read, also if its client never deletes it.
#[tokio::test]
async fn d8_execs_that_no_client_deletes_keep_no_descriptors() -> Result<()> {
    const EXECS: usize = 20;
    let node = Containerd::connect().await?;
    let task = Task::run(&node, "d8", &[], &["sleep", "600"]).await?;
    let run = async |count: usize| -> Result<usize> {
        for _ in 0..count {
            let started = task.exec(&["--detach"], &["true"]).await?;
            ensure!(started.exit_code == Some(0), "{started:?}");
        }
        // The shim's own helpers and the last exec's output may take a moment.
        let shim = Path::new("/proc").join(task.shim()?.to_string());
        let mut fewest = usize::MAX;
        for _ in 0..40 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            fewest = fewest.min(std::fs::read_dir(shim.join("fd"))?.count());
        }
        Ok(fewest)
    };
    let (few, many) = (run(2).await?, run(EXECS).await?);
    ensure!(many <= few + 3, "{few} open files after 2 execs, {many} after {EXECS} more");
    task.remove().await
}

/// The JSON in the answer of a shim to `-info`.
async fn features(path: &str, runtime: Runtime) -> Result<Option<serde_json::Value>> {
    let name = runtime.runtime_type().replacen("io.containerd.", "containerd-shim-", 1).replace('.', "-");
    let mut command = tokio::process::Command::new("env");
    command.arg(format!("PATH={path}")).args([&name, "-info"]).stdin(std::process::Stdio::null());
    let output = command.kill_on_drop(true).output().await?;
    // Only this field of the message is JSON.
    let Some(start) = output.stdout.windows(2).position(|pair| pair == b"{\"") else { return Ok(None) };
    let mut values = serde_json::Deserializer::from_slice(&output.stdout[start..]).into_iter();
    Ok(values.next().transpose()?)
}

/// Whether all of `part` is in `whole`.
fn contains(whole: &serde_json::Value, part: &serde_json::Value) -> bool {
    match (whole.as_object(), part.as_object()) {
        (Some(whole), Some(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| contains(whole, part)))
        }
        _ => whole == part,
    }
}
