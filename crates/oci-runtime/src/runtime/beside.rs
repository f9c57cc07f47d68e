//! A process beside a container's program: that of an `exec:` gate or of a hook.
//!
//! Owns who makes it: podshim itself, or the OCI runtime where the spec has what podshim does not do (`own_processes::exec`). A caller's
//! exec is the OCI runtime's. May never try the one after the other: a step that failed would fail twice, and half of it may be done.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use cgroups::{Cgroup, Entrance, FreezeState};
use nix::unistd::Pid;
use own_processes::NotUnderstood;
use own_processes::exec::{self, ExecError, ExecProgram, Execs, Target};
use processes::Process;
use serde_json::Value;
use streams::stdio::ChildStdio;

use super::container::Container;
use super::error::RuntimeError;
use super::launch::Launched;

/// Such processes of one container, without their commands. Clones share one spec.
#[derive(Debug, Clone)]
pub enum BesideSpec {
    /// podshim makes them.
    Own(Rc<OwnExecs>),
    /// The OCI runtime does: a process of the spec, as JSON.
    OfRuntime(Rc<Value>),
}

/// What podshim's own have in common.
#[derive(Debug)]
pub struct OwnExecs {
    execs: Execs,
    program: ExecProgram,
    /// Into the groups of v1 of that init, until a start fails. A container of v2 may make groups of its own and move its init.
    entrance: RefCell<Option<(Pid, Rc<Entrance>)>>,
}

impl OwnExecs {
    fn entrance(&self, cgroup: &Cgroup, init: Pid) -> io::Result<Rc<Entrance>> {
        if let Some((of, entrance)) = &*self.entrance.borrow()
            && *of == init
            && matches!(cgroup, Cgroup::V1(_))
        {
            return Ok(entrance.clone());
        }
        let entrance = Rc::new(Entrance::of(cgroup, init)?);
        self.entrance.replace(Some((init, entrance.clone())));
        Ok(entrance)
    }
}

impl BesideSpec {
    /// What the container's spec says of them, and what of it is not podshim's.
    pub fn of(
        container: &Container,
        spec: &Value,
        keyring: own_processes::SessionKeyring,
    ) -> (Self, Option<NotUnderstood>) {
        match Execs::of(spec, container.id(), &container.runtime.binary, keyring) {
            Ok(execs) => {
                let (program, entrance) = (ExecProgram::default(), RefCell::default());
                (Self::Own(Rc::new(OwnExecs { execs, program, entrance })), None)
            }
            Err(not_understood) => (Self::OfRuntime(Rc::new(spec["process"].clone())), Some(not_understood)),
        }
    }
}

/// One of them.
#[derive(Debug)]
pub struct Beside {
    /// What all of the container's have.
    pub spec: BesideSpec,
    /// Its command line.
    pub command: Vec<String>,
    /// The name that the OCI runtime gets for it, which no other process of the container has.
    pub id: String,
    /// The container's init.
    pub init: Rc<Process>,
    /// Its groups; `None` if the init was gone before they could be looked up.
    pub cgroup: Option<Rc<Cgroup>>,
}

impl Container {
    /// Runs a process beside the container's program: same user, environment and restrictions (DESIGN §6). It may have ended already.
    ///
    /// Also works in a created container (XP-1). Not cancel-safe: run it with `spawn_local`, or the process goes on unwatched.
    ///
    /// # Errors
    /// The container has ended, is frozen, or has no such program.
    pub async fn run_beside(&self, beside: &Beside, stdio: ChildStdio) -> Result<Launched, RuntimeError> {
        match &beside.spec {
            BesideSpec::Own(own) => self.own_exec(own, beside, stdio).await,
            BesideSpec::OfRuntime(process) => {
                let mut process = Value::clone(process);
                process["args"] = beside.command.as_slice().into();
                process["terminal"] = false.into();
                self.exec(&beside.id, process.to_string().as_bytes(), stdio, None).await
            }
        }
    }

    async fn own_exec(
        &self,
        own: &OwnExecs,
        beside: &Beside,
        stdio: ChildStdio,
    ) -> Result<Launched, RuntimeError> {
        let failed = |source: ExecError| match source {
            _ if !beside.init.is_running() => RuntimeError::Ended { id: self.id.to_string() },
            source => RuntimeError::Beside { id: self.id.to_string(), source },
        };
        let prepare = |error: io::Error| failed(ExecError::Prepare(error));
        let cgroup = beside.cgroup.as_deref().ok_or_else(|| prepare(io::ErrorKind::NotFound.into()))?;
        // As runc: a process that enters a frozen group is frozen on its way.
        if cgroup.freeze_state() != FreezeState::Thawed {
            return Err(RuntimeError::Paused { id: self.id.to_string() });
        }
        let entrance = own.entrance(cgroup, beside.init.pid()).map_err(prepare)?;
        let request = own.execs.request(&beside.command).map_err(|error| prepare(io::Error::other(error)))?;
        let target = Target { init: &beside.init, entrance: &entrance, program: &own.program };
        let ChildStdio { stdin, stdout, stderr, excess: _, lent } = stdio;
        let streams = [stdin.into(), stdout.into(), stderr.into()];
        let started = exec::start(self.reaper(), &request, target, streams).await;
        drop(lent);
        match started {
            Ok(exec::Started { process, exit }) => Ok(Launched { process, exit, runtime_init: None }),
            Err(error) => {
                // Its groups may have been a container's own, and are gone.
                own.entrance.take();
                if !matches!(error, ExecError::Step { .. }) {
                    self.end_unnamed();
                }
                Err(failed(error))
            }
        }
    }
}

#[cfg(test)]
mod tests;
