//! Standby sidecars (V-rules): pairs of an active and a held container, and the switch between them.
//!
//! Owns which one of a pair is active, when its partner takes over, and what happens when a switch fails. For the rest
//! of the core a pair is one member: its gate is open when the active one's is, and both have the same links.

use crate::action::{Action, Hook, Refusal, RefusalKind, Reply, Tell};
use crate::container::{Container, Intent, Phase, Program};
use crate::event::{ContainerId, Exit, Outcome, RequestId};
use crate::history::Milestone;
use crate::member::GateState;
use crate::pod::Pod;
use crate::time::PodTime;

/// Whether a member is the active one of its pair. A member without a pair is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    Active,
    Standby,
}

/// A standby that is taking over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeOver {
    /// The request for the switch, if there was one (V3).
    request: Option<RequestId>,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its gate must open.
    Gate,
    /// Its migrate hook runs, until `until` at the latest.
    Migrate { until: PodTime },
    /// It is the active one now; its partner is ending.
    Retire,
}

impl Pod {
    /// The partner of a member.
    pub(crate) fn partner(&self, index: usize) -> Option<usize> {
        self.members[index].member.pair
    }

    /// V1: whether a container is held as the standby, whatever its gates.
    pub(crate) fn stands_by(&self, container: &Container) -> bool {
        let standby = container.member().is_some_and(|index| self.members[index].duty == Duty::Standby);
        standby && container.takeover.is_none()
    }

    /// V3, on an operator's request: the standby of that name's pair is to take over.
    pub(crate) fn switch(&mut self, request: RequestId, name: &str) {
        let found = self
            .members
            .iter()
            .position(|state| state.member.name == name || state.member.alias.as_deref() == Some(name));
        let Some(index) = found else {
            return self
                .reply(request, Err(Refusal::not_found(format!("no container {name:?} in the plan"))));
        };
        let Some(other) = self.partner(index) else {
            let text = format!("{} has no standby", self.members[index]);
            return self.reply(request, Err(Refusal::new(RefusalKind::InvalidArgument, text)));
        };
        let next = if self.members[index].duty == Duty::Standby { index } else { other };
        let held = self.current(next).filter(|container| {
            matches!(container.phase, Phase::Held(_)) && container.program == Program::NeverRan
        });
        let refused = match held {
            Some(container) if container.takeover.is_some() => Some("a switch is under way".to_owned()),
            None => Some(format!("{} is not held", self.members[next])),
            Some(_) => self.refuses_switch_to(next),
        };
        if let Some(reason) = refused {
            let text = format!("cannot switch to {}: {reason}", self.members[next]);
            return self.reply(request, Err(Refusal::precondition(text)));
        }
        let Some(id) = self.members[next].current.clone() else { return };
        self.begin_takeover(&id, Some(request));
    }

    /// V3, the caller's way: a standby takes over when it is created and started again while its partner works.
    pub(crate) fn take_over_if_replaced(&mut self, id: &ContainerId) {
        let Some(index) = self.containers.get(id).and_then(Container::member) else { return };
        if self.partner(index).is_none() {
            return;
        }
        let state = &mut self.members[index];
        let again = state.was_started;
        state.was_started = Started::Before;
        if again == Started::Before && state.duty == Duty::Standby && self.refuses_switch_to(index).is_none()
        {
            self.begin_takeover(id, None);
        }
    }

    /// Why a pair cannot switch now.
    fn refuses_switch_to(&self, next: usize) -> Option<String> {
        let active = self.partner(next)?;
        if self.stop.is_some() {
            return Some("the pod is stopping".to_owned());
        }
        if self.failure.is_some() {
            return Some("the pod has failed".to_owned());
        }
        (self.members[active].gate != GateState::Open)
            .then(|| format!("{} is not ready", self.members[active]))
    }

