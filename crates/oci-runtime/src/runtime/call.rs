//! One call of the runtime, from its spawn to its end or its time limit.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use cgroups::CgroupDriver;
use nix::sys::signal::{Signal, killpg};
use processes::Process;
use processes::reaper::{Child, Exit, ExitWatch};
use streams::stdio::Excess;
use tokio::time::Instant;
use tracing::warn;

use super::command::{Arguments, Captured, LogPosition, Output, Streams};
use super::container::Container;
use super::error::{Operation, RuntimeError};
use super::finished::{self, CallEnd, FinishedCall};
use super::give_up::GiveUp;

/// How long podshim waits for the end of a process that got SIGKILL.
pub(super) const DEATH_LIMIT: Duration = Duration::from_secs(5);

/// How often podshim checks during an exec whether the container has ended, and during each call whether the runtime has logged an
/// error. The container's exit is reported after those of all its execs and hooks, so an exec whose runtime hangs must not delay it
/// for the exec's whole time limit (H3, T6, trap 7).
const POLL: Duration = Duration::from_millis(500);

/// Variables that containerd's systemd unit (`Type=notify`) sets and that every shim inherits.
///
/// With NOTIFY_SOCKET, runc waits in `start` until the container sends READY=1; with LISTEN_FDS, it passes on
/// descriptors that do not exist.
pub(super) const SERVICE_MANAGER_VARIABLES: [&str; 4] =
    ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

impl Container {
    /// Runs a command whose output podshim reads, and returns its stdout.
    pub(super) async fn run(
        &self,
        operation: Operation,
        arguments: Arguments,
        stdin: Option<&[u8]>,
    ) -> Result<Vec<u8>, RuntimeError> {
        let captured = Captured::new(stdin).map_err(|source| self.spawn_error(operation, source))?;
        self.call(operation, arguments, Streams::Captured(captured)).await
    }

    pub(super) async fn call(
        &self,
        operation: Operation,
        arguments: Arguments,
        streams: Streams,
    ) -> Result<Vec<u8>, RuntimeError> {
        let began = Instant::now();
        let result = self.execute(operation, arguments, streams).await;
        let end = if result.is_ok() { CallEnd::Succeeded } else { CallEnd::Failed };
        finished::note(FinishedCall { operation, took: began.elapsed(), end });
        result
    }

    async fn execute(
        &self,
        operation: Operation,
        arguments: Arguments,
        streams: Streams,
    ) -> Result<Vec<u8>, RuntimeError> {
        if self.give_up.as_ref().is_some_and(GiveUp::is_given) {
            return Err(RuntimeError::GivenUp { operation, id: self.id.to_string() });
        }
        let permit = self.runtime.reaper.spawn_permit().await;
        let log = self.has_bundle().then(|| LogPosition::remember(self.bundle.log_path()));
        let spawned = self.spawn(&arguments, log.as_ref(), streams);
        drop(permit);
        let spawn_failed = |source| self.spawn_error(operation, source);
        let (Child { process, exit, report }, output) = spawned.map_err(spawn_failed)?;
        let exit = self.wait(operation, process, exit, &output, log.as_ref()).await?;
        if exit.code == 0 {
            return Ok(output.stdout());
        }
        if let Some(error) = report.failure() {
            return Err(spawn_failed(error));
        }
        Err(self.failure(operation, exit, log, output))
    }

    fn spawn_error(&self, operation: Operation, source: io::Error) -> RuntimeError {
        RuntimeError::Spawn {
            operation,
            id: self.id.to_string(),
            binary: self.runtime.binary.clone(),
            source,
        }
    }

    /// Its copies of the container's streams end with the command, before this returns: otherwise containerd would never see
    /// EOF.
    fn spawn(
        &self,
        arguments: &Arguments,
        log: Option<&LogPosition>,
        streams: Streams,
    ) -> io::Result<(Child, Output)> {
        let mut command = Command::new(&self.runtime.binary);
        for variable in SERVICE_MANAGER_VARIABLES {
            command.env_remove(variable);
        }
        for (variable, value) in self.runtime.environment.variables() {
            if std::env::var_os(variable).is_none() {
                command.env(variable, value);
            }
        }
        command.arg("--root").arg(&self.runtime.root);
        if let Some(log) = log {
            command.arg("--log").arg(&log.path).args(["--log-format", "json"]);
        }
        if self.runtime.cgroup_driver == CgroupDriver::Systemd {
            command.arg("--systemd-cgroup");
        }
        if let Some(criu) = &self.runtime.criu {
            command.arg("--criu").arg(criu);
        }
        command.args(&arguments.0);
        // As from containerd's shim: a wrapper may look for ./config.json (CONTRACT §8). `delete` may come without a bundle.
        if log.is_some() {
            command.current_dir(self.bundle.path());
        }
        // If a hook hangs, the hook must be killed too. The process that becomes the container leaves the group.
        command.process_group(0);
        if let Some(hidden) = self.runtime.hidden.clone() {
            // SAFETY: it makes system calls alone, on memory that is there already.
            unsafe { command.pre_exec(move || hidden.hide()) };
        }
        let output = streams.attach(&mut command)?;
        Ok((self.runtime.reaper.spawn(&mut command)?, output))
    }

