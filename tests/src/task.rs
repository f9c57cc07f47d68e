//! Single tasks that `ctr` creates, without CRI. Owns their names and their removal; tests decide what is expected of
//! them.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};

use crate::ctr::Output;
use crate::durations::{SOON, pace};
use crate::instance::status_number;
use crate::{Containerd, Footprint, Runtime, wait};

/// The image of every container.
pub const IMAGE: &str = "podshim.test/busybox:1";

/// The namespace that `ctr` uses by default.
pub const NAMESPACE: &str = "default";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name that no other test uses.
#[must_use]
pub fn unique(name: &str) -> String {
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a shell script inside an instance and returns its stdout. `ctr` in the script finds its containerd by the
/// environment.
///
/// # Errors
/// If it does not exit with 0 within 150 s (times [`pace`]).
pub async fn shell(node: &Containerd, script: &str) -> Result<String> {
    let limit = (150 * pace()).to_string();
    let output = node.ctr().output(&["--run", "timeout", &limit, "sh", "-c", script]).await?;
    ensure!(output.exit_code == Some(0), "{script}: {output:?}");
    Ok(output.stdout)
}

/// A container that `ctr` creates, with a shim of its own unless it is in a group.
#[derive(Debug)]
pub struct Task<'node> {
    node: &'node Containerd,
    id: String,
    footprint: Footprint,
}

impl<'node> Task<'node> {
    /// A task that does not exist yet.
    #[must_use]
    pub fn named(node: &'node Containerd, name: &str) -> Self {
        let id = unique(name);
        Self { node, footprint: Footprint::of_containers(&[&id]), id }
    }

    /// `ctr run -d` with these options.
    ///
    /// # Errors
    /// The error that `ctr` reports.
    pub async fn run(
        node: &'node Containerd,
        name: &str,
        options: &[&str],
        command: &[&str],
    ) -> Result<Self> {
        let mut task = Self::named(node, name);
        let output = task.attempt(options, command).await?;
        ensure!(output.exit_code == Some(0), "{output:?}");
        task.footprint.add_shim_socket(node, NAMESPACE, &task.id)?;
        Ok(task)
    }

    /// `ctr run -d` in the group of that name. The group's shim need not end with this task.
    ///
    /// # Errors
    /// The error that `ctr` reports.
    pub async fn run_in_group(
        node: &'node Containerd,
        name: &str,
        group: &str,
        options: &[&str],
        command: &[&str],
    ) -> Result<Self> {
        let task = Self::named(node, name);
        let group = format!("io.containerd.runc.v2.group={group}");
        let output = task.attempt(&[&["--annotation", &group], options].concat(), command).await?;
        ensure!(output.exit_code == Some(0), "{output:?}");
        Ok(task)
    }

    /// Tries `ctr run -d` with these options, and returns its output and exit code.
    ///
    /// # Errors
    /// If `ctr` cannot be run.
    pub async fn attempt(&self, options: &[&str], command: &[&str]) -> Result<Output> {
        // Without a log ctr makes fifos, and leaves them behind unless ctr itself ends the task.
        let mut words = vec!["run", "-d", "--log-uri", "file:///dev/null"];
        if !options.contains(&"--runtime") {
            words.extend(["--runtime", Runtime::Podshim.runtime_type()]);
        }
        words.extend(options);
        words.extend([IMAGE, &self.id]);
        words.extend(command);
        self.node.ctr().output(&words).await
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Runs `ctr task COMMAND... ID` and returns its output.
    ///
    /// # Errors
    /// If `ctr` cannot be run.
    pub async fn task(&self, command: &[&str]) -> Result<Output> {
        let words: Vec<_> = ["task"].iter().chain(command).copied().chain([self.id()]).collect();
        self.node.ctr().output(&words).await
    }

    /// Runs `ctr task exec` with a new exec id, and returns its output and exit code.
    ///
    /// # Errors
    /// If `ctr` cannot be run.
    pub async fn exec(&self, flags: &[&str], command: &[&str]) -> Result<Output> {
        let exec = unique("exec");
        let words = ["task", "exec", "--exec-id", &exec].into_iter().chain(flags.iter().copied());
        let words: Vec<_> = words.chain([self.id()]).chain(command.iter().copied()).collect();
        self.node.ctr().output(&words).await
    }

    /// Runs a shell script in the container. The shell ends half a second late, because a `ctr` that learns of the end
    /// before it has read the output drops that output.
    ///
    /// # Errors
    /// If `ctr` cannot be run.
    pub async fn run_script(&self, script: &str) -> Result<Output> {
        self.exec(&[], &["sh", "-c", &format!("{script}; sleep 0.5")]).await
    }

    /// The task's status and pid from `ctr task ls`; `None` if there is no task.
    ///
    /// # Errors
    /// The error that `ctr` reports.
    pub async fn status(&self) -> Result<Option<(String, libc::pid_t)>> {
        let list = self.node.ctr().run(&["task", "ls"]).await?;
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(&self.id));
        let Some(line) = line else { return Ok(None) };
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, pid, status] = words[..] else { anyhow::bail!("a task of another form: {line}") };
        Ok(Some((status.to_owned(), pid.parse().with_context(|| line.to_owned())?)))
    }

    /// Waits until `ctr task ls` shows that status, and returns the pid.
    ///
    /// # Errors
    /// If it does not come soon.
    pub async fn wait_status(&self, wanted: &str) -> Result<libc::pid_t> {
        wait::until(&format!("{} to be {wanted}", self.id), SOON, async || {
            Ok(self.status().await?.filter(|(status, _)| status == wanted).map(|(_, pid)| pid))
        })
        .await
    }

    /// The pid of its shim.
    ///
    /// # Errors
    /// If it has none.
    pub fn shim(&self) -> Result<libc::pid_t> {
        shim_pid(&self.footprint.find(self.node)?)
    }

    /// What the node has of it now.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn leftovers(&self) -> Result<Vec<String>> {
        self.footprint.find(self.node)
    }

    /// Kills it if it still runs, removes it, and checks that nothing is left.
    ///
    /// # Errors
    /// If anything is left.
    pub async fn remove(self) -> Result<()> {
        // Not checked: the task may have been removed already, and a killed task's exit code is not 0.
        self.task(&["rm", "--force"]).await?;
        let removed = self.node.ctr().output(&["container", "rm", &self.id]).await?;
        ensure!(
            removed.exit_code == Some(0) || removed.stderr.contains("not found"),
            "cannot remove {}: {removed:?}",
            self.id
        );
        self.footprint.wait_gone(self.node, SOON).await.with_context(|| self.id.clone())
    }
}

/// The pid of the shim among the leftovers of a pod that lives.
///
/// # Errors
/// If there is none.
pub fn shim_pid(found: &[String]) -> Result<libc::pid_t> {
    let shims = found
        .iter()
        .filter(|line| line.starts_with("process: ") && line.contains("containerd-shim-podshim-v2"));
    let pids: Vec<libc::pid_t> = shims.filter_map(|line| line.split(' ').nth(1)?.parse().ok()).collect();
    // A child that the shim has forked has its command line until it execs.
    let is_child = |pid: libc::pid_t| {
        let parent = status_number(pid, "PPid").ok().and_then(|parent| parent.try_into().ok());
        parent.is_none_or(|parent| pids.contains(&parent))
    };
    let shim = pids.iter().copied().find(|pid| !is_child(*pid));
    shim.with_context(|| format!("no shim in {found:#?}"))
}
