//! What is known of containers and members from events and actions alone.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_lifecycle::{
    Caller, ContainerSpec, ExecId, Exit, Hook, KubeletHook, KubeletType, PodTime, StartBarrier, TaskKind,
};
use pod_spec::{Role, Signal};

use super::stop::{Asked, End};

/// One container as seen from outside.
#[derive(Clone, Debug)]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) kind: TaskKind,
    pub(super) caller: Caller,
    pub(super) kubelet_grace: Option<Duration>,
    /// The values of its spec and of its process.
    pub(super) own_oom_score: Option<i32>,
    pub(super) oom_score: Option<i32>,
    /// `None` = passthrough or sandbox.
    pub(super) role: Option<Role>,
    pub(super) process: Process,
    pub(super) incarnation: u32,
    /// Restarts of its program since a good run, or since it was created (R4).
    pub(super) restarts: u32,
    pub(super) last_exit: Option<Exit>,
    pub(super) exited_in_program: bool,
    /// The runtime has not answered Start yet.
    pub(super) is_starting: bool,
    /// The runtime has answered Start.
    pub(super) begun: bool,
    /// When it did.
    pub(super) begun_at: PodTime,
    /// Its create has ended.
    pub(super) is_created: bool,
    /// Its program has been started, or its start is under way.
    pub(super) has_run: bool,
    /// Its program ran once (T4).
    pub(super) ran: bool,
    /// What should have become its program was sent SIGKILL or a stop signal.
    pub(super) is_dying: bool,
    /// In which event that happened.
    pub(super) dying_in: u64,
    /// T8, T17: the time that it has from its signal on.
    pub(super) own_time: Duration,
    /// T17: the time that it has from its turn on, if that came while its hook ran.
    pub(super) turn_time: Option<Duration>,
    /// K11: a SIGKILL of its caller that no stop announced, which is obeyed.
    pub(super) is_obeyed: bool,
    /// Its program has exited, and what that means has not been judged.
    pub(super) has_just_ended: bool,
    /// U6: since when its hold counts.
    pub(super) held_since: PodTime,
    /// I7: it was ended in order to restart it with its group.
    pub(super) for_restart: bool,
    /// I7: it was being started when another of its group failed.
    pub(super) ends_for_group: bool,
    /// T1: nothing needed it when it got its stop signal.
    pub(super) had_turn: bool,
    /// T19: its part of a stop's time was over while it was being started.
    pub(super) has_last_signal: bool,
    /// When its process got its stop signal.
    pub(super) signalled_at: Option<PodTime>,
    /// J9: podshim had a reason to end it before its program ran.
    pub(super) never_starts: bool,
    /// V4, V5: how its migrate hook has ended.
    pub(super) migrated: Option<bool>,
    /// TaskStart was published.
    pub(super) started: bool,
    pub(super) view_pid: u32,
    /// The published exit.
    pub(super) shown: Option<Exit>,
    /// Stop signals that this incarnation got.
    pub(super) stop_signals: u32,
    pub(super) killed: bool,
    /// A caller has asked for its end, in this round or before.
    pub(super) asked_ever: bool,
    /// When it first did.
    pub(super) asked_at: Option<PodTime>,
    /// A caller's SIGKILL was accepted.
    pub(super) caller_killed: bool,
    /// A stop signal that was accepted and not delivered yet.
    pub(super) held: Option<Signal>,
    /// Whether its kubelet runs a preStop hook, if a kubelet created it (T16).
    pub(super) kubelet: Option<KubeletHook>,
    pub(super) kubelet_type: Option<KubeletType>,
    /// Whether something above the CRI orders its start (S13).
    pub(super) is_ordered_above: bool,
    /// Its gate's probe failed too often (U4).
    pub(super) gate_failed: bool,
    /// V4, V5, T12: its end in a switch had begun when the pod's stop was taken back, and goes on.
    pub(super) is_replaced: bool,
    /// The end of this incarnation had begun when it exited, or has: a hook of its stop ran in it, or it got a stop signal (I4).
    pub(super) interrupted: bool,
    /// podshim ended this incarnation in a stop that was over before it had ended: it was no stop of the pod (T12).
    pub(super) taken_back: bool,
    /// The hook that runs.
    pub(super) hook: Option<Hook>,
    /// T11: it was created in the stop under way.
    pub(super) is_latecomer: bool,
    /// T10: its start was given up, so that what it exits with is no code of a program that ran.
    pub(super) is_given_up: bool,
    /// T8: when the first hook of this process's end began.
    pub(super) ends_since: Option<PodTime>,
    /// The hooks that have run, each once (H1, H2).
    pub(super) hooks_run: Vec<Hook>,
    pub(super) execs: BTreeMap<ExecId, Exec>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Exec {
    pub(super) started: bool,
    pub(super) exited: Option<Exit>,
}

