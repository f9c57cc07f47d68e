//! The hooks of one container: which have run, which one runs, and the stop signal that comes after them.
//!
//! Owns that each hook runs once (H1, H2), and whether a hook is suspect (H6). Knows neither commands nor the pod; which
//! hook is next is `questions::hooks`.

use std::time::Duration;

use crate::interface::id::OpId;
use crate::interface::operation::Hook;
use crate::interface::time::PodTime;

/// H6: after this many exits before its turn the hook is suspect.
pub(crate) const SUSPECT_EXITS: u32 = 3;

/// What is known of a container's hooks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    running: Option<(OpId, Hook)>,
    /// A hook that outlived its container; no exit waits for it.
    lost: Option<OpId>,
    /// H1: once in a stop of the pod, across all incarnations.
    on_terminate: Progress,
    /// H1: it has begun in a round before this one, for the signal that still waits.
    has_run_for_signal: bool,
    /// H2: once for each incarnation.
    pre_stop: Progress,
    /// Whether a hook of a stop has begun in this incarnation: its exit is not its own any more (I4, J10).
    in_program: Progress,
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

/// What a hook's operation was that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookEnd {
    /// The hook that the container's stop, or its takeover, waited for.
    Awaited(Hook),
    /// A hook that was given up before.
    Lost,
}

impl Hooks {
    pub(crate) fn waits_for(&self, op: OpId) -> bool {
        self.running.is_some_and(|(running, _)| running == op) || self.lost == Some(op)
    }

    /// Whether a hook's process may still be there: its container's exit comes after it (CONTRACT §6).
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// The operation of that hook.
    pub(crate) fn running(&self) -> Option<OpId> {
        self.running.map(|(op, _)| op)
    }

    /// Whether a hook of a stop has not begun yet.
    pub(crate) fn is_due(&self, hook: Hook) -> bool {
        match hook {
            Hook::OnTerminate => self.on_terminate == Progress::Due && !self.has_run_for_signal,
            Hook::PreStop => self.pre_stop == Progress::Due,
            // Once for each takeover.
            Hook::Migrate => true,
        }
    }

    /// I4, J10: whether a hook of a stop has begun in the program that runs now.
    pub(crate) fn have_begun_in_program(&self) -> bool {
        self.in_program == Progress::Begun
    }

    /// Whether a stop signal waits for the hooks.
    pub(crate) fn has_waiting_stop(&self) -> bool {
        self.waiting.is_some()
    }

    /// When the hooks next need the clock.
    pub(crate) fn deadline(&self) -> Option<PodTime> {
        self.waiting.and_then(|waiting| Some(waiting.since + waiting.grace?))
    }

    /// A stop begins, and its signal comes after the hooks.
    pub(crate) fn wait(&mut self, since: PodTime, grace: Option<Duration>) {
        self.waiting = Some(Waiting { since, grace });
    }

    /// T20: its stop has less time.
    pub(crate) fn shorten(&mut self, grace: Duration) {
        if let Some(waiting) = &mut self.waiting {
            waiting.grace = waiting.grace.map(|before| before.min(grace));
        }
    }

    /// The signal goes out now, although a hook may still run.
    pub(crate) fn stop_waiting(&mut self) -> Option<Waiting> {
        self.has_run_for_signal = false;
        self.waiting.take()
    }

    /// A hook begins.
    pub(crate) fn begin(&mut self, op: OpId, hook: Hook) {
        self.running = Some((op, hook));
        match hook {
            Hook::OnTerminate => self.on_terminate = Progress::Begun,
            Hook::PreStop => self.pre_stop = Progress::Begun,
            Hook::Migrate => return,
        }
        self.in_program = Progress::Begun;
    }

    /// A hook has ended.
    pub(crate) fn end(&mut self, op: OpId) -> Option<HookEnd> {
        if self.lost == Some(op) {
            self.lost = None;
            return Some(HookEnd::Lost);
        }
        self.running.take().map(|(_, hook)| HookEnd::Awaited(hook))
    }

