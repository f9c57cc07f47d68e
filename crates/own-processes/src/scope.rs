//! The scope that systemd keeps a sandbox in.

use std::io;
use std::path::Path;
use std::time::Duration;

use cgroups::CgroupVersion;
use nix::unistd::Pid;
use thiserror::Error;
use threads::at_once;
use tokio::time::{Instant, sleep, timeout};
use tracing::warn;

use super::cgroups_path::Scope;
use super::limits::{CpuTime, Limits};
use crate::systemd::{Manager, Property, PropertyValue, SOCKET, SystemdError};

/// For systemd to run the scope's job; runc waits as long.
const START_LIMIT: Duration = Duration::from_secs(30);
const START_POLL: Duration = Duration::from_millis(1);
/// Of so many polls one asks systemd, whose one thread has the scopes of all other pods to make.
const POLLS_OF_A_QUESTION: u32 = 100;
/// For systemd to end a scope that is empty. It notices that by itself too; a Delete has ten seconds.
const END_LIMIT: Duration = Duration::from_secs(2);

/// Why a scope is not as it should be.
#[derive(Debug, Error)]
pub enum ScopeError {
    /// systemd refuses it or cannot be reached.
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    /// Its process has no groups that can be read: it has ended.
    #[error(transparent)]
    Process(#[from] io::Error),
    /// Its job failed, or takes too long.
    #[error("systemd has not started {unit}: its journal may say why")]
    NotStarted {
        /// The scope.
        unit: String,
    },
}

impl Scope {
    /// Makes the scope of a process that waits, and returns when it is in it.
    ///
    /// # Errors
    /// systemd refuses it, its job fails, or systemd has not made it in time.
    pub async fn start(
        &self,
        pid: Pid,
        id: &str,
        limits: &Limits,
        properties: &[Property],
        version: CgroupVersion,
    ) -> Result<(), ScopeError> {
        let properties = self.properties(pid, id, limits, properties, version);
        let mut manager = Manager::connect().await?;
        manager.start_scope(&self.unit, &properties).await?;
        let deadline = Instant::now() + START_LIMIT;
        let mut polls = 0_u32;
        while !self.has(pid)? {
            polls += 1;
            // After a job that failed systemd has no such unit any more (CollectMode). If it executes itself again,
            // which ends this connection, only the limit is left.
            let has_failed = polls.is_multiple_of(POLLS_OF_A_QUESTION)
                && manager.find_unit(&self.unit).await.is_err_and(|error| error.is_no_such_unit());
            if has_failed || Instant::now() >= deadline {
                return Err(ScopeError::NotStarted { unit: self.unit.clone() });
            }
            sleep(START_POLL).await;
        }
        Ok(())
    }

    /// Tells systemd the limits too: it writes its own when it reloads.
    ///
    /// # Errors
    /// systemd refuses them or cannot be reached.
    pub async fn limit(
        &self,
        limits: &Limits,
        version: CgroupVersion,
        of_group: Option<CpuTime>,
    ) -> Result<(), ScopeError> {
        let mut properties = limits.properties(version);
        properties.extend(limits.period_property(of_group));
        if properties.is_empty() {
            return Ok(());
        }
        let mut manager = Manager::connect().await?;
        Ok(manager.set_properties(&self.unit, &properties).await?)
    }

    /// As runc makes the scopes of containers, so that the kubelet and the node's tools see no difference.
    fn properties(
        &self,
        pid: Pid,
        id: &str,
        limits: &Limits,
        of_spec: &[Property],
        version: CgroupVersion,
    ) -> Vec<Property> {
        let flag = |name: &str, value| Property::new(name, PropertyValue::Bool(value));
        let text = |name: &str, value: &str| Property::new(name, PropertyValue::Text(value.to_owned()));
        let mut properties = vec![
            text("Description", &format!("podshim sandbox {id}")),
            text("Slice", &self.slice),
            Property::new("PIDs", PropertyValue::Pids(vec![pid.as_raw().cast_unsigned()])),
            flag("Delegate", true),
            flag("MemoryAccounting", true),
            flag("CPUAccounting", true),
            flag(
                match version {
                    CgroupVersion::V1 => "BlockIOAccounting",
                    CgroupVersion::V2 => "IOAccounting",
                },
                true,
            ),
            flag("TasksAccounting", true),
            flag("DefaultDependencies", false),
            // A scope that failed has no use: its exit is the task's.
            text("CollectMode", "inactive-or-failed"),
        ];
        properties.extend(limits.properties(version));
        properties.retain(|own| of_spec.iter().all(|other| other.name != own.name));
        properties.extend(of_spec.iter().cloned());
        properties
    }

    fn has(&self, pid: Pid) -> io::Result<bool> {
        let groups = at_once::read(format!("/proc/{pid}/cgroup"))?;
        let systemds = groups.lines().filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            rest.strip_prefix("name=systemd:").or_else(|| rest.strip_prefix(':'))
        });
        Ok(systemds.into_iter().any(|path| path.rsplit('/').next() == Some(&self.unit)))
    }
}

/// Ends the scope of a sandbox whose processes and control groups are gone, if systemd has not noticed yet.
pub async fn end(unit: &str) {
    if !Manager::is_there() {
        return;
    }
    end_by(Path::new(SOCKET), unit).await;
}

async fn end_by(socket: &Path, unit: &str) {
    let ended = async { Manager::connect_to(socket).await?.stop_unit(unit).await };
    let error = match timeout(END_LIMIT, ended).await {
        Ok(Err(error)) if !error.is_no_such_unit() => error.to_string(),
        Ok(_) => return,
        Err(_) => format!("no answer in {END_LIMIT:?}"),
    };
    warn!(unit, error, "systemd may keep the scope of a sandbox that is gone");
}

#[cfg(test)]
mod tests;
