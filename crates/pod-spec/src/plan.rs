//! The plan as a value: what the annotations of one pod say once they are parsed and valid.
//!
//! The parser guarantees: names are unique, there is a main, entries are in start order. Nothing here reads
//! annotations.

use std::net::IpAddr;
use std::time::Duration;

use log_pattern::Pattern;

use crate::code_set::CodeSet;
use crate::kubelets_own::KubeletsOwn;

/// The plan of one pod (S1 to S4, 11.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Planned containers in the order of the list. Members of one parallel group stand side by side and share an
    /// `entry`.
    pub members: Vec<Member>,
    /// What a container is that the list does not name (S8).
    pub others: Others,
    /// Which of the others `*=main` never makes mains of, as they are the kubelet's own (S8).
    pub kubelets_own: KubeletsOwn,
    /// What holds for the pod as a whole.
    pub settings: Settings,
}

/// What a plan says of its pod as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Who declares the plan.
    pub source: Source,
    /// The pod's restart policy; the CRI does not carry it (F7, J1).
    pub restart_policy: RestartPolicy,
    /// The pod's whole grace budget, enforced on every member when given (T5).
    pub grace: Option<Duration>,
    /// What is kept of the budget for the steps after the mains (T19); `None` = 2 s for each, at most a third of the budget.
    pub reserve: Option<Duration>,
    /// How long a container may be held before that is a failure (U6); `None` = for ever.
    pub gate_timeout: Option<Duration>,
    /// What a SIGKILL means without a stop before it (K11).
    pub zero_grace: ZeroGrace,
    /// Whether callers see masked exit codes of sidecars (J2, J4).
    pub exit_codes: ExitCodes,
    /// Whether sidecars are protected from the OOM killer as well as their mains are (N8).
    pub oom_score: OomScore,
    /// The node's values for what the pod does not set.
    pub defaults: Defaults,
}

/// One planned container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The container's name (`io.kubernetes.cri.container-name`).
    pub name: String,
    /// The short name used in `key.<alias>` (11.3), if the plan gives one.
    pub alias: Option<String>,
    /// What the container is to the pod.
    pub role: Role,
    /// Index of the plan's entry; members of `a+b=role` share it (I7). [`Plan::links`] says what it means for the
    /// order.
    pub entry: usize,
    /// What it starts after (`after.<c>`), instead of what stands before it in the list.
    pub after: Option<Vec<Dependency>>,
    /// Its partner in a standby pair `a|b=sidecar` (V1): an index into [`Plan::members`]. At first the first of the two
    /// is active.
    pub pair: Option<usize>,
    /// When it counts as ready. Inits, and mains that nothing waits for, have `Gate::Running`.
    pub gate: Gate,
    /// Who restarts it and when (`restart.<c>`); `None` = as its role and the pod's restart policy say (R1, I3, R7).
    pub restart: Option<Restart>,
    /// Which exit of it stops the whole pod, or restarts it (R9, R14).
    pub fatal: Option<Fatal>,
    /// The time from TERM to KILL for this container alone, inside the pod's budget (T8).
    pub grace: Option<Duration>,
    /// The signal that stops this container, in addition to the usual ones (K7).
    pub stop_signal: Option<Signal>,
    /// The command that runs in it when the stop of the pod begins (H1).
    pub on_terminate: Option<Vec<String>>,
    /// The command that runs in it just before its stop signal (H2). An init has none.
    pub pre_stop: Option<Vec<String>>,
    /// The command that runs in it before its partner is stopped (V4).
    pub migrate: Option<Vec<String>>,
}

/// What a container is to its pod (S1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Must exit with 0 before later entries start.
    Init,
    /// Must open its gate before later entries start, and lives until the mains are gone.
    Sidecar,
    /// The work itself: all mains start together after the whole list.
    Main,
}

/// One entry of `after.<c>` (11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The other container: an index into [`Plan::members`].
    pub member: usize,
    /// The condition on it.
    pub condition: Condition,
}

/// The condition on one container before another may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Condition {
    /// Its program has been exec'd (U1).
    Started,
    /// Its gate is open (U2); without a gate of its own the same as `Started`.
    Ready,
    /// It has exited with 0.
    Done,
}

/// `restart.<c>` (R4, R7, R13, R15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restart {
    /// After which exits podshim starts it again.
    pub mode: RestartMode,
    /// With [`RestartMode::OnFailure`]: after which exit codes (R13). Not all, and at least one.
    pub codes: CodeSet,
    /// How long it waits before each restart.
    pub backoff: Backoff,
    /// After this many restarts the next exit is shown, and the caller owns the restart; `None` = no limit.
    pub limit: Option<u32>,
}

