//! Two tasks of one shim: one that a fault hits, and one that must not be affected. Knows no result of any fault.

use anyhow::{Context, Result, ensure};
use e2e::task::unique;
use e2e::{Containerd, FaultyRuntime, Task};

/// A shim whose OCI runtime can fail, with a task that must not be affected.
pub(crate) struct Group<'node> {
    node: &'node Containerd,
    pub(crate) runtime: FaultyRuntime,
    config: String,
    annotation: String,
    sibling: Task<'node>,
    pid: libc::pid_t,
}

impl<'node> Group<'node> {
    pub(crate) async fn new(node: &'node Containerd, name: &str) -> Result<Self> {
        let runtime = FaultyRuntime::around("runc", node.directory())?;
        let config = runtime.config().display().to_string();
        let group = unique(name);
        let options = ["--runtime-config-path", config.as_str()];
        let sibling =
            Task::run_in_group(node, &format!("{name}-sibling"), &group, &options, &["sleep", "600"]).await?;
        let (_, pid) = sibling.status().await?.context("the sibling has no task")?;
        let annotation = format!("io.containerd.runc.v2.group={group}");
        Ok(Self { node, runtime, config, annotation, sibling, pid })
    }

    /// Tries `ctr run -d` of a sleeping container in this group, and returns the task and ctr's output.
    pub(crate) async fn attempt(&self, name: &str) -> Result<(Task<'node>, e2e::ctr::Output)> {
        let task = Task::named(self.node, name);
        let options = ["--runtime-config-path", &self.config, "--annotation", &self.annotation];
        let output = task.attempt(&options, &["sleep", "600"]).await?;
        Ok((task, output))
    }

    /// Runs a sleeping container in this group; an error if it does not start.
    pub(crate) async fn run(&self, name: &str) -> Result<Task<'node>> {
        let (task, output) = self.attempt(name).await?;
        ensure!(output.exit_code == Some(0), "{output:?}");
        Ok(task)
    }

    /// Checks that the other task still runs with the same pid.
    pub(crate) async fn ensure_untouched(&self) -> Result<()> {
        let status = self.sibling.status().await?;
        ensure!(status == Some(("RUNNING".to_owned(), self.pid)), "{}: {status:?}", self.sibling.id());
        Ok(())
    }

    /// Removes the other task; nothing of the shim may be left afterwards.
    pub(crate) async fn remove(self) -> Result<()> {
        self.ensure_untouched().await?;
        self.sibling.remove().await
    }
}
