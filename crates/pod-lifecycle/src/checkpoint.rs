//! Checkpoint of a running program, and containers that are made from one (CONTRACT §8).
//!
//! Owns which checkpoints and restores a pod allows. A restored program cannot be held: it goes on in the middle of its
//! work, without the start that a gate holds back. So podshim restores no member of a plan (S1), and does not let a
//! checkpoint end a sidecar or an init: podshim would start it again (R1, I3).

use pod_spec::Role;

use crate::action::{OpId, Operation, Reach, Refusal, Reply};
use crate::container::{Container, Freezer, Part, Phase, Program};
use crate::event::{AfterCheckpoint, ContainerId, ContainerSpec, Failure, Origin, Outcome, RequestId};
use crate::history::{Milestone, SignalCause};
use crate::pod::Pod;
use crate::restart::KILLED;

/// A checkpoint under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) op: OpId,
    pub(crate) request: RequestId,
}

impl Pod {
    pub(crate) fn checkpoint(&mut self, request: RequestId, id: ContainerId, after: AfterCheckpoint) {
        let Some(container) = self.containers.get(&id) else {
            return self.reply_not_found(request, &id);
        };
        if let Some(reason) = self.refuses_checkpoint(container, after) {
            let text = format!("cannot checkpoint container {id}: {reason}");
            return self.reply(request, Err(Refusal::precondition(text)));
        }
        let op = self.run(&id, Operation::Checkpoint(request));
        if let Some(container) = self.containers.get_mut(&id) {
            container.checkpoint = Some(Checkpoint { op, request });
        }
    }

    fn refuses_checkpoint(&self, container: &Container, after: AfterCheckpoint) -> Option<&'static str> {
        match (&container.phase, container.freezer) {
            _ if container.checkpoint.is_some() => return Some("it is already being checkpointed"),
            (Phase::Running { .. }, Freezer::Changing(..)) => {
                return Some("it is being paused or resumed");
            }
            (Phase::Running { .. }, Freezer::Thawed | Freezer::Paused) => {}
            (Phase::Held(_), _) => return Some("it is held, its program has not been started"),
            (Phase::BackingOff { .. } | Phase::Recreating { .. }, _) => return Some("it is restarting"),
            (Phase::Hidden { .. } | Phase::Spent { .. }, _) => return Some("it is completed"),
            (Phase::Stopped { .. } | Phase::Removing { .. }, _) => return Some("it has stopped"),
            (Phase::Ending { .. } | Phase::Draining { .. }, _) => return Some("it is ending"),
            _ => return Some("its program does not run yet"),
        }
        match (after, self.role(container)) {
            (AfterCheckpoint::End, Some(Role::Sidecar)) => {
                Some("its plan has it as a sidecar, which is restarted when it ends: leave it running")
            }
            (AfterCheckpoint::End, Some(Role::Init)) => {
                Some("its plan has it as an init, which would fail with it: leave it running")
            }
            // The runtime kills it.
            (AfterCheckpoint::End, Some(Role::Main)) if self.restarts_after(container, KILLED) => {
                Some("its restart key has it restarted when it ends: leave it running")
            }
            (AfterCheckpoint::End, Some(Role::Main) | None) | (AfterCheckpoint::LeaveRunning, _) => None,
        }
    }

    /// A checkpoint has ended. If it ended the program, that exit is shown like any other, before or after this reply.
    pub(crate) fn checkpointed(&mut self, id: &ContainerId, outcome: Outcome) {
        let container = self.containers.get_mut(id);
        let Some(Checkpoint { request, .. }) = container.and_then(|container| container.checkpoint.take())
        else {
            return;
        };
        let result = match outcome {
            Outcome::Ok | Outcome::Process { .. } => Ok(Reply::Ok),
            Outcome::Failed(Failure { message, kind }) => Err(Refusal { kind, message }),
        };
        self.reply(request, result);
    }

    /// Whether the pod accepts a container that is to be restored.
    pub(crate) fn admits_restored(&self, spec: &ContainerSpec, part: Part) -> Result<(), Refusal> {
        let planned = match part {
            Part::Member(_) => true,
            Part::Sandbox => self.plan.is_some(),
            Part::Passthrough => false,
        };
        if spec.origin == Origin::Checkpoint && planned {
            return Err(Refusal::precondition(format!(
                "cannot restore container {:?} from a checkpoint: it is in the pod's podshim.io/plan, and a restored \
                 program cannot be held for its turn",
                spec.name
            )));
        }
        Ok(())
    }

    /// Start of a container that is made from a checkpoint: only now a process is created.
    pub(crate) fn restore(&mut self, request: RequestId, id: ContainerId) {
        let op = self.run(&id, Operation::Restore);
        if let Some(container) = self.containers.get_mut(&id) {
            container.phase = Phase::Restoring { op, announce: vec![request] };
        }
    }

    pub(crate) fn restored(&mut self, id: ContainerId, outcome: Outcome) {
        let now = self.now;
        let Some(container) = self.containers.get_mut(&id) else { return };
        let Phase::Restoring { announce, .. } = &mut container.phase else { return };
        let announce = std::mem::take(announce);
        match outcome {
            Outcome::Process { pid } => {
                container.phase = Phase::Running { since: now };
                container.program = Program::HasRun;
                container.pid = pid;
                self.record(&id, Milestone::Running { pid });
                self.announce_start(&id, pid, announce);
                // A stop for good came before there was a process to stop.
                if self.stop.as_ref().is_some_and(|stop| stop.is_for_good()) {
                    self.kill_now(&id, Reach::All, SignalCause::Turn);
                }
            }
            Outcome::Failed(Failure { message, kind }) => {
                // As with the runc shim the caller may try again.
                container.phase = Phase::Prepared;
                for request in announce {
                    self.reply(request, Err(Refusal { kind, message: message.clone() }));
                }
                self.end_latecomer(&id);
            }
            Outcome::Ok => self.impossible(format!("container {id} restored without a process")),
        }
    }
}
