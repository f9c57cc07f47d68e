//! What is known of containers and members from events and actions alone.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_lifecycle::{
    Caller, ContainerSpec, ExecId, Exit, Hook, KubeletHook, KubeletType, PodTime, StartBarrier, TaskKind,
};
use pod_spec::{Role, Signal};

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
    /// The runtime has answered Start.
    pub(super) begun: bool,
    /// When it did.
    pub(super) begun_at: PodTime,
    /// Its program ran once.
    pub(super) has_run: bool,
    /// TaskStart was published.
    pub(super) started: bool,
    pub(super) view_pid: u32,
    /// The published exit.
    pub(super) shown: Option<Exit>,
    /// Stop signals that this incarnation got.
    pub(super) stop_signals: u32,
    pub(super) killed: bool,
    /// A caller's SIGKILL was accepted.
    pub(super) caller_killed: bool,
    /// T10: an operation of podshim's own was given up.
    pub(super) is_abandoned: bool,
    /// A stop signal that was accepted and not delivered yet.
    pub(super) held: Option<Signal>,
    /// When it was accepted.
    pub(super) held_since: PodTime,
    /// Whether its kubelet runs a preStop hook, if a kubelet created it (T16).
    pub(super) kubelet: Option<KubeletHook>,
    /// Whether something above the CRI orders its start (S13).
    pub(super) is_ordered_above: bool,
    /// Its gate's probe failed too often (U4).
    pub(super) gate_failed: bool,
    /// The end of this incarnation had begun when it exited, or has: a hook of its stop ran in it, or it got a stop signal (I4).
    pub(super) interrupted: bool,
    /// podshim ended this incarnation in a stop that was over before it had ended: it was no stop of the pod (T12).
    pub(super) taken_back: bool,
    /// The hook that runs.
    pub(super) hook: Option<Hook>,
    /// When it began.
    pub(super) hook_since: PodTime,
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
            begun: false,
            begun_at: PodTime::ZERO,
            has_run: false,
            started: false,
            view_pid: 0,
            shown: None,
            stop_signals: 0,
            killed: false,
            caller_killed: false,
            is_abandoned: false,
            held: None,
            held_since: PodTime::ZERO,
            kubelet: spec.kubelet,
            gate_failed: false,
            interrupted: false,
            taken_back: false,
            hook: None,
            hook_since: PodTime::ZERO,
            hooks_run: Vec::new(),
            execs: BTreeMap::new(),
        }
    }

    pub(super) fn new_incarnation(&mut self, pid: u32) {
        self.process = Process::RuntimeInit { pid };
        self.incarnation += 1;
        self.oom_score = self.own_oom_score;
        self.begun = false;
        self.stop_signals = 0;
        self.killed = false;
        self.gate_failed = false;
        self.interrupted = false;
        self.taken_back = false;
        self.last_exit = None;
        self.exited_in_program = false;
        self.hooks_run.retain(|hook| *hook == Hook::OnTerminate);
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
        if let Process::Program { pid } = self.process {
            self.process = Process::RuntimeInit { pid };
        }
        self.exited_in_program = false;
    }

    /// K7: whether a signal stops the container.
    pub(super) fn means_stop(&self, signal: Signal, named: Option<Signal>) -> bool {
        match signal {
            Signal::KILL => true,
            signal if named == Some(signal) => true,
            Signal::HUP => self.caller == Caller::Cri && (!self.has_run || named.is_none()),
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
    /// Its gate has been open in this round (U3).
    pub(super) open: bool,
    /// Its gate has been open in this sandbox (I8).
    pub(super) was_open: bool,
    /// When its newest container ended.
    pub(super) ended_at: Option<PodTime>,
    /// Its newest container ended in a stop of the pod, and no caller had asked for that.
    pub(super) ended_with_pod: bool,
    /// When the exit 0 of a main's newest container begins to count (T15).
    pub(super) done_from: Option<PodTime>,
    /// An init has completed (I4).
    pub(super) completed: bool,
    pub(super) successes: u32,
    pub(super) failures: u32,
}

impl MemberPicture {
    pub(super) fn check_succeeded(&mut self) {
        (self.successes, self.failures) = (self.successes + 1, 0);
    }

    pub(super) fn check_failed(&mut self) {
        (self.successes, self.failures) = (0, self.failures + 1);
    }

    pub(super) fn counted_from_zero(&mut self) {
        (self.successes, self.failures) = (0, 0);
    }

    /// Its gate lets other containers start.
    pub(super) fn opens(&mut self) {
        self.open = true;
        self.was_open = true;
    }

    /// T14: a new round for a member that lives: its program goes on, and so what it has waited for.
    pub(super) fn lives_on(&mut self) {
        self.released = true;
    }

    /// T14: a new round for a member that has ended.
    pub(super) fn waits_again(&mut self) {
        (self.released, self.executed, self.open) = (false, false, false);
    }

    /// What a member has done in earlier rounds counts no more. A job's mains keep it (J11), but it opens no gate.
    pub(super) fn forget_done(&mut self) {
        self.done_from = None;
    }
}
