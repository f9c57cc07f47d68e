//! What the tests of this binary share: single tasks made by `ctr`, and an OCI runtime that can be held in the middle of
//! a command. Holds no expectation of any trap.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use e2e::ctr::Output;
pub(crate) use e2e::durations::SOON;
use e2e::{Containerd, Footprint, Runtime, wait};

/// What every container runs from.
pub(crate) const IMAGE: &str = "podshim.test/busybox:1";

/// The namespace `ctr` uses when it is told none.
pub(crate) const NAMESPACE: &str = "default";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A name that no other test uses.
pub(crate) fn unique(name: &str) -> String {
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs a shell script inside an instance; `ctr` there finds its containerd by the environment. Gives its stdout.
pub(crate) async fn shell(node: &Containerd, script: &str) -> Result<String> {
    let output = node.ctr().output(&["--run", "timeout", "150", "sh", "-c", script]).await?;
    ensure!(output.exit_code == Some(0), "{script}: {output:?}");
    Ok(output.stdout)
}

/// A container that `ctr` makes, with a shim of its own unless a group says otherwise.
pub(crate) struct Task<'node> {
    node: &'node Containerd,
    id: String,
    footprint: Footprint,
}

impl<'node> Task<'node> {
    /// A task that does not exist yet.
    pub(crate) fn named(node: &'node Containerd, name: &str) -> Self {
        let id = unique(name);
        Self { node, footprint: Footprint::of_containers(&[&id]), id }
    }

    /// `ctr run -d` with these options.
    pub(crate) async fn run(
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

    /// `ctr run -d` in the group of that name, whose shim need not end with this task.
    pub(crate) async fn run_in_group(
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

    /// `ctr run -d` with these options, and what came of it.
    pub(crate) async fn attempt(&self, options: &[&str], command: &[&str]) -> Result<Output> {
        // Without a log ctr makes fifos, and leaves them behind when a task ends other than by its own hand.
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
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// `ctr task COMMAND... ID`, and what it said.
    pub(crate) async fn task(&self, command: &[&str]) -> Result<Output> {
        let words: Vec<_> = ["task"].iter().chain(command).copied().chain([self.id()]).collect();
        self.node.ctr().output(&words).await
    }

    /// `ctr task exec` with a new exec id, and how it ended.
    pub(crate) async fn exec(&self, flags: &[&str], command: &[&str]) -> Result<Output> {
        let exec = unique("exec");
        let words = ["task", "exec", "--exec-id", &exec].into_iter().chain(flags.iter().copied());
        let words: Vec<_> = words.chain([self.id()]).chain(command.iter().copied()).collect();
        self.node.ctr().output(&words).await
    }

    /// A shell's view of the container. It does not end at once: a `ctr` that hears of the end before it has got round to
    /// reading drops what is there.
    pub(crate) async fn look(&self, script: &str) -> Result<Output> {
        self.exec(&[], &["sh", "-c", &format!("{script}; sleep 0.5")]).await
    }

    /// The task's status and pid, as `ctr task ls` has them; `None` without a task.
    pub(crate) async fn status(&self) -> Result<Option<(String, libc::pid_t)>> {
        let list = self.node.ctr().run(&["task", "ls"]).await?;
        let line = list.lines().find(|line| line.split_whitespace().next() == Some(&self.id));
        let Some(line) = line else { return Ok(None) };
        let words: Vec<_> = line.split_whitespace().collect();
        let [_, pid, status] = words[..] else { anyhow::bail!("a task of another form: {line}") };
        Ok(Some((status.to_owned(), pid.parse().with_context(|| line.to_owned())?)))
    }

    /// Waits until `ctr task ls` says so.
    pub(crate) async fn wait_status(&self, wanted: &str) -> Result<libc::pid_t> {
        wait::until(&format!("{} to be {wanted}", self.id), SOON, async || {
            Ok(self.status().await?.filter(|(status, _)| status == wanted).map(|(_, pid)| pid))
        })
        .await
    }

    /// The pid of its shim.
    pub(crate) fn shim(&self) -> Result<libc::pid_t> {
        shim_pid(&self.footprint.find(self.node)?)
    }

    /// What it has on the node now.
    pub(crate) fn leftovers(&self) -> Result<Vec<String>> {
        self.footprint.find(self.node)
    }

    /// Ends it if it still runs, removes it, and checks that nothing is left.
    pub(crate) async fn remove(self) -> Result<()> {
        // A task that is gone already is no error, nor is the exit code of a killed one.
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
pub(crate) fn shim_pid(found: &[String]) -> Result<libc::pid_t> {
    let shim = found
        .iter()
        .find(|line| line.starts_with("process: ") && line.contains("containerd-shim-podshim-v2"));
    let pid = shim.and_then(|line| line.split(' ').nth(1));
    Ok(pid.with_context(|| format!("no shim in {found:#?}"))?.parse()?)
}

/// An OCI runtime that waits in the middle of a command for as long as the test holds it there.
pub(crate) struct HeldRuntime {
    directory: PathBuf,
}

impl HeldRuntime {
    /// A wrapper around `real`, called `runc`, in a directory of its own below `parent`.
    pub(crate) fn around(real: &str, parent: &Path) -> Result<Self> {
        let directory = parent.join(unique("runtime"));
        std::fs::create_dir_all(&directory)?;
        // The command is the first word that is one; the options before it have other values.
        let script = format!(
            "#!/bin/sh\n\
             directory={directory}\n\
             for word; do\n\
             \tcase $word in create|start|exec|kill|delete|pause|resume|update) break ;; esac\n\
             done\n\
             if [ -e $directory/hold.$word ]; then\n\
             \ttouch $directory/held.$word\n\
             \twhile [ -e $directory/hold.$word ]; do sleep 0.02; done\n\
             fi\n\
             exec {real} \"$@\"\n",
            directory = directory.display(),
        );
        let runtime = Self { directory };
        std::fs::write(runtime.binary(), script)?;
        std::fs::set_permissions(runtime.binary(), PermissionsExt::from_mode(0o755))?;
        // What a custom runtime type's options are: TOML, here by ConfigPath, as 1.6 can say them (CONTRACT §1.7).
        std::fs::write(runtime.config(), format!("BinaryName = {:?}\n", runtime.binary()))?;
        Ok(runtime)
    }

    /// The wrapper.
    pub(crate) fn binary(&self) -> PathBuf {
        self.directory.join("runc")
    }

    /// The file for `ctr run --runtime-config-path`.
    pub(crate) fn config(&self) -> PathBuf {
        self.directory.join("options.toml")
    }

    /// From now on this command waits.
    pub(crate) fn hold(&self, command: &str) -> Result<()> {
        Ok(std::fs::write(self.directory.join(format!("hold.{command}")), "")?)
    }

    /// Waits until the command has come.
    pub(crate) async fn wait_held(&self, command: &str) -> Result<()> {
        let held = self.directory.join(format!("held.{command}"));
        wait::until(&format!("the runtime's {command}"), SOON, async || Ok(held.exists().then_some(()))).await
    }

    /// Lets the command go on, and later ones pass.
    pub(crate) fn release(&self, command: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.directory.join(format!("hold.{command}")))?)
    }
}
