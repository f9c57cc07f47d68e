//! How far the end of one container has come: the stop signal that waits, what was sent, what is due, and what the next
//! exit means.
//!
//! Owns these facts and how each event changes them. Knows neither the pod nor the container's phase, and sends nothing.

use pod_spec::Signal;

use crate::interface::operation::Reach;
use crate::interface::time::PodTime;

/// How far the end of a container has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    held_signal: Option<(Signal, Reach)>,
    signalled_at: Option<PodTime>,
    kill_at: Option<PodTime>,
    killed: bool,
    put_off: bool,
    next_exit: NextExit,
    /// Its end in order to be restarted had begun before its turn to stop came, and its signal waits for its hooks.
    was_to_restart: bool,
    unordered: bool,
    undone: bool,
    asked_at: Option<PodTime>,
    killed_in_stop: bool,
    part_is_over: bool,
}

/// What the next exit of a container means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NextExit {
    /// No caller has asked for it, and podshim has not caused it.
    #[default]
    Unasked,
    /// podshim ended it in order to restart it (U4, I7).
    Restart,
    /// podshim kills what should have become the program, as it could not be started (R4).
    NotStarted,
    /// podshim ended it in its turn in a stop that was taken back (T12): it runs again, whatever its `restart` says.
    TakenBack,
    /// It is final, as its caller stopped it alone (T16): a stop of the pod revokes that.
    Alone,
    /// It has its signal because its caller stopped it alone, and a stop of the pod has begun since (T16, R2).
    Revoked,
    /// It is final.
    Final,
}

impl Ending {
    /// A stop signal that waits for the sidecar's turn (K7), or for the container's hooks (H1, H2).
    pub(crate) fn held_signal(&self) -> Option<(Signal, Reach)> {
        self.held_signal
    }

    /// When SIGKILL is due (T7, T8).
    pub(crate) fn kill_at(&self) -> Option<PodTime> {
        self.kill_at
    }

    /// When its stop signal was delivered.
    pub(crate) fn signalled_at(&self) -> Option<PodTime> {
        self.signalled_at
    }

    /// Whether its stop signal was delivered.
    pub(crate) fn is_signalled(&self) -> bool {
        self.signalled_at.is_some()
    }

    /// Whether SIGKILL has been sent to this incarnation.
    pub(crate) fn is_killed(&self) -> bool {
        self.killed
    }

    /// T19: whether it has its stop signal, also at the end of its part of a stop's time, and only SIGKILL is left.
    pub(crate) fn has_last_stop_signal(&self) -> bool {
        self.part_is_over && self.is_signalled()
    }

    /// T19: the end of that time has come.
    pub(crate) fn end_part(&mut self) {
        self.part_is_over = true;
    }

