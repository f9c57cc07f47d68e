//! `ctr` inside an instance's namespaces, through `hack/ctr`. Knows no command of `ctr`: callers pass the arguments.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::command;

/// The output of a `ctr` command, and how it ended.
#[derive(Debug)]
pub struct Output {
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
    /// Its exit code; `None` if a signal ended it.
    pub exit_code: Option<i32>,
}

/// Runs `ctr` against one instance.
#[derive(Clone, Debug)]
pub struct Ctr {
    directory: PathBuf,
}

impl Ctr {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned() }
    }

    /// Runs `ctr` with these arguments and returns its stdout.
    ///
    /// # Errors
    /// If it exits with anything but 0; the error holds its whole output.
    pub async fn run(&self, arguments: &[&str]) -> Result<String> {
        self.finish(arguments).await?.success(arguments)
    }

    /// Runs `ctr`; an exit code other than 0 is a result, not an error.
    ///
    /// # Errors
    /// If it cannot be run at all.
    pub async fn output(&self, arguments: &[&str]) -> Result<Output> {
        let finished = self.finish(arguments).await?;
        Ok(Output { stdout: finished.stdout, stderr: finished.stderr, exit_code: finished.exit_code })
    }

    async fn finish(&self, arguments: &[&str]) -> Result<command::Finished> {
        let directory = self.directory.to_string_lossy();
        let all = ["--dir", &*directory].into_iter().chain(arguments.iter().copied());
        command::run(&command::script("ctr"), all).await
    }
}
