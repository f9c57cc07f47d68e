//! The signal table: what Kill(container, signal) means (K-rules).
//!
//! Owns the decision between delivering, holding and ending. `shutdown` decides when a held signal's turn comes. Each
//! branch answers the request at once: a caller's grace period runs from the answer (CONTRACT §3).

use std::time::Duration;

use pod_spec::{Role, Signal};

use crate::action::{Action, Operation, Reach, Refusal, Reply};
use crate::container::{Container, Freezer, FreezerChange, Intent, Parked, Part, Phase, Program, Was};
use crate::event::{Caller, ContainerId, Exit, RequestId, Target};
use crate::evidence::Ask;
use crate::exec::ExecPhase;
use crate::history::SignalCause;
use crate::pod::Pod;
use crate::restart::code_of_signal;
use crate::sandbox::SandboxEnd;
use crate::shutdown::{FLOOR, StopCause};

/// K9, K10: the time a sidecar gets between its stop signal and a caller's SIGKILL. crictl gives up 2 s after its kill
/// (F5).
const KILL_AFTER_TERM: Duration = Duration::from_millis(1500);

/// Whether HUP is a reload where the plan does not name it as the stop signal (K6). A shim does not see an image's
/// STOPSIGNAL: under CRI that may be HUP, unless the plan names another signal. And a program that never ran reloads
/// nothing.
fn is_reload(container: &Container, named: Option<Signal>) -> bool {
    container.spec.caller != Caller::Cri || (named.is_some() && container.program == Program::HasRun)
}

/// What a signal means for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Stop,
    Kill,
    /// Any signal that the program just gets: reload, window size, user signals.
    Other,
}

impl Pod {
    /// K1: execs get every signal at once.
    pub(crate) fn kill_exec(&mut self, request: RequestId, target: Target, signal: Signal) {
        let Some(id) = target.exec.clone() else { return };
        let Some(exec) = self.exec_mut(&target.container, &id) else {
            return self.reply_exec_not_found(request, &target.container, &id);
        };
        match exec.phase {
            ExecPhase::Running => {
                let (reach, cause) = (Reach::Process, SignalCause::Caller);
                self.act(Action::Signal { target, signal, reach, cause });
                self.reply(request, Ok(Reply::Ok));
            }
            ExecPhase::Added | ExecPhase::Failed | ExecPhase::Starting { .. } => {
                self.reply(request, Err(Refusal::precondition(format!("{target} is not started"))));
            }
            ExecPhase::Stopped { .. } | ExecPhase::Removing { .. } => self.reply_finished(request, &target),
        }
    }

    pub(crate) fn kill(&mut self, request: RequestId, id: ContainerId, signal: Signal, reach: Reach) {
        let Some(container) = self.containers.get(&id) else {
            return self.reply_not_found(request, &id);
        };
        match container.phase {
            Phase::Creating { .. } => {
                let text = format!("cannot signal container {id}: it is being created");
                return self.reply(request, Err(Refusal::precondition(text)));
            }
            // S1, as with `runc kill --all`: no process is left to signal.
            Phase::Stopped { .. } | Phase::Removing { .. }
                if reach == Reach::All && container.part == Part::Passthrough =>
            {
                return self.reply(request, Ok(Reply::Ok));
            }
            Phase::Prepared | Phase::Restoring { .. } => {
                let text = format!("cannot signal container {id}: it is not restored yet");
                return self.reply(request, Err(Refusal::precondition(text)));
            }
            // CONTRACT §9: on NotFound containerd's WithProcessKill takes the answer from Wait.
            Phase::Stopped { .. } | Phase::Removing { .. } => {
                return self.reply_finished(request, &Target::init(id));
            }
            // A container that is restarted or recreated (R1, R7) is still there for its caller.
            Phase::Draining { exit, was, .. }
                if was != Was::Held
                    && !(container.is_alive() && self.restarts_after(container, exit.code)) =>
            {
                return self.reply_finished(request, &Target::init(id));
            }
            _ => {}
        }
        let meaning = self.meaning(container, signal);
        let result = match (container.part, meaning) {
            (Part::Sandbox, Meaning::Stop | Meaning::Kill) if self.sandbox_is_signalled() => {
                self.signal_sandbox(&id, signal, reach, SignalCause::Caller);
                Ok(Reply::Ok)
            }
            (Part::Sandbox, Meaning::Stop | Meaning::Kill) if self.plan.is_some() => {
                self.begin_stop(StopCause::Sandbox(SandboxEnd::Killed(signal)));
                Ok(Reply::Ok)
            }
            // K17 holds for every frozen container.
            (Part::Sandbox | Part::Passthrough, Meaning::Kill) => {
                self.kill_now(&id, reach, SignalCause::Caller);
                Ok(Reply::Ok)
            }
            (Part::Sandbox | Part::Passthrough, _) => {
                self.signal_init(&id, signal, reach, SignalCause::Caller);
                Ok(Reply::Ok)
            }
            (Part::Member(_), meaning) => self.kill_member(&id, signal, reach, meaning),
        };
        self.reply(request, result);
    }

