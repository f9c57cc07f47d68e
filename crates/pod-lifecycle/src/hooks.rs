//! Hooks: commands that run in a container around its stop, and what waits for them.
//!
//! Owns H1 to H4 and H6: which hook runs when, that it runs once, and that a stop signal comes after it. A hook is no
//! exec of a caller: no event reports it, and it ends with its container at the latest. It never lengthens a budget:
//! when that is spent the signal goes out although the hook still runs (T6), and SIGKILL never waits for a hook.

use std::time::Duration;

use pod_spec::{Role, Signal};

use crate::action::{Action, Hook, OpId, Operation, Reach, Tell};
use crate::container::{Container, Intent, Phase};
use crate::event::{ContainerId, Failure, Outcome};
use crate::history::Milestone;
use crate::lone_stop::LoneStop;
use crate::pod::Pod;
use crate::standby::Duty;
use crate::time::PodTime;

/// H6: after this many exits before its turn the hook is suspect.
const SUSPECT_EXITS: u32 = 3;

/// What is known of a container's hooks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    running: Option<(OpId, Hook)>,
    /// A hook that outlived its container; no exit waits for it.
    lost: Option<OpId>,
    /// H1: once in a stop of the pod, across all incarnations.
    on_terminate: Progress,
    /// H2: once for each incarnation.
    pre_stop: Progress,
    /// The stop signal that comes after the hooks.
    waiting: Option<Waiting>,
    /// H6: exits before its turn since its on-terminate hook began.
    exits: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    #[default]
    Due,
    Begun,
}

/// A stop that has begun and whose signal waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// T8 counts from here.
    pub(crate) since: PodTime,
    /// How long hooks, signal and end may take together, if that is limited.
    pub(crate) grace: Option<Duration>,
}

impl Hooks {
    pub(crate) fn waits_for(&self, op: OpId) -> bool {
        self.running.is_some_and(|(running, _)| running == op) || self.lost == Some(op)
    }

    /// Its container is gone, and what was left of it could not be killed. Nothing else can end this hook, and an exit
    /// that waited for it would never be shown.
    pub(crate) fn give_up(&mut self) {
        if let Some((op, _)) = self.running.take() {
            self.lost = Some(op);
        }
    }

    /// Whether a hook's process may still be there: its container's exit comes after it (CONTRACT §6).
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a stop signal waits for the hooks.
    pub(crate) fn hold_a_stop(&self) -> bool {
        self.waiting.is_some()
    }

    /// The signal goes out now, although a hook may still run.
    pub(crate) fn stop_waiting(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }

    pub(crate) fn new_incarnation(&mut self) {
        self.waiting = None;
        self.pre_stop = Progress::Due;
    }

    /// T14: what lives goes on, and the next stop is another one.
    pub(crate) fn new_round(&mut self) {
        self.on_terminate = Progress::Due;
        self.exits = 0;
    }

    /// When the hooks next need the clock.
    pub(crate) fn deadline(&self) -> Option<PodTime> {
        self.waiting.and_then(|waiting| Some(waiting.since + waiting.grace?))
    }
}

impl Pod {
    /// Sends a container a stop signal (the given one, the held one, or its own) after its hooks. `grace` bounds all of
    /// it (U4); without it the container's own grace does (T8).
    ///
    /// A second stop signal meanwhile changes nothing: podshim delivers the first one (K15).
    pub(crate) fn stop_after_hooks(
        &mut self,
        id: &ContainerId,
        given: Option<(Signal, Reach)>,
        grace: Option<Duration>,
    ) {
        let now = self.now;
        let Some(container) = self.containers.get(id) else { return };
        if container.hooks.hold_a_stop() {
            return;
        }
        if !container.hooks.is_running() && self.next_hook(container).is_none() {
            self.deliver_stop(id, given);
            if let (Some(grace), Some(container)) = (grace, self.containers.get_mut(id)) {
                container.stop.kill_by(now + grace);
            }
            return;
        }
        let own = container.member().and_then(|index| self.members[index].member.grace);
        let Some(container) = self.containers.get_mut(id) else { return };
        container.hooks.waiting = Some(Waiting { since: now, grace: grace.or(own) });
        container.stop.held_signal = given.or(container.stop.held_signal);
        // As with a delivered signal, its end has begun.
        container.probe = None;
        if container.stop.intent == Intent::Live {
            container.stop.intent = Intent::End;
        }
        self.changed();
        self.go_on_with_hooks(id);
    }

    /// The hook that a container's stop has to run next.
    ///
    /// podshim cannot tell a main's or an init's own stop from the start of its pod's stop (T12), and its signal is
    /// delivered at once: so its on-terminate hook runs before that signal at the latest.
    fn next_hook(&self, container: &Container) -> Option<Hook> {
        let member = &self.members[container.member()?].member;
        // H4: no hook runs in a container whose program never ran, or after its stop signal. One that is being started
        // is about to run: a caller whose Start was answered by a hold cannot know that the start is only now under
        // way.
        let runs =
            matches!(container.phase, Phase::Running { .. } | Phase::Starting { early_exit: None, .. });
        let signalled = container.stop.term_at.is_some() || container.stop.killed;
        if !runs || signalled || !self.stop_has_time_for_hooks() {
            return None;
        }
        let hooks = &container.hooks;
        let terminates = self.stop.is_some() || member.role != Role::Sidecar;
        if terminates && hooks.on_terminate == Progress::Due && member.on_terminate.is_some() {
            return Some(Hook::OnTerminate);
        }
        (hooks.pre_stop == Progress::Due && member.pre_stop.is_some()).then_some(Hook::PreStop)
    }

