//! Runs the commands the harness needs (`hack/` scripts, `ctr`). The only place that starts processes; it
//! always waits for them.

use std::ffi::OsStr;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

/// A command's output, and how it ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
    /// Its exit code; `None` if a signal ended it.
    pub exit_code: Option<i32>,
}

impl Finished {
    /// Its stdout, if it exited 0.
    pub(crate) fn success(self, what: impl Debug) -> Result<String> {
        if self.exit_code != Some(0) {
            bail!("{what:?} ended with {:?}: {}{}", self.exit_code, self.stdout, self.stderr);
        }
        Ok(self.stdout)
    }
}

/// The path of a script in `hack/`.
pub(crate) fn script(name: &str) -> PathBuf {
    // In a machine of hack/vm the tests do not lie where they were built; nextest sets the variable to where they are.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).join("../hack").join(name)
}

/// Runs a script in `hack/` and returns its stdout.
///
/// # Errors
/// If it exits with anything but 0; the error holds its output.
pub async fn hack<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Result<String> {
    run(&script(name), arguments).await?.success(name)
}

/// Runs a program of the machine and returns its stdout.
///
/// # Errors
/// If it exits with anything but 0; the error holds its output.
pub async fn output<S: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = S>,
) -> Result<String> {
    run(Path::new(program), arguments).await?.success(program)
}

/// Runs a program to its end. It is killed when the future is dropped, so that a deadline around it holds.
pub(crate) async fn run<S: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Result<Finished> {
    let output = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(Finished {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        exit_code: output.status.code(),
    })
}

/// Runs a program to its end from `Drop`, which cannot await.
#[expect(clippy::disallowed_methods, reason = "the harness has no reaper and waits for what it starts")]
pub(crate) fn run_blocking<S: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Result<()> {
    let mut command = std::process::Command::new(program);
    let status = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    if !status.success() {
        bail!("{command:?}: {status}");
    }
    Ok(())
}