    /// K7: whether a signal is a stop signal.
    fn meaning(&self, container: &Container, signal: Signal) -> Meaning {
        let named = container.member().and_then(|index| self.members[index].member.stop_signal);
        match signal {
            Signal::KILL => Meaning::Kill,
            signal if named == Some(signal) => Meaning::Stop,
            Signal::HUP if is_reload(container, named) => Meaning::Other,
            // Under CRI every other signal is the image's STOPSIGNAL.
            _ if container.spec.caller == Caller::Cri => Meaning::Stop,
            Signal::TERM | Signal::INT | Signal::QUIT | Signal::PWR | Signal::RTMIN_PLUS_3 => Meaning::Stop,
            _ => Meaning::Other,
        }
    }

    fn kill_member(
        &mut self,
        id: &ContainerId,
        signal: Signal,
        reach: Reach,
        meaning: Meaning,
    ) -> Result<Reply, Refusal> {
        let stop_was_asked = self.stop_was_asked();
        let ask = match meaning {
            Meaning::Kill => Ask::Kill,
            Meaning::Stop => Ask::Signal,
            Meaning::Other => return self.pass_on(id, signal, reach),
        };
        let fresh_until = self.now + self.lone_stop_window();
        let Some(container) = self.containers.get(id) else { return Ok(Reply::Ok) };
        // A caller whose Start was not answered kills the container: containerd does, when its own caller is gone.
        let undone = ask == Ask::Kill
            && match &container.phase {
                Phase::Created => true,
                Phase::Starting { announce, .. } => !announce.is_empty(),
                _ => false,
            };
        let between_runs = matches!(container.phase, Phase::BackingOff { .. } | Phase::Recreating { .. });
        // A caller kills a container that could not be started in order to delete it: that is no stop.
        if let (Some(index), None, false) = (container.member(), container.start_error, undone) {
            let was_asked = self.members[index].asked.is_some();
            self.members[index].ask(ask, fresh_until);
            if !was_asked && ask == Ask::Signal {
                self.take_over_grace(id, index);
            }
        }
        // R2, R5: after an earlier stop this one may show that the caller stops the pod.
        if between_runs {
            self.detect_callers_stop();
        }
        let stopping = self.stop.is_some();
        let Some(container) = self.containers.get_mut(id) else { return Ok(Reply::Ok) };
        let code = code_of_signal(signal.number());
        let never_ran = container.program == Program::NeverRan;
        match &mut container.phase {
            // K4.
            Phase::Hidden { exit } | Phase::Spent { exit } => {
                let exit = *exit;
                self.finish(id, exit);
            }
            // Trap 21: a created container must die, else its sandbox cannot end.
            Phase::Created => {
                container.stop.intent = Intent::End;
                let (target, cause) = (Target::init(id.clone()), SignalCause::Caller);
                self.act(Action::Signal { target, signal, reach, cause });
            }
            // K3.
            Phase::Held(_) if never_ran => self.end_without_running(id, code, None),
            Phase::BackingOff { last, .. } if never_ran => {
                let at = last.at;
                self.finish(id, Exit { code, at });
            }
            Phase::Recreating { last, .. } if never_ran => {
                last.code = code;
                container.stop.intent = Intent::End;
            }
            Phase::Draining { was: was @ Was::Held, .. } if never_ran => *was = Was::Ending { code },
            Phase::Ending { .. } => container.stop.intent = Intent::End,
            // T16: no process runs, so the sidecar has ended at once.
            Phase::BackingOff { last, .. } if meaning == Meaning::Stop && !stopping => {
                let last = *last;
                self.finish(id, last);
            }
            Phase::Recreating { .. } if meaning == Meaning::Stop && !stopping => {
                container.stop.intent = Intent::End;
            }
            _ => match (self.role_of(id), meaning) {
                (_, Meaning::Kill) if !undone && self.orders_kill() => {}
                (Some(Role::Sidecar), Meaning::Kill) if self.stop.is_none() && !stop_was_asked => {
                    self.obey(id)
                }
                (Some(Role::Sidecar), Meaning::Kill) => self.hurry(id),
                (Some(Role::Sidecar), _) => self.hold_signal(id, signal, reach),
                (_, Meaning::Kill) => self.kill_now(id, reach, SignalCause::Caller),
                _ => {
                    self.stop_after_hooks(id, Some((signal, reach)), None);
                    // I7: the caller's stop overrides a retry of the group.
                    self.make_final(id);
                }
            },
        }
        Ok(Reply::Ok)
    }

