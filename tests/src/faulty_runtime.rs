//! A wrapper around a real OCI runtime: a test can hold it at a command, and can make a command fail in every way that
//! a runtime can. The test chooses the command and the fault while its pod lives.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::durations::SOON;
use crate::task::unique;
use crate::{Containerd, wait};

/// The error text in its log, for faults that log one.
pub const WORDS: &str = "injected fault";

/// How a command goes wrong, each time it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Does nothing, and logs an error.
    Fails,
    /// Does nothing, and is killed.
    IsKilled,
    /// Does nothing; what it writes to its log, its stdout and its pid file makes no sense.
    WritesGarbage,
    /// Does nothing and never ends; neither does its child, for which it waits.
    Hangs,
    /// Does its work, and reports that it failed.
    FailsAfterwards,
    /// Does its work, and is killed.
    IsKilledAfterwards,
    /// Does its work and exits with 0, but its pid file holds an invalid pid. For commands that make a process.
    NamesNoProcess,
}

impl Fault {
    /// All faults with which a command ends by itself.
    pub const QUICK: [Self; 5] =
        [Self::Fails, Self::IsKilled, Self::WritesGarbage, Self::FailsAfterwards, Self::IsKilledAfterwards];

    /// All such faults of a command that makes a process.
    pub const QUICK_IN_MAKING: [Self; 6] = [
        Self::Fails,
        Self::IsKilled,
        Self::WritesGarbage,
        Self::FailsAfterwards,
        Self::IsKilledAfterwards,
        Self::NamesNoProcess,
    ];

    /// What the error that the user gets must contain.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Fails | Self::FailsAfterwards => WORDS,
            Self::IsKilled | Self::IsKilledAfterwards => "was killed by signal 9",
            Self::WritesGarbage => "ended with exit status 1",
            Self::NamesNoProcess => "is not a pid",
            Self::Hangs => "took more than",
        }
    }

    /// Whether the runtime does the command's work in spite of the fault.
    #[must_use]
    pub fn works(self) -> bool {
        matches!(self, Self::FailsAfterwards | Self::IsKilledAfterwards | Self::NamesNoProcess)
    }

    fn script(self) -> &'static str {
        match self {
            Self::Fails => "say",
            Self::IsKilled => "kill -KILL $$",
            Self::WritesGarbage => {
                "echo '}{ \"level\": ' >>\"$log\"; [ -z \"$pid_file\" ] || echo '-7 x' >\"$pid_file\"; exit 1"
            }
            Self::Hangs => "sleep 1000 & wait",
            Self::FailsAfterwards => "\"$real\" \"$@\" || exit; say",
            Self::IsKilledAfterwards => "\"$real\" \"$@\" || exit; kill -KILL $$",
            Self::NamesNoProcess => "\"$real\" \"$@\" || exit; echo '-7 x' >\"$pid_file\"; exit",
        }
    }
}

/// The runtime.
#[derive(Debug)]
pub struct FaultyRuntime {
    directory: PathBuf,
}

impl FaultyRuntime {
    /// A wrapper around `real`, called `runc`, in a directory of its own below `parent`.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn around(real: &str, parent: &Path) -> Result<Self> {
        let directory = parent.join(unique("runtime"));
        std::fs::create_dir_all(&directory)?;
        // The first argument that is a command's name is the command; no value of an option before it is such a name.
        let script = format!(
            r#"#!/bin/sh
directory={directory}
real={real}
before= command= log=/dev/null pid_file=
for word; do
    case $before in --log) log=$word ;; --pid-file) pid_file=$word ;; esac
    before=$word
    case $command$word in
    create | start | exec | kill | delete | pause | resume | update | state | checkpoint | restore | features) command=$word ;;
    esac
done
say() {{
    printf '{{"level":"error","msg":"{WORDS}"}}\n' >>"$log"
    exit 1
}}
echo $command >>$directory/calls
if [ -e $directory/hold.$command ]; then
    touch $directory/held.$command
    while [ -e $directory/hold.$command ]; do sleep 0.02; done
fi
if [ -e $directory/fault.$command ]; then
    touch $directory/came.$command
    . $directory/fault.$command