    /// Whether a caller has asked for its end, in this round or before.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked_at.is_some()
    }

    /// When a caller first asked for that.
    pub(crate) fn asked_at(&self) -> Option<PodTime> {
        self.asked_at
    }

    /// K11: whether a caller killed it outside of any order; its code is shown as it is (J4).
    pub(crate) fn is_unordered(&self) -> bool {
        self.unordered
    }

    /// Whether a caller whose Start was not answered has killed it, and waits for its exit.
    pub(crate) fn is_undone(&self) -> bool {
        self.undone
    }

    /// T16: whether its caller stopped it alone.
    pub(crate) fn is_alone(&self) -> bool {
        self.next_exit == NextExit::Alone
    }

    /// What the next exit means.
    pub(crate) fn next_exit(&self) -> NextExit {
        self.next_exit
    }

    /// Whether the next exit is final.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self.next_exit, NextExit::Final | NextExit::Alone)
    }

    /// Whether podshim ends it in order to start it again.
    pub(crate) fn ends_for_restart(&self) -> bool {
        self.next_exit.is_restart()
    }

    /// T14: whether it has the signal with which its end began, and may still run again in the pod's stop (R2).
    pub(crate) fn is_revoked(&self) -> bool {
        self.next_exit == NextExit::Revoked
    }

    /// A caller asks for its end.
    pub(crate) fn ask(&mut self, now: PodTime) {
        self.asked_at.get_or_insert(now);
    }

    /// K7, K15: a caller's stop signal waits for the turn.
    pub(crate) fn hold_signal(&mut self, signal: Signal, reach: Reach) {
        self.held_signal = Some((signal, reach));
    }

    /// The signal that podshim sent before, in order to restart it, is the container's last; it is not repeated.
    pub(crate) fn let_last_signal_count(&mut self) {
        self.held_signal = None;
    }

    /// Its end has begun, and the signal waits for its hooks; the first signal counts (K15).
    pub(crate) fn wait_for_hooks(&mut self, given: Option<(Signal, Reach)>) {
        self.held_signal = given.or(self.held_signal);
        self.begin();
    }

    /// The signal is delivered now: the given one, or the held one. Returns it; `None` is the container's own.
    pub(crate) fn deliver(
        &mut self,
        given: Option<(Signal, Reach)>,
        now: PodTime,
    ) -> Option<(Signal, Reach)> {
        self.signalled_at.get_or_insert(now);
        self.begin();
        given.or(self.held_signal.take())
    }

    fn begin(&mut self) {
        if self.next_exit.is_unasked() {
            self.next_exit = NextExit::Final;
        }
    }

    /// A signal that podshim meant to send has not reached the process and will not: the process has exited by itself.
    pub(crate) fn not_signalled(&mut self) {
        self.signalled_at = None;
        self.forget_restart();
    }

    /// T3: the turn has passed before the signal was sent; the signal waits for the next turn.
    pub(crate) fn wait_for_next_turn(&mut self) {
        self.next_exit = self.before_its_turn();
    }

    /// What its next exit means if it does not have its turn yet. U4, V4: an end in order to be restarted goes on.
    fn before_its_turn(&self) -> NextExit {
        if self.was_to_restart { NextExit::Restart } else { NextExit::Unasked }
    }

    /// T1: its turn has come, and its next exit is the last one.
    pub(crate) fn take_turn(&mut self) {
        self.was_to_restart |= self.next_exit == NextExit::Restart && !self.is_signalled();
        self.next_exit = NextExit::Final;
    }

    /// T12: the stop that it was part of was taken back, and it has its signal: it ends, and runs again.
    pub(crate) fn take_back_turn(&mut self, kill_at: PodTime) {
        self.next_exit = NextExit::TakenBack;
        self.kill_by(kill_at);
    }

    /// T12: the stop in which podshim ended its start was taken back: it is started again.
    pub(crate) fn end_start_only(&mut self) {
        self.next_exit = NextExit::TakenBack;
    }

    /// T12: the stop that it was part of was taken back, and its signal has not been sent.
    pub(crate) fn take_back(&mut self) {
        self.signalled_at = None;
        self.kill_at = None;
        self.next_exit = self.before_its_turn();
    }

    /// T12, T16: the stop that it was part of was taken back, and its caller has stopped it: another stop of the pod revokes that it is
    /// final, unless its caller has killed it.
    pub(crate) fn take_back_last_turn(&mut self) {
        let is_last = matches!(self.next_exit, NextExit::Final | NextExit::Revoked);
        if is_last && !self.put_off && !self.killed {
            self.next_exit = NextExit::Alone;
        }
    }

    /// T16: its caller stopped it alone.
    pub(crate) fn end_alone(&mut self) {
        self.take_turn();
        self.next_exit = NextExit::Alone;
    }

    /// A stop of this container alone was the beginning of a stop of the pod: its end is not final yet (R2).
    pub(crate) fn revoke_lone_stop(&mut self) {
        if self.is_alone() {
            self.next_exit = if self.is_signalled() { NextExit::Revoked } else { self.before_its_turn() };
        }
    }

    /// The next exit is the last one.
    pub(crate) fn end_for_good(&mut self) {
        self.next_exit = NextExit::Final;
    }

    /// podshim ends it in order to restart it (U4, I7), or to hold it (V4).
    pub(crate) fn end_for_restart(&mut self) {
        self.next_exit = NextExit::Restart;
    }

    /// podshim kills what it could not start.
    pub(crate) fn kill_unstarted(&mut self) {
        self.killed = true;
        if self.next_exit == NextExit::Unasked {
            self.next_exit = NextExit::NotStarted;
        }
    }

    /// K11: a caller's SIGKILL is obeyed at once.
    pub(crate) fn kill_unordered(&mut self) {
        self.unordered = true;
    }

    /// K11: a caller's SIGKILL for it has become a part of the stop of the pod.
    pub(crate) fn kill_in_stop(&mut self) {
        self.killed_in_stop = true;
    }

    /// K11: whether only the stop of the pod ends it for its caller's SIGKILL.
    pub(crate) fn is_killed_in_stop(&self) -> bool {
        self.killed_in_stop
    }

    /// A caller whose Start was not answered kills it.
    pub(crate) fn undo(&mut self) {
        self.undone = true;
    }

    /// SIGKILL is sent.
    pub(crate) fn kill(&mut self) {
        self.killed = true;
    }

    /// Makes SIGKILL due at that time, or earlier if it was due earlier.
    pub(crate) fn kill_by(&mut self, at: PodTime) {
        self.kill_at = Some(self.kill_at.map_or(at, |due| due.min(at)));
    }

    /// T7: a caller's SIGKILL that came too early comes at that time.
    pub(crate) fn put_off_kill(&mut self, at: PodTime) {
        self.put_off = true;
        self.kill_by(at);
    }

    /// T17: its caller has begun to count; from now on only `at` counts, if podshim kills it at all.
    pub(crate) fn count_with_caller(&mut self, at: Option<PodTime>) {
        if self.kill_at.is_some() && !self.put_off {
            self.kill_at = at;
        }
    }

    /// It has ended: no SIGKILL is due.
    pub(crate) fn finish(&mut self) {
        self.kill_at = None;
    }

    /// A new process has had no signal yet. What callers asked for is still to be done (T3).
    pub(crate) fn new_incarnation(&mut self) {
        self.signalled_at = None;
        self.kill_at = None;
        self.killed = false;
        self.put_off = false;
        self.part_is_over = false;
        self.was_to_restart = false;
        self.forget_restart();
    }

    fn forget_restart(&mut self) {
        if self.next_exit.is_restart() || self.next_exit == NextExit::NotStarted {
            self.next_exit = NextExit::Unasked;
        }
    }
}