    /// T17: if the pod's stop has already signalled a sidecar, its caller counts its time from the caller's own stop
    /// signal on.
    fn take_over_grace(&mut self, id: &ContainerId, index: usize) {
        let by_caller = self.stop.as_ref().is_some_and(|stop| !stop.is_ours());
        if !by_caller || self.members[index].member.grace.is_some() {
            return;
        }
        let kill_at = self.grace_without_caller(id).map(|grace| self.now + grace);
        if let Some(container) =
            self.containers.get_mut(id).filter(|container| container.stop.kill_at.is_some())
        {
            container.stop.kill_at = kill_at;
        }
    }

    /// The container's next exit is its last.
    fn make_final(&mut self, id: &ContainerId) {
        if let Some(container) = self.containers.get_mut(id) {
            container.stop.intent = Intent::End;
        }
    }

    /// K6, and K5 for signals that are no stop signals.
    fn pass_on(&mut self, id: &ContainerId, signal: Signal, reach: Reach) -> Result<Reply, Refusal> {
        let Some(container) = self.containers.get(id) else { return Ok(Reply::Ok) };
        let refusal = match container.phase {
            Phase::Created | Phase::Starting { .. } | Phase::Running { .. } => {
                self.signal_init(id, signal, reach, SignalCause::Caller);
                return Ok(Reply::Ok);
            }
            // K3: SIGHUP would kill the runtime's init.
            Phase::Held(_) => "held",
            Phase::Hidden { .. } | Phase::Spent { .. } => "completed",
            Phase::Ending { .. } => "being stopped",
            _ => "restarting",
        };
        Err(Refusal::precondition(format!(
            "cannot send signal {} to container {id}: it is {refusal}",
            signal.number()
        )))
    }

    /// K11, `zero-grace=obey`: the container is final, and its code is shown as it is.
    fn obey(&mut self, id: &ContainerId) {
        if let Some(container) = self.containers.get_mut(id) {
            container.stop.obeyed = true;
        }
        self.kill_now(id, Reach::All, SignalCause::Caller);
    }

    /// K9, K10, T7: sends the stop signal at once if it is still due, and SIGKILL 1.5 s after it.
    fn hurry(&mut self, id: &ContainerId) {
        let now = self.now;
        let Some(container) = self.containers.get(id) else { return };
        // Again, in case a thaw has failed (K17).
        if container.stop.killed {
            return self.kill_now(id, Reach::All, SignalCause::Caller);
        }
        if container.stop.term_at.is_none() {
            self.deliver_stop(id, None);
        }
        let Some(container) = self.containers.get_mut(id) else { return };
        container.stop.intent = Intent::End;
        let term_at = container.stop.term_at.unwrap_or(now);
        container.stop.kill_by(term_at + KILL_AFTER_TERM);
        self.changed();
    }