fi
exec $real "$@"
"#,
            directory = directory.display(),
        );
        let runtime = Self { directory };
        std::fs::write(runtime.binary(), script)?;
        std::fs::set_permissions(runtime.binary(), PermissionsExt::from_mode(0o755))?;
        // The options of a custom runtime type are TOML. They come by ConfigPath, the way that containerd 1.6 knows
        // (CONTRACT §1.7).
        std::fs::write(runtime.config(), format!("BinaryName = {:?}\n", runtime.binary()))?;
        Ok(runtime)
    }

    /// Starts a containerd of the test's own whose podshim pods use this runtime.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn of_a_node() -> Result<(Self, Containerd)> {
        let node = Containerd::start().await?;
        let runtime = Self::around("runc", node.directory())?;
        let path = node.directory().join("config.toml");
        let config = std::fs::read_to_string(&path)?;
        let table = config.lines().find(|line| line.ends_with(".runtimes.podshim]"));
        let table =
            table.context("no runtime podshim in the configuration")?.replace("podshim]", "podshim.options]");
        // With crun the file has options for this runtime already, as its last table.
        let without = config.split(&*table).next().unwrap_or_default().trim_end();
        let options = runtime.config();
        let config = format!("{without}\n\n{table}\n  ConfigPath = {options:?}\n");
        std::fs::write(&path, config)?;
        node.kill().await?;
        node.start_again().await?;
        Ok((runtime, node))
    }

    /// Path of the wrapper.
    #[must_use]
    pub fn binary(&self) -> PathBuf {
        self.directory.join("runc")
    }

    /// The file for `ctr run --runtime-config-path`.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.directory.join("options.toml")
    }

    /// Every command that it was called with so far, in order.
    ///
    /// # Errors
    /// If it was not called yet.
    pub fn calls(&self) -> Result<Vec<String>> {
        let calls = std::fs::read_to_string(self.directory.join("calls")).context("no calls")?;
        Ok(calls.lines().map(str::to_owned).collect())
    }

    /// Holds this command from now on: it waits until [`release`](Self::release).
    ///
    /// # Errors
    /// If the file for the wrapper cannot be written.
    pub fn hold(&self, command: &str) -> Result<()> {
        let _ = std::fs::remove_file(self.directory.join(format!("held.{command}")));
        Ok(std::fs::write(self.directory.join(format!("hold.{command}")), "")?)
    }

    /// Waits until the runtime is called with the held command.
    ///
    /// # Errors
    /// If that does not happen soon.
    pub async fn wait_held(&self, command: &str) -> Result<()> {
        let held = self.directory.join(format!("held.{command}"));
        wait::until(&format!("the runtime's {command}"), SOON, async || Ok(held.exists().then_some(()))).await
    }

    /// Lets the held command and later ones proceed.
    ///
    /// # Errors
    /// If it was not held.
    pub fn release(&self, command: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.directory.join(format!("hold.{command}")))?)
    }

    /// Makes this command fail from now on, until [`mend`](Self::mend).
    ///
    /// # Errors
    /// If the file for the wrapper cannot be written.
    pub fn break_command(&self, command: &str, fault: Fault) -> Result<()> {
        // Replaced in one step, as the runtime may be reading it.
        let (path, new) = (self.fault(command), self.directory.join("fault.new"));
        let _ = std::fs::remove_file(self.directory.join(format!("came.{command}")));
        std::fs::write(&new, format!("{}\n", fault.script()))?;
        Ok(std::fs::rename(new, path)?)
    }

    /// Waits until the runtime is called with the broken command.
    ///
    /// # Errors
    /// If that does not happen soon.
    pub async fn wait_broken(&self, command: &str) -> Result<()> {
        let came = self.directory.join(format!("came.{command}"));
        wait::until(&format!("the runtime's {command}"), SOON, async || Ok(came.exists().then_some(()))).await
    }

    /// Lets the broken command work again.
    ///
    /// # Errors
    /// If the command was not broken.
    pub fn mend(&self, command: &str) -> Result<()> {
        Ok(std::fs::remove_file(self.fault(command))?)
    }

    fn fault(&self, command: &str) -> PathBuf {
        self.directory.join(format!("fault.{command}"))
    }
}