    /// What the runtime says of why it failed.
    fn failure(
        &self,
        operation: Operation,
        exit: Exit,
        log: Option<LogPosition>,
        output: Output,
    ) -> RuntimeError {
        let mut errors = log.map(|log| log.errors()).unwrap_or_default();
        let last = errors.pop();
        // runc's last error is what containerd's shim answers; its first is why a process that it started ended.
        if let Some(error) = errors.first().filter(|first| last.as_ref() != Some(first)) {
            warn!(container = %self.id, %operation, error, "the OCI runtime's first error; the caller gets its last");
        }
        let binary = self.runtime.binary.display();
        let message = last.or_else(|| output.last_error_line()).unwrap_or_else(|| match exit.signal {
            Some(signal) => format!("{binary} was killed by signal {signal}"),
            None => format!("{binary} ended with exit status {}", exit.code),
        });
        let id = self.id.to_string();
        match exit.signal {
            Some(_) => RuntimeError::Killed { operation, id, message },
            None => RuntimeError::Failed { operation, id, message },
        }
    }

    async fn wait(
        &self,
        operation: Operation,
        process: Process,
        mut exit: ExitWatch,
        output: &Output,
        log: Option<&LogPosition>,
    ) -> Result<Exit, RuntimeError> {
        let limit = operation.time_limit();
        let deadline = Instant::now() + limit;
        // A new incarnation (R6) has another pid; this exec is not in it.
        let init = self.bundle.read_init_pid().ok().filter(|_| operation == Operation::Exec);
        let excess = match output {
            Output::Container { excess, .. } => excess.as_ref(),
            Output::Captured(_) => None,
        };
        // The program of a create does not run yet.
        if let Some(excess) = excess.filter(|_| operation == Operation::Create) {
            excess.is_the_runtimes();
        }
        let error = loop {
            let must_check = init.is_some() || excess.is_some();
            let next_check = if must_check { deadline.min(Instant::now() + POLL) } else { deadline };
            let id = self.id.to_string();
            tokio::select! {
                biased;
                result = tokio::time::timeout_at(next_check, &mut exit) => if let Ok(exit) = result {
                    return Ok(exit);
                },
                () = self.given_up() => break RuntimeError::GivenUp { operation, id },
            }
            note_excess(log, excess);
            if Instant::now() >= deadline {
                break RuntimeError::TimedOut { operation, id, limit };
            }
            if init.is_some_and(|init| !self.runtime.reaper.is_watched(init)) {
                break RuntimeError::Outlived { operation, id };
            }
        };
        self.kill_group(operation, &process);
        // So that the runtime is no longer at work when its work is undone. A runtime in uninterruptible sleep is not
        // waited for.
        let _ = tokio::time::timeout(DEATH_LIMIT, &mut exit).await;
        Err(error)
    }

    /// Kills a runtime that takes too long, together with a hook that it may be waiting for.
    ///
    /// A signal by process group number is safe until the runtime has been reaped: its group keeps the number until
    /// then.
    fn kill_group(&self, operation: Operation, runtime: &Process) {
        if let Err(error) = killpg(runtime.pid(), Signal::SIGKILL) {
            warn!(container = %self.id, %operation, %error, "cannot kill an OCI runtime that is not waited for any more");
        }
    }
}

/// What a runtime that has failed writes to its stderr without end can be dropped: it says in its log why (D7).
fn note_excess(log: Option<&LogPosition>, excess: Option<&Excess>) {
    if let Some(excess) = excess
        && log.is_some_and(|log| !log.errors().is_empty())
    {
        excess.is_the_runtimes();
    }
}
