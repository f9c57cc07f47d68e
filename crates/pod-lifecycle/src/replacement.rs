//! Containers that a caller stopped alone, and whether they come back (T15).
//!
//! A kubelet recreates a container that it killed itself in the same sync, whatever the code and the policy (a liveness
//! probe, another image), but not if the kubelet is restarted in between or the pull fails. The shim cannot know: for
//! `replace-wait` such an end completes nothing and fails nothing; after that it counts like any other. Under Never
//! callers recreate nothing else; podshim ends what waits for a container that will not come back (I8).
//!
//! Owns that wait and its consequences.

use std::time::Duration;

use pod_spec::{RestartPolicy, Role};

use crate::action::Action;
use crate::container::{Container, Phase, Program};
use crate::event::{ContainerId, Exit};
use crate::evidence::{Ended, EndedBy};
use crate::member::{GateState, MemberState, Recreation, WasOpen};
use crate::pod::Pod;
use crate::standby::Duty;
use crate::time::PodTime;

/// What happens when a member does not come back (I8).
enum Loss {
    /// Its gate was open once: the pod goes on without it.
    GoesOn,
    /// Nothing that waits for it can ever start.
    FailsPod(String),
}

impl Pod {
    pub(crate) fn replace_wait(&self) -> Duration {
        self.plan.as_ref().map(|plan| plan.defaults.replace_wait).unwrap_or_default()
    }

    /// Who ended a container: its caller, outside of a stop of the pod, or not.
    pub(crate) fn ended_by(&self, container: &Container) -> EndedBy {
        let asked = container.member().is_some_and(|index| self.members[index].asked.is_some());
        if asked && container.start_error.is_none() { EndedBy::CallerAlone } else { EndedBy::Other }
    }

    /// T15: lets ends count whose wait is over without a Create.
    pub(crate) fn count_ends(&mut self) {
        let now = self.now;
        for index in 0..self.members.len() {
            let Some(ended) = &mut self.members[index].ended else { continue };
            if ended.open_until().is_none_or(|until| now < until) {
                continue;
            }
            ended.counts_now();
            let code = ended.counted_code().unwrap_or_default();
            self.changed();
            self.stop_if_fatal(index, code);
        }
        let due = self.losses().into_iter().find(|(_, at)| now >= *at);
        let Some((index, _)) = due else { return };
        match self.loss_of(index) {
            Loss::GoesOn => {
                let line = format!("{} was not recreated: the pod goes on without it", self.members[index]);
                self.act(Action::Note(line));
                self.open_gate(index);
            }
            Loss::FailsPod(reason) => self.fail_pod(index, reason),
        }
    }

    /// When ends count, or members are given up.
    pub(crate) fn replacement_deadlines(&self) -> impl Iterator<Item = Option<PodTime>> {
        let open = self.members.iter().map(|state| state.ended.as_ref().and_then(Ended::open_until));
        let losses = self.losses().into_iter().map(|(_, at)| Some(at));
        open.chain(losses).collect::<Vec<_>>().into_iter()
    }

    /// Under Never: the members that no caller recreates, whose gate is closed or whose work is not done, and that a
    /// held container waits for or a caller stopped; and when podshim gives them up.
    fn losses(&self) -> Vec<(usize, PodTime)> {
        if !self.recreates_nothing() || self.stop.is_some() || self.failure.is_some() {
            return Vec::new();
        }
        let held: Vec<usize> = self
            .planned()
            .filter(|(_, container)| matches!(container.phase, Phase::Held(_)))
            .filter_map(|(_, container)| Some(self.first_blocker(container.member()?)?.earlier))
            .collect();
        let living = self.planned().any(|(_, container)| container.lives_for_callers());
        (0..self.members.len())
            .filter(|index| living && self.is_lost(*index))
            .filter(|index| held.contains(index) || self.members[*index].asked.is_some())
            .filter_map(|index| {
                let replace_by = self.members[index].ended.as_ref()?.replace_by();
                Some((index, replace_by.max(self.create_quiet_until)))
            })
            .collect()
    }

    /// When podshim gives a member up (I8).
    pub(crate) fn replacement_deadline_of(&self, index: usize) -> Option<PodTime> {
        self.losses().into_iter().find(|(lost, _)| *lost == index).map(|(_, at)| at)
    }