impl Restart {
    /// After which exit codes podshim restarts the container, as long as `limit` lets it.
    pub fn codes(&self) -> CodeSet {
        match self.mode {
            RestartMode::Never | RestartMode::Visible => CodeSet::EMPTY,
            RestartMode::OnFailure => self.codes,
            RestartMode::Always => CodeSet::ALL,
        }
    }

    /// Whether no caller ever sees it exit with one of these codes.
    pub(crate) fn hides(&self, codes: CodeSet) -> bool {
        self.limit.is_none() && codes.without(self.codes()) == CodeSet::EMPTY
    }
}

/// What restarts a container, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartMode {
    /// Not podshim: every exit is shown, and the first failure of an init fails the pod (R15, I2).
    Never,
    /// podshim, after an exit other than 0, or after those that `codes` names (R13).
    OnFailure,
    /// podshim, after every exit.
    Always,
    /// The caller: every exit is shown.
    Visible,
}

/// The delays before restarts (R4): `first`, then `base` doubled each time up to `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Before the first restart.
    pub first: Duration,
    /// Before the second.
    pub base: Duration,
    /// The longest; not shorter than `base`.
    pub max: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { first: Duration::ZERO, base: Duration::from_secs(1), max: Duration::from_secs(60) }
    }
}

/// What holds for a pod that does not set it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// The budget of a stop that podshim starts itself, if the kubelet gives none either (T5).
    pub grace: Duration,
    /// The delays of restarts that no `restart.<c>` sets (R4).
    pub backoff: Backoff,
    /// How long a caller may take to recreate what it stopped alone, before that counts as ended for good (T15).
    pub replace_wait: Duration,
    /// How long podshim waits after a stop of one container for other stops, before it takes it for a stop of that
    /// container alone (T16).
    pub lone_stop_window: Duration,
    /// After this many restarts in place without a good run a sidecar's exit is shown (R12); `None` = never.
    pub visible_after: Option<u32>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            grace: Duration::from_secs(30),
            backoff: Backoff::default(),
            replace_wait: Duration::from_secs(300),
            lone_stop_window: Duration::from_secs(2),
            visible_after: Some(5),
        }
    }
}

/// `fatal.<c>` (R9, R14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// An exit other than 0 stops the pod.
    Failure,
    /// Any exit does.
    Exit,
    /// An exit other than 0 restarts the pod in place, `limit` times; the next one stops it.
    Restart {
        /// How often without a good run in between; at least once.
        limit: u32,
    },
}

impl Fatal {
    /// R14: how often an exit restarts the pod where the plan sets no limit.
    pub const RESTARTS: u32 = 5;
}

/// Whose words a plan is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// podshim's annotations.
    #[default]
    Annotations,
    /// OpenKruise's marks (S12), beside which something above the CRI may order the start (S13).
    Kruise,
}

/// What an unnamed container of a planned pod is (S8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// Never held, never refused, never counted.
    Passthrough,
    /// `*=main`: all others are mains, except those that are the kubelet's own.
    Mains,
}

/// The words of `pod.spec.restartPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Containers are always restarted; the pod never completes.
    #[default]
    Always,
    /// The pod is complete when every main has exited with 0.
    OnFailure,
    /// The pod is complete when every main has exited.
    Never,
}

/// `podshim.io/zero-grace` (K11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZeroGrace {
    /// Deliver the SIGKILL.
    #[default]
    Obey,
    /// Treat the first such SIGKILL as an ordered stop of the pod.
    Order,
}

/// `podshim.io/exit-codes` (J2, J4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExitCodes {
    /// Sidecars that end within a stop or at completion show 0.
    #[default]
    Masked,
    /// Every container shows its real exit code.
    Real,
}

/// `podshim.io/oom-score` (N8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OomScore {
    /// A sidecar's value is at most the lowest of the mains', as Kubernetes 1.33 and later have it for native sidecars.
    #[default]
    Protect,
    /// Every container keeps its own value.
    Own,
}

/// When a sidecar lets the next entry start (U1, U2, U11).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gate {
    /// The program has been exec'd (U1). The default.
    Running,
    /// At once (U11).
    Skip,
    /// After `timing.successes` successes of a probe in a row (U2).
    Probe {
        /// What to probe.
        action: GateAction,
        /// How often, and with which limits.
        timing: ProbeTiming,
    },
}