impl NextExit {
    /// Whether no caller has asked for it, nor podshim to restart the container.
    pub(crate) fn is_unasked(self) -> bool {
        matches!(self, Self::Unasked | Self::NotStarted)
    }

    /// Whether podshim ended it in order to start it again.
    pub(crate) fn is_restart(self) -> bool {
        matches!(self, Self::Restart | Self::Revoked | Self::TakenBack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// K15: the first stop signal counts, also while it waits for hooks.
    #[test]
    fn k15_the_first_signal_counts() {
        let mut ending = Ending::default();
        ending.hold_signal(Signal::TERM, Reach::Process);
        ending.wait_for_hooks(None);
        assert_eq!(ending.deliver(None, PodTime::ZERO), Some((Signal::TERM, Reach::Process)));
        assert!(ending.is_final() && ending.is_signalled() && ending.held_signal().is_none());
    }

    /// U4: what podshim ended in order to restart it goes on with the next process; a final end does not.
    #[test]
    fn u4_a_new_process_has_had_no_signal() {
        let mut ending = Ending::default();
        ending.end_for_restart();
        ending.deliver(None, PodTime::ZERO);
        assert_eq!(ending.next_exit(), NextExit::Restart);
        ending.new_incarnation();
        assert_eq!((ending.next_exit(), ending.is_signalled()), (NextExit::Unasked, false));
        ending.end_for_good();
        ending.new_incarnation();
        assert!(ending.is_final());
    }

    /// T7, T8: SIGKILL is due at the earliest of all times, until the caller counts (T17).
    #[test]
    fn t7_sigkill_is_due_at_the_earliest_time() {
        let at = |seconds| PodTime::after_epoch(std::time::Duration::from_secs(seconds));
        let mut ending = Ending::default();
        ending.count_with_caller(Some(at(9)));
        assert_eq!(ending.kill_at(), None);
        ending.kill_by(at(3));
        ending.kill_by(at(5));
        assert_eq!(ending.kill_at(), Some(at(3)));
        ending.count_with_caller(Some(at(9)));
        assert_eq!(ending.kill_at(), Some(at(9)));
    }

    /// T3: a turn that passes before the signal was sent leaves the end to the next one.
    #[test]
    fn t3_a_turn_that_has_passed_decides_nothing() {
        let mut ending = Ending::default();
        ending.hold_signal(Signal::TERM, Reach::Process);
        ending.wait_for_hooks(None);
        ending.wait_for_next_turn();
        assert_eq!((ending.next_exit(), ending.is_signalled()), (NextExit::Unasked, false));
        assert_eq!(ending.held_signal(), Some((Signal::TERM, Reach::Process)));
    }

    /// What has ended needs the clock no more.
    #[test]
    fn no_sigkill_is_due_after_the_end() {
        let mut ending = Ending::default();
        ending.kill_by(PodTime::ZERO);
        ending.finish();
        assert_eq!(ending.kill_at(), None);
    }
}