    /// Its container is gone, and what was left of it could not be killed. Nothing else can end this hook, and an exit
    /// that waited for it would never be shown.
    pub(crate) fn give_up(&mut self) {
        if let Some((op, _)) = self.running.take() {
            self.lost = Some(op);
        }
    }

    /// H6: the program has exited in a stop before its turn. Returns whether its on-terminate hook is suspect from now
    /// on.
    pub(crate) fn count_early_exit(&mut self) -> bool {
        if self.is_due(Hook::OnTerminate) {
            return false;
        }
        self.exits += 1;
        self.exits == SUSPECT_EXITS
    }

    pub(crate) fn new_incarnation(&mut self) {
        self.stop_waiting();
        self.pre_stop = Progress::Due;
        self.in_program = Progress::Due;
    }

    /// T12: the stop that they were part of was taken back. One that runs may end; in the next stop all run again.
    pub(crate) fn take_back(&mut self) {
        self.stop_waiting();
        self.pre_stop = Progress::Due;
        self.new_round();
    }

    /// T14: what lives goes on, and the next stop is another one. H1: a signal that still waits needs no second run.
    pub(crate) fn new_round(&mut self) {
        let has_run = self.on_terminate == Progress::Begun;
        match self.waiting {
            Some(_) => self.has_run_for_signal |= has_run,
            None => self.in_program = Progress::Due,
        }
        self.on_terminate = Progress::Due;
        self.exits = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H1, H2: on-terminate once in a stop, across restarts; pre-stop once for each process.
    #[test]
    fn h1_h2_each_hook_begins_once() {
        let mut hooks = Hooks::default();
        hooks.begin(OpId(1), Hook::OnTerminate);
        assert_eq!(hooks.end(OpId(1)), Some(HookEnd::Awaited(Hook::OnTerminate)));
        hooks.begin(OpId(2), Hook::PreStop);
        assert_eq!(hooks.end(OpId(2)), Some(HookEnd::Awaited(Hook::PreStop)));
        assert!(!hooks.is_due(Hook::OnTerminate) && !hooks.is_due(Hook::PreStop));
        hooks.new_incarnation();
        assert!(!hooks.is_due(Hook::OnTerminate) && hooks.is_due(Hook::PreStop));
        hooks.new_round();
        assert!(hooks.is_due(Hook::OnTerminate));
    }

    /// H1, T12: another round begins while a signal of its own waits: it has run.
    #[test]
    fn h1_t12_not_once_more_for_a_signal_that_waits() {
        let mut hooks = Hooks::default();
        hooks.wait(PodTime::ZERO, None);
        hooks.begin(OpId(1), Hook::OnTerminate);
        hooks.new_round();
        hooks.new_round();
        assert!(!hooks.is_due(Hook::OnTerminate));
        hooks.new_incarnation();
        assert!(hooks.is_due(Hook::OnTerminate));
    }

    /// A hook that was given up is still waited for, and holds up no exit.
    #[test]
    fn a_lost_hook_ends_later() {
        let mut hooks = Hooks::default();
        hooks.begin(OpId(1), Hook::PreStop);
        hooks.give_up();
        assert!(!hooks.is_running() && hooks.waits_for(OpId(1)));
        assert_eq!(hooks.end(OpId(1)), Some(HookEnd::Lost));
        assert!(!hooks.waits_for(OpId(1)));
    }

    /// H6: the third exit before its turn, counted from the hook's begin.
    #[test]
    fn h6_the_third_early_exit_is_suspect() {
        let mut hooks = Hooks::default();
        assert!(!hooks.count_early_exit());
        hooks.begin(OpId(1), Hook::OnTerminate);
        assert_eq!([(); 4].map(|()| hooks.count_early_exit()), [false, false, true, false]);
    }
}