/// What a gate's probe checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GateAction {
    /// Run a command in the container, as its user; success is exit 0.
    Exec(Vec<String>),
    /// Connect to a port in the container's network namespace.
    Tcp {
        /// An address local to that namespace. Without one: its loopback addresses, then its others.
        host: Option<IpAddr>,
        /// Port, 1 to 65535.
        port: u16,
    },
    /// GET in the container's network namespace; success is a status from 200 to 399. podshim never follows a redirect:
    /// it is an answer.
    Http {
        /// An address local to that namespace. Without one: its loopback addresses, then its others.
        host: Option<IpAddr>,
        /// Port, 1 to 65535.
        port: u16,
        /// Begins with `/`; may have a query.
        path: String,
    },
    /// Ask the health service of gRPC (`grpc.health.v1`) in the container's network namespace; success is SERVING.
    Grpc {
        /// Port, 1 to 65535, at the namespace's loopback addresses, then its others.
        port: u16,
        /// What to ask about; empty for the server as a whole.
        service: String,
    },
    /// Look for a pattern in the lines that the container writes. podshim waits for it instead of probing.
    Log(Pattern),
    /// `READY=1` on the socket that NOTIFY_SOCKET names in the container, as systemd's services send it. podshim waits
    /// for it instead of probing.
    Notify,
    /// Look for an absolute path in the container's root, of whatever kind the file is.
    File(String),
}

impl GateAction {
    /// Whether the container itself reports when it is ready: then each period is one wait for that, `delay` makes the
    /// first wait longer, and there is no `timeout` and no `ok`.
    pub fn is_waited_for(&self) -> bool {
        matches!(self, Self::Log(_) | Self::Notify)
    }
}

/// How a gate's probe is repeated. Written after the action: `;delay=0s;period=1s;timeout=1s;fail=30;ok=1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeTiming {
    /// From the program's start to the first probe.
    pub delay: Duration,
    /// From one probe's start to the next one's; at least 100 ms.
    pub period: Duration,
    /// A probe that takes longer has failed.
    pub timeout: Duration,
    /// Failures in a row after which the sidecar is stopped and restarted (U4); at least 1.
    pub failures: u32,
    /// Successes in a row that open the gate; at least 1.
    pub successes: u32,
}

impl Default for ProbeTiming {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            period: Duration::from_secs(1),
            timeout: Duration::from_secs(1),
            failures: 30,
            successes: 1,
        }
    }
}

/// A signal number, 1 to 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(u8);

impl Signal {
    /// SIGHUP, which many programs take as "reload".
    pub const HUP: Self = Self(1);
    /// SIGINT.
    pub const INT: Self = Self(2);
    /// SIGQUIT.
    pub const QUIT: Self = Self(3);
    /// SIGKILL.
    pub const KILL: Self = Self(9);
    /// SIGTERM.
    pub const TERM: Self = Self(15);
    /// SIGSTOP, which no program can handle.
    pub const STOP: Self = Self(19);
    /// SIGPWR, LXC's and systemd-nspawn's way to ask an init to stop.
    pub const PWR: Self = Self(30);
    /// SIGRTMIN+3, systemd's own "halt" (RTMIN of glibc is 34).
    pub const RTMIN_PLUS_3: Self = Self(37);

    /// A signal from its number; `None` outside 1..=64.
    pub fn new(number: u32) -> Option<Self> {
        u8::try_from(number).ok().filter(|n| (1..=64).contains(n)).map(Self)
    }

    /// The number the kernel knows.
    pub fn number(self) -> u8 {
        self.0
    }
}

impl Member {
    /// A member of which only name, role and place are known.
    pub fn new(name: &str, role: Role, entry: usize) -> Self {
        Self {
            name: name.to_owned(),
            alias: None,
            role,
            entry,
            after: None,
            pair: None,
            gate: Gate::Running,
            restart: None,
            fatal: None,
            grace: None,
            stop_signal: None,
            on_terminate: None,
            pre_stop: None,
            migrate: None,
        }
    }

    /// R14: whether podshim restarts the whole pod after some exit of it.
    pub fn restarts_the_pod(&self) -> bool {
        matches!(self.fatal, Some(Fatal::Restart { .. }))
    }

    /// Whether it is the second of a standby pair: it is held at first, and the first one's keys give its order (V1).
    pub fn is_second_of_pair(&self, own: usize) -> bool {
        self.pair.is_some_and(|first| first < own)
    }
}

impl Plan {
    /// One of no member, of which nothing else is said.
    pub(crate) fn empty(others: Others) -> Self {
        let kubelets_own = KubeletsOwn::default();
        Self { members: Vec::new(), others, kubelets_own, settings: Settings::default() }
    }

    /// The member of that container name, with its index.
    pub fn member(&self, name: &str) -> Option<(usize, &Member)> {
        self.members.iter().enumerate().find(|(_, member)| member.name == name)
    }

    /// Whether a container of that name is a main only by `*=main` (S8).
    pub fn makes_main_of(&self, name: &str) -> bool {
        self.others == Others::Mains && self.member(name).is_none() && !self.kubelets_own.has(name)
    }
}
