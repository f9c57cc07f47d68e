//! The process that is a pod's sandbox, where it has one.

use anyhow::{Context, Result, ensure};

use super::RunningPod;

impl RunningPod<'_> {
    /// The pid of its sandbox.
    ///
    /// # Errors
    /// There is no such task.
    pub async fn sandbox_pid(&self) -> Result<libc::pid_t> {
        let tasks = self.node.ctr().run(&["-n", "k8s.io", "tasks", "list"]).await?;
        let line = tasks.lines().find(|line| line.starts_with(self.sandbox())).context("no such task")?;
        Ok(line.split_whitespace().nth(1).context("no pid")?.parse()?)
    }

    /// Checks that podshim has made its sandbox: its program is podshim's own.
    ///
    /// # Errors
    /// Another program is.
    pub async fn has_own_sandbox(&self) -> Result<()> {
        let program = std::fs::read_link(format!("/proc/{}/exe", self.sandbox_pid().await?))?;
        ensure!(program.to_string_lossy().contains("memfd:pause"), "{} made it", program.display());
        Ok(())
    }
}