/// The container's init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    None,
    RuntimeInit { pid: u32 },
    Program { pid: u32 },
}

impl Container {
    pub(super) fn new(spec: &ContainerSpec, role: Option<Role>) -> Self {
        Self {
            name: spec.name.clone(),
            kind: spec.kind,
            caller: spec.caller,
            is_ordered_above: spec.start_barrier == StartBarrier::Open
                || spec.kubelet_type == Some(KubeletType::Init),
            kubelet_grace: spec.kubelet_grace,
            own_oom_score: spec.oom_score_adj,
            oom_score: None,
            role,
            process: Process::None,
            incarnation: 0,
            restarts: 0,
            last_exit: None,
            exited_in_program: false,
            is_starting: false,
            begun: false,
            begun_at: PodTime::ZERO,
            is_created: false,
            has_run: false,
            ran: false,
            is_dying: false,
            dying_in: 0,
            own_time: Duration::ZERO,
            turn_time: None,
            is_obeyed: false,
            has_just_ended: false,
            held_since: PodTime::ZERO,
            for_restart: false,
            ends_for_group: false,
            had_turn: false,
            has_last_signal: false,
            signalled_at: None,
            never_starts: false,
            migrated: None,
            started: false,
            view_pid: 0,
            shown: None,
            stop_signals: 0,
            killed: false,
            asked_ever: false,
            asked_at: None,
            caller_killed: false,
            held: None,
            kubelet: spec.kubelet,
            kubelet_type: spec.kubelet_type,
            gate_failed: false,
            is_replaced: false,
            interrupted: false,
            taken_back: false,
            hook: None,
            is_latecomer: false,
            is_given_up: false,
            ends_since: None,
            hooks_run: Vec::new(),
            execs: BTreeMap::new(),
        }
    }

    pub(super) fn new_incarnation(&mut self, pid: u32) {
        self.process = Process::RuntimeInit { pid };
        self.is_created = true;
        self.is_dying = false;
        self.incarnation += 1;
        self.oom_score = self.own_oom_score;
        self.begun = false;
        self.stop_signals = 0;
        (self.for_restart, self.ends_for_group, self.had_turn) = (false, false, false);
        self.has_last_signal = false;
        self.signalled_at = None;
        self.ends_since = None;
        self.turn_time = None;
        self.is_given_up = false;
        self.migrated = None;
        self.killed = false;
        (self.gate_failed, self.is_replaced) = (false, false);
        self.interrupted = false;
        self.taken_back = false;
        self.last_exit = None;
        self.exited_in_program = false;
        self.hooks_run.retain(|hook| *hook == Hook::OnTerminate);
    }

    /// The runtime has answered Start.
    pub(super) fn begins(&mut self, now: PodTime) {
        (self.is_starting, self.begun, self.ran, self.begun_at) = (false, true, true, now);
    }

    /// Whether its caller has started it and its program does not run, nor is to end before it does.
    pub(super) fn is_held(&self) -> bool {
        let waits = matches!(self.process, Process::RuntimeInit { .. });
        self.started && self.shown.is_none() && waits && !self.is_dying
    }

    /// Whether its program runs, and nothing has been done to end it.
    pub(super) fn is_untouched(&self) -> bool {
        self.runs_program() && self.begun && self.stop_signals == 0 && !self.killed && self.hook.is_none()
    }

    /// J10: whether its program has ended, and its next process exists and has not become the program.
    pub(super) fn was_to_run_again(&self) -> bool {
        self.ran && !self.begun && !self.is_starting
    }

    /// Whether a kubelet made it as a native sidecar.
    pub(super) fn is_native(&self) -> bool {
        self.role == Some(Role::Sidecar) && self.kubelet_type == Some(KubeletType::Init)
    }

    /// Whether its process is gone, and something of it is left that its exit waits for.
    pub(super) fn is_draining(&self) -> bool {
        self.process == Process::None && self.last_exit.is_some() && {
            let execs = self.execs.values().any(|exec| exec.started && exec.exited.is_none());
            execs || self.hook.is_some()
        }
    }

    /// Whether podshim ends its program in order to start it again (U4, I7, T12).
    pub(super) fn comes_back(&self) -> bool {
        self.gate_failed || self.for_restart || self.taken_back
    }

    /// I7: whether podshim's SIGKILL, and not its program, was the end of what it restarts with its group.
    pub(super) fn was_killed_for_restart(&self) -> bool {
        self.for_restart && self.killed && self.last_exit.is_some_and(|exit| exit.code == 137)
    }

    /// Whether its program was sent a signal that ends it, and not in order to restart it (U4).
    pub(super) fn is_ended_for_good(&self) -> bool {
        self.caller_killed || (!self.comes_back() && (self.stop_signals > 0 || self.killed))
    }