    /// Whether a member has ended without what others wait for.
    fn is_lost(&self, index: usize) -> bool {
        let state = &self.members[index];
        let unmet = match state.member.role {
            Role::Init => state.completed.is_none(),
            Role::Sidecar => {
                state.recreation == Recreation::ByPolicy
                    && state.gate != GateState::Open
                    && state.duty == Duty::Active
            }
            Role::Main => false,
        };
        unmet && self.is_gone(index)
    }

    fn loss_of(&self, index: usize) -> Loss {
        let state = &self.members[index];
        if state.member.role == Role::Sidecar && state.was_open == WasOpen::Before {
            return Loss::GoesOn;
        }
        let code = state.ended.as_ref().map_or(0, |ended| ended.real().code);
        let by = if state.asked.is_some() { "was stopped by its caller" } else { "has ended" };
        let wait = crate::hold::show_duration(self.replace_wait());
        Loss::FailsPod(format!("{by} with {code} and was not recreated within {wait}"))
    }

    /// Under Never: a member whose Create or Start failed for its caller has ended with 128. CRI shows that code, and
    /// no caller tries again (containerd's StartContainer; a kubelet's "StartError").
    pub(crate) fn start_refused(&mut self, id: Option<&ContainerId>, index: usize, at: Exit, why: &str) {
        self.members[index].start_failure = Some(why.to_owned());
        if let Some(container) = id.and_then(|id| self.containers.get_mut(id)) {
            container.start_error = Some(at);
        }
        if self.recreates_nothing() {
            self.note_end(index, at, at, EndedBy::Other, Program::NeverRan);
        }
        self.stop_if_fatal(index, at.code);
        self.cannot_start(index, why);
    }

    /// I2, I8: an init that cannot start fails a pod in which failed inits are not retried; under Never so does a
    /// sidecar that others wait for.
    pub(crate) fn cannot_start(&mut self, index: usize, why: &str) {
        let state = &self.members[index];
        let fatal = match state.member.role {
            Role::Init => self.is_not_repeated(index),
            Role::Sidecar => {
                self.recreates_nothing()
                    && state.recreation == Recreation::ByPolicy
                    && state.gate != GateState::Open
                    && state.duty == Duty::Active
            }
            Role::Main => false,
        };
        if fatal && self.stop.is_none() && self.failure.is_none() {
            self.fail_pod(index, format!("could not be started: {why}"));
        }
    }

    /// J1, J6, J11: whether all named mains are final and the policy says that this is the end.
    pub(crate) fn is_complete(&self) -> bool {
        let policy = self.policy();
        if self.plan.is_none() || policy == RestartPolicy::Always {
            return false;
        }
        // J11: a main whose start is under way is about to run.
        let runs = |(state, container): (&MemberState, &Container)| {
            state.member.role == Role::Main && container.is_alive()
        };
        let are_done = self.mains().all(|state| {
            let code = state.ended.as_ref().and_then(Ended::counted_code);
            code.is_some_and(|code| policy == RestartPolicy::Never || code == 0)
        });
        are_done && !self.planned().any(runs)
    }

    /// J11: until when podshim leaves a complete pod alone. What its caller creates again after the end of a round may
    /// be the start of another round, whose mains may come within `replace-wait`.
    pub(crate) fn completion_waits_until(&self) -> Option<PodTime> {
        let of_this_round =
            self.mains().any(|state| state.ended.as_ref().is_some_and(|ended| ended.is_of_round(self.round)));
        self.another_round_until.filter(|until| !of_this_round && self.now < *until)
    }

    /// A program of the pod runs. If it is a main's, another round has certainly begun (J11).
    pub(crate) fn main_runs(&mut self, index: usize) {
        if self.members[index].member.role == Role::Main {
            self.another_round_until = None;
        }
    }

    pub(crate) fn mains(&self) -> impl Iterator<Item = &MemberState> {
        self.members.iter().filter(|state| state.member.role == Role::Main)
    }

    /// Whether anything of a complete pod still lives.
    pub(crate) fn something_is_left(&self) -> bool {
        self.planned().any(|(_, container)| {
            container.is_alive()
                || matches!(container.phase, Phase::Held(_) | Phase::Hidden { .. })
                || (matches!(container.phase, Phase::BackingOff { .. })
                    && container.program == Program::NeverRan)
        })
    }
}