    fn begin_takeover(&mut self, id: &ContainerId, request: Option<RequestId>) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.takeover = Some(TakeOver { request, stage: Stage::Gate });
        let Some(index) = container.member() else { return };
        let line = format!("{} is to take over", self.members[index]);
        self.members[index].gate = GateState::Closed;
        self.record(id, Milestone::SwitchBegan);
        self.act(Action::Note(line));
    }

    /// V4: the new container is ready.
    pub(crate) fn successor_is_ready(&mut self, id: &ContainerId) {
        let now = self.now;
        let Some(container) = self.containers.get(id) else { return };
        let (Some(TakeOver { stage: Stage::Gate, .. }), Phase::Running { .. }, Some(index)) =
            (container.takeover, &container.phase, container.member())
        else {
            return;
        };
        if self.members[index].member.migrate.is_none() {
            return self.retire_other(id);
        }
        let until = now + self.grace_of(id);
        self.set_stage(id, Stage::Migrate { until });
        self.run_hook(id, Hook::Migrate);
    }

    /// V4: its migrate hook has ended. A failure is logged here, not in `hooks`.
    pub(crate) fn migrated(&mut self, id: &ContainerId, outcome: &Outcome) {
        let takeover = self.containers.get(id).and_then(|container| container.takeover);
        let Some(TakeOver { stage: Stage::Migrate { .. }, .. }) = takeover else { return };
        match outcome {
            Outcome::Failed(failure) => {
                let reason = format!("its migrate hook failed: {}", failure.message);
                self.takeover_failed(id, &reason);
            }
            _ => self.retire_other(id),
        }
    }

    /// V4: the new container is active now; its partner ends within its own grace, and is then held.
    fn retire_other(&mut self, id: &ContainerId) {
        let Some(index) = self.containers.get(id).and_then(Container::member) else { return };
        let Some(other) = self.partner(index) else { return };
        self.set_stage(id, Stage::Retire);
        self.members[index].duty = Duty::Active;
        self.members[other].duty = Duty::Standby;
        self.record(id, Milestone::Switched);
        self.act(Action::Note(format!("{} takes over from {}", self.members[index], self.members[other])));
        let Some(old) = self.members[other].current.clone() else { return };
        self.end_to_be_held(&old);
    }

    /// Ends a program whose container is to be held then.
    fn end_to_be_held(&mut self, id: &ContainerId) {
        let grace = self.grace_of(id);
        let Some(container) = self.containers.get_mut(id) else { return };
        match container.phase {
            Phase::Starting { .. } | Phase::Running { .. } if container.stop.intent != Intent::End => {
                container.stop.intent = Intent::Restart;
                self.stop_after_hooks(id, None, Some(grace));
            }
            Phase::Held(_) | Phase::BackingOff { .. } | Phase::Recreating { .. } => self.stands_by_now(id),
            _ => {}
        }
    }

    /// V5: the takeover has failed; the active container is not touched.
    pub(crate) fn takeover_failed(&mut self, id: &ContainerId, reason: &str) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.takeover.is_none_or(|takeover| takeover.stage == Stage::Retire) {
            return;
        }
        let takeover = container.takeover.take();
        let Some(index) = container.member() else { return };
        let line = format!("{} did not take over: {reason}", self.members[index]);
        self.record(id, Milestone::SwitchFailed { reason: reason.to_owned() });
        self.act(Action::Tell { container: id.clone(), line: line.clone(), to: Tell::Log });
        if let Some(request) = takeover.and_then(|takeover| takeover.request) {
            self.reply(request, Err(Refusal::precondition(line)));
        }
        self.end_to_be_held(id);
    }

    /// The program of one of a pair has ended. Says whether its container is held now, instead of being restarted or
    /// shown.
    pub(crate) fn is_held_again(&mut self, id: &ContainerId, exit: Exit) -> Held {
        self.takeover_failed(id, &format!("it exited with {}", exit.code));
        let Some(container) = self.containers.get(id) else { return Held::No };
        if !self.stands_by(container) || self.stop.is_some() || !self.keeps_running(container) {
            return Held::No;
        }
        self.stands_by_now(id);
        self.back_off(id, exit);
        Held::Again
    }

    /// It becomes a standby without a past: what it ran before delays no other container, and its gate is closed.
    fn stands_by_now(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.program = Program::NeverRan;
        container.restarts = crate::backoff::Restarts::default();
        container.probe = None;
        if let Some(index) = container.member() {
            self.members[index].gate = GateState::Closed;
        }
        self.changed();
    }

    /// V4, V6: a switch is over when the old container has ended, or when the pod or the new container ends.
    pub(crate) fn end_takeovers(&mut self) {
        let stopping = self.stop.is_some();
        let under_way: Vec<_> = self
            .planned()
            .filter_map(|(_, container)| {
                Some((container.id.clone(), container.takeover?, container.member()?))
            })
            .collect();
        for (id, takeover, index) in under_way {
            let old_lives =
                self.partner(index).and_then(|other| self.current(other)).is_some_and(Container::is_alive);
            let Some(container) = self.containers.get_mut(&id) else { continue };
            let lost = matches!(
                container.phase,
                Phase::Created | Phase::Ending { .. } | Phase::Stopped { .. } | Phase::Removing { .. }
            );
            let over = match takeover.stage {
                Stage::Retire => stopping || lost || !old_lives,
                Stage::Gate | Stage::Migrate { .. } => stopping || lost,
            };
            if !over {
                continue;
            }
            container.takeover = None;
            self.changed();
            let Some(request) = takeover.request else { continue };
            let result = match takeover.stage {
                Stage::Retire => Ok(Reply::Ok),
                _ => {
                    let text = format!("{} did not take over: it was stopped", self.members[index]);
                    Err(Refusal::precondition(text))
                }
            };
            self.reply(request, result);
        }
    }

    fn set_stage(&mut self, id: &ContainerId, stage: Stage) {
        if let Some(takeover) = self.containers.get_mut(id).and_then(|container| container.takeover.as_mut())
        {
            takeover.stage = stage;
        }
        self.changed();
    }

    /// V5: a migrate hook may take its container's grace.
    pub(crate) fn takeover_timer(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        if container.takeover_deadline().is_some_and(|until| self.now >= until) {
            self.takeover_failed(id, "its migrate hook did not end within its grace");
        }
    }
}

/// Whether a container is held again after its program has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    Again,
    No,
}

/// Whether a task of a member's name has been started in this round (V3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    Never,
    Before,
}

impl Container {
    /// When its takeover next needs the clock.
    pub(crate) fn takeover_deadline(&self) -> Option<PodTime> {
        match self.takeover?.stage {
            Stage::Migrate { until } => Some(until),
            Stage::Gate | Stage::Retire => None,
        }
    }

    /// The request that waits for its takeover.
    pub(crate) fn takeover_request(&mut self) -> Option<RequestId> {
        self.takeover.take().and_then(|takeover| takeover.request)
    }
}
