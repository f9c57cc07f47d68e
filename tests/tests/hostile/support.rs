//! Checks that all attacks share: the shim goes on serving, and its processor time stays bounded. Ends the pods of a failed test.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::pod::ensure_short;
use e2e::{Containerd, RunningPod, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long any request to a shim under attack may take.
pub const PROMPT: Duration = Duration::from_secs(5);

/// Ends a pod with its test, also when that fails: an attack that goes on would be a load on the tests after it. A shim that is
/// killed takes its pod along (N3).
pub struct EndsWithTest {
    shim: Pid,
    sandbox: String,
}

impl EndsWithTest {
    pub fn of(pod: &RunningPod<'_>) -> Result<Self> {
        Ok(Self { shim: Pid::from_raw(pod.shim_pid()?), sandbox: pod.sandbox().to_owned() })
    }
}

impl Drop for EndsWithTest {
    fn drop(&mut self) {
        // After the pod's removal the number may be another process's.
        let line = std::fs::read(format!("/proc/{}/cmdline", self.shim)).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(&self.sandbox) {
            let _ = kill(self.shim, Signal::SIGKILL);
        }
    }
}

/// Checks that a container of the pod still takes an exec, and that the shim's thread was never blocked for long.
pub async fn ensure_serving(pod: &RunningPod<'_>, container: &str) -> Result<()> {
    let exec = async {
        let output = pod.exec(container, &["true"]).await?;
        ensure!(output.exit_code == 0, "{output:?}");
        Ok(())
    };
    wait::at_most(PROMPT, "the shim does not serve an exec in time", exec).await?;
    let (away, on) =
        pod.longest_away().await?.context("the shim does not report how long its thread was away")?;
    ensure_short(away, &on)
}

/// Runs `podshim` inside the instance, where the shims' files are, and returns its stdout.
pub async fn podshim(node: &Containerd, arguments: &[&str]) -> Result<String> {
    let output = node.ctr().output(&[&["--run", "podshim"], arguments].concat()).await?;
    ensure!(output.exit_code == Some(0), "{arguments:?}: {output:?}");
    Ok(output.stdout)
}