    /// H1: all hooks at once at T0, whatever each container's own turn is.
    pub(crate) fn run_on_terminate_hooks(&mut self) {
        if self.stop.is_none() {
            return;
        }
        let due = self.planned_where(|_, container| {
            matches!(container.phase, Phase::Running { .. })
                && !container.hooks.is_running()
                && self.next_hook(container) == Some(Hook::OnTerminate)
        });
        for id in due {
            self.run_hook(&id, Hook::OnTerminate);
        }
    }

    /// Runs the next hook of a stop that has begun, or sends its signal.
    pub(crate) fn go_on_with_hooks(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        if container.hooks.is_running() || !container.hooks.hold_a_stop() {
            return;
        }
        match self.next_hook(container) {
            Some(_) if !matches!(container.phase, Phase::Running { .. }) => {}
            Some(hook) => self.run_hook(id, hook),
            None if self.turn_has_passed(container) => self.hold_again(id),
            None => self.deliver_stop(id, None),
        }
    }

    /// Whether a sidecar's turn (K8) is over before its signal was sent: a container that needs it was started while
    /// its hooks ran.
    fn turn_has_passed(&self, container: &Container) -> bool {
        let Some(index) = container.member() else { return false };
        let state = &self.members[index];
        state.member.role == Role::Sidecar
            && state.duty == Duty::Active
            && container.stop.intent != Intent::Restart
            && container.lone_stop != Some(LoneStop::Alone)
            && container.stop.held_signal.is_some()
            && !self.turn_has_come(container)
    }

    /// T3: the signal waits for the next turn; the hooks have already run.
    fn hold_again(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.hooks.stop_waiting();
        container.stop.intent = Intent::Live;
        self.changed();
    }

    pub(crate) fn run_hook(&mut self, id: &ContainerId, hook: Hook) {
        let Some(index) = self.containers.get(id).and_then(Container::member) else { return };
        let member = &self.members[index].member;
        let command = match hook {
            Hook::OnTerminate => member.on_terminate.clone(),
            Hook::PreStop => member.pre_stop.clone(),
            Hook::Migrate => member.migrate.clone(),
        };
        let op = self.run(id, Operation::RunHook { hook, command: command.unwrap_or_default() });
        let Some(container) = self.containers.get_mut(id) else { return };
        container.hooks.running = Some((op, hook));
        match hook {
            Hook::OnTerminate => container.hooks.on_terminate = Progress::Begun,
            Hook::PreStop => container.hooks.pre_stop = Progress::Begun,
            // Once for each takeover.
            Hook::Migrate => {}
        }
    }

    /// H1, H3: logs the result, which changes nothing.
    pub(crate) fn hook_ended(&mut self, id: &ContainerId, op: OpId, outcome: Outcome) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.hooks.lost == Some(op) {
            container.hooks.lost = None;
            return self.changed();
        }
        let Some((_, hook)) = container.hooks.running.take() else { return };
        let ended_with_it = matches!(container.phase, Phase::Draining { .. });
        let failure = match &outcome {
            Outcome::Failed(failure) => Some(failure.message.clone()),
            _ => None,
        };
        self.record(id, Milestone::HookEnded { hook, failure });
        self.changed();
        match outcome {
            outcome if hook == Hook::Migrate => self.migrated(id, &outcome),
            // Often the purpose of the hook: it makes its program quit.
            Outcome::Failed(_) if ended_with_it => {
                self.act(Action::Note(format!("container {id}: {hook} hook ended with its container")));
            }
            Outcome::Failed(Failure { message, .. }) => {
                let line = format!("{hook} hook: {message}");
                self.act(Action::Tell { container: id.clone(), line, to: Tell::Log });
            }
            _ => self.act(Action::Note(format!("container {id}: {hook} hook succeeded"))),
        }
        self.go_on_with_hooks(id);
        self.drained(id);
    }

    /// T8, U4: the container's own time is over before its hooks have ended.
    pub(crate) fn hook_timer(&mut self, id: &ContainerId) {
        let due = self.containers.get(id).and_then(|container| container.hooks.deadline());
        if due.is_some_and(|at| self.now >= at) {
            self.deliver_stop(id, None);
        }
    }

    /// H6: a hook that ends its container before its turn makes R2 restart it again and again. podshim logs that; the
    /// restarts go on with their delays.
    pub(crate) fn suspect_hook_of(&mut self, id: &ContainerId) {
        let stopping = self.stop.is_some();
        let Some(container) = self.containers.get_mut(id) else { return };
        if !stopping || container.hooks.on_terminate == Progress::Due {
            return;
        }
        container.hooks.exits += 1;
        if container.hooks.exits == SUSPECT_EXITS {
            let line = format!(
                "exited {SUSPECT_EXITS} times while the pod stops and before its turn: \
                 is it the on-terminate hook that ends it?"
            );
            self.act(Action::Tell { container: id.clone(), line, to: Tell::Log });
        }
    }
}