    /// I4: what a code means; an interrupted init has not done its work.
    pub(super) fn counted(&self, code: u32) -> u32 {
        if self.role == Some(Role::Init) && self.interrupted && code == 0 { 143 } else { code }
    }

    pub(super) fn pid(&self) -> Option<u32> {
        match self.process {
            Process::None => None,
            Process::RuntimeInit { pid } | Process::Program { pid } => Some(pid),
        }
    }

    pub(super) fn runs_program(&self) -> bool {
        matches!(self.process, Process::Program { .. })
    }

    pub(super) fn start_failed(&mut self) {
        self.is_starting = false;
        if let Process::Program { pid } = self.process {
            self.process = Process::RuntimeInit { pid };
        }
        // U1: a runtime's init never exits with 0, so what did is the program, also where its start is reported as failed.
        let ran = self.exited_in_program && self.last_exit.is_some_and(|exit| exit.code == 0);
        self.exited_in_program = ran;
        self.begun |= ran;
    }

    /// K7: whether a signal stops the container, whose program ran or did not.
    pub(super) fn means_stop(&self, signal: Signal, named: Option<Signal>, ran: bool) -> bool {
        match signal {
            Signal::KILL => true,
            signal if named == Some(signal) => true,
            // A program that is being started does not run yet.
            Signal::HUP => self.caller == Caller::Cri && (!ran || named.is_none()),
            _ if self.caller == Caller::Cri => true,
            other => {
                [Signal::TERM, Signal::INT, Signal::QUIT, Signal::PWR, Signal::RTMIN_PLUS_3].contains(&other)
            }
        }
    }
}

/// One member across all its containers.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberPicture {
    /// Its program was allowed to start in this round (S6).
    pub(super) released: bool,
    /// Its program has been exec'd in this round (U1).
    pub(super) executed: bool,
    /// The same, where podshim may not know, and whether that has opened its gate (U1, H8).
    pub(super) maybe_executed: bool,
    pub(super) maybe_open: bool,
    /// Its gate has been open in this round (U3).
    pub(super) open: bool,
    /// Its gate has been open in this sandbox (I8).
    pub(super) was_open: bool,
    /// How its newest container ended.
    pub(super) end: Option<End>,
    /// Its newest container ended in a stop of the pod, and no caller had asked for that.
    pub(super) ended_with_pod: bool,
    /// That a caller asked for its end (T12).
    pub(super) asked: Option<Asked>,
    /// I8: the pod has gone on without it in this round; its gate stays open.
    pub(super) is_given_up: bool,
    /// T16: that stop was one of this container alone.
    pub(super) is_alone: bool,
    /// What its newest container is to its kubelet.
    pub(super) kubelet_type: Option<KubeletType>,
    /// I8: its kubelet knew one of its containers as a native sidecar.
    pub(super) was_native: bool,
    pub(super) is_main: bool,
    /// T18: it was a completed init that its caller saw running when it asked for its end.
    pub(super) saw_running: bool,
    /// T18: something that comes after it was created before it had completed, so its caller does not wait for its exit.
    pub(super) is_followed: bool,
    /// An init has completed (I4).
    pub(super) completed: bool,
    pub(super) successes: u32,
    pub(super) failures: u32,
}

impl MemberPicture {
    pub(super) fn of(role: Role) -> Self {
        Self { is_main: role == Role::Main, ..Self::default() }
    }

    pub(super) fn check_succeeded(&mut self) {
        (self.successes, self.failures) = (self.successes + 1, 0);
    }

    pub(super) fn check_failed(&mut self) {
        (self.successes, self.failures) = (0, self.failures + 1);
    }

    pub(super) fn counted_from_zero(&mut self) {
        (self.successes, self.failures) = (0, 0);
    }

    /// It may be asked from the start, or go on being asked: its gate may be open from here on.
    pub(super) fn may_count_from_zero(&mut self) {
        if self.successes + self.failures > 0 && !self.open {
            (self.maybe_executed, self.maybe_open) = (true, true);
            self.counted_from_zero();
        }
    }

    /// Its gate lets other containers start.
    pub(super) fn opens(&mut self) {
        self.open = true;
        self.was_open = true;
    }

    /// T14: a new round for a member that lives: its program goes on, and so what it has waited for.
    pub(super) fn lives_on(&mut self) {
        // What is not ready is probed from the start.
        self.executed &= self.open;
        self.released = true;
    }

    /// T14: a new round for a member that has ended.
    pub(super) fn waits_again(&mut self) {
        (self.released, self.executed, self.open) = (false, false, false);
        (self.maybe_executed, self.maybe_open) = (false, false);
    }
}