    /// Delivers a stop signal: the given one, the held one, or the container's own. The container's next exit is final,
    /// unless podshim ends it in order to restart it.
    pub(crate) fn deliver_stop(&mut self, id: &ContainerId, given: Option<(Signal, Reach)>) {
        let now = self.now;
        let Some(container) = self.containers.get(id) else { return };
        let cause = self.cause_of_stop(container, given);
        let Some(container) = self.containers.get_mut(id) else { return };
        let waited = container.hooks.stop_waiting();
        let member = container.member().map(|index| &self.members[index].member);
        let own = member.and_then(|member| member.stop_signal).unwrap_or(Signal::TERM);
        let (signal, reach) = given.or(container.stop.held_signal.take()).unwrap_or((own, Reach::Process));
        container.stop.term_at.get_or_insert(now);
        // H8: a gate that fails from now on is no reason to restart it.
        container.probe = None;
        if container.stop.intent == Intent::Live {
            container.stop.intent = Intent::End;
        }
        // T8: inside the budget, never beyond it. It began with the hooks, which leave at least the floor of it (F9).
        let grace = waited.map_or(member.and_then(|member| member.grace), |waited| waited.grace);
        if let Some(grace) = grace {
            let begun = waited.map_or(now, |waited| waited.since);
            container.stop.kill_by((begun + grace).max(now + grace.min(FLOOR)));
        }
        if container.has_process() {
            self.signal_init(id, signal, reach, cause);
        }
        self.changed();
    }

    /// Sends a signal that is meant for the program, so not before the program runs. A caller whose Start was answered
    /// by a hold cannot know that the start is only now under way.
    pub(crate) fn signal_init(&mut self, id: &ContainerId, signal: Signal, reach: Reach, cause: SignalCause) {
        if let Some(Container { phase: Phase::Starting { signals, .. }, .. }) = self.containers.get_mut(id)
            && signal != Signal::KILL
        {
            signals.push((signal, reach, cause));
            return self.changed();
        }
        self.act(Action::Signal { target: Target::init(id.clone()), signal, reach, cause });
    }

    /// Sends the signals that `signal_init` kept back.
    pub(crate) fn send_parked(&mut self, id: &ContainerId, signals: Vec<Parked>) {
        for (signal, reach, cause) in signals {
            self.signal_init(id, signal, reach, cause);
        }
    }

    /// Sends SIGKILL, and thaws the container: a frozen one acts on it only then (K17).
    pub(crate) fn kill_now(&mut self, id: &ContainerId, reach: Reach, cause: SignalCause) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.stop.intent = Intent::End;
        container.stop.killed = true;
        container.hooks.stop_waiting();
        container.probe = None;
        let code = code_of_signal(Signal::KILL.number());
        match &mut container.phase {
            Phase::BackingOff { last, .. } => {
                let at = last.at;
                return self.finish(id, Exit { code, at });
            }
            Phase::Recreating { last, .. } => last.code = code,
            _ => {}
        }
        if container.has_process() {
            let target = Target::init(id.clone());
            self.act(Action::Signal { target, signal: Signal::KILL, reach, cause });
            self.thaw(id);
        }
        self.changed();
    }

    pub(crate) fn thaw(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        if container.freezer == Freezer::Paused {
            let op = self.run(id, Operation::Resume);
            if let Some(container) = self.containers.get_mut(id) {
                container.freezer = Freezer::Changing(op, None, FreezerChange::Resume);
            }
        }
    }

    /// K17 for a pause that was under way when the signal was sent.
    pub(crate) fn thaw_if_ending(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        if container.stop.killed || (container.stop.term_at.is_some() && self.budget_is_over()) {
            self.thaw(id);
        }
    }

    pub(crate) fn role_of(&self, id: &ContainerId) -> Option<Role> {
        self.containers.get(id).and_then(|container| self.role(container))
    }

    fn reply_finished(&mut self, request: RequestId, target: &Target) {
        self.reply(request, Err(Refusal::not_found(format!("{target}: process already finished"))));
    }
}
