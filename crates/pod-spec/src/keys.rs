//! The annotations' keys (11.2, 11.3). Owns the words; `parse` owns what a key's value may be.

use std::fmt;

use crate::plan::{Condition, ExitCodes, Fatal, OomScore, RestartMode, RestartPolicy, Role, ZeroGrace};

/// The beginning of every annotation of podshim.
pub const PREFIX: &str = "podshim.io/";
/// The condition that podshim's agent writes for pods whose readinessGates name it (docs/agent.md): every main runs.
pub const STARTED_CONDITION: &str = "podshim.io/Started";
/// A key that needs no plan (N11).
pub(crate) const DRAIN_PRIORITY: &str = "drain-priority";
/// The other one: it is no part of a plan either (R14).
pub(crate) const RESTART_REQUEST: &str = "restart";

/// A key of the whole pod (11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PodKey {
    Plan,
    RestartPolicy,
    Grace,
    Reserve,
    GateTimeout,
    ZeroGrace,
    ExitCodes,
    OomScore,
    DrainPriority,
    RestartRequest,
}

/// The words of the pod's keys.
pub(crate) const POD_KEYS: [(&str, PodKey); 10] = [
    ("plan", PodKey::Plan),
    ("restart-policy", PodKey::RestartPolicy),
    ("grace", PodKey::Grace),
    ("reserve", PodKey::Reserve),
    ("gate-timeout", PodKey::GateTimeout),
    ("zero-grace", PodKey::ZeroGrace),
    ("exit-codes", PodKey::ExitCodes),
    ("oom-score", PodKey::OomScore),
    (DRAIN_PRIORITY, PodKey::DrainPriority),
    (RESTART_REQUEST, PodKey::RestartRequest),
];

/// A key of one container, written `key.<container>` (11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ContainerKey {
    Role,
    Ready,
    After,
    Restart,
    Grace,
    OnTerminate,
    PreStop,
    StopSignal,
    Fatal,
    Migrate,
}

/// The words of the containers' keys.
pub(crate) const CONTAINER_KEYS: [(&str, ContainerKey); 10] = [
    ("role", ContainerKey::Role),
    ("ready", ContainerKey::Ready),
    ("after", ContainerKey::After),
    ("restart", ContainerKey::Restart),
    ("grace", ContainerKey::Grace),
    ("on-terminate", ContainerKey::OnTerminate),
    ("pre-stop", ContainerKey::PreStop),
    ("stop-signal", ContainerKey::StopSignal),
    ("fatal", ContainerKey::Fatal),
    ("migrate", ContainerKey::Migrate),
];

/// What the words after `=` in a plan, and of `role.<c>`, say of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RoleWord {
    /// It is a member of the plan.
    Planned(Role),
    /// It is the kubelet's own (S8).
    KubeletsOwn,
}

/// The word for a container that is the kubelet's own (S8).
pub(crate) const KUBELETS_OWN: &str = "none";

/// These words.
pub(crate) const ROLE_WORDS: [(&str, RoleWord); 4] = [
    ("init", RoleWord::Planned(Role::Init)),
    ("sidecar", RoleWord::Planned(Role::Sidecar)),
    ("main", RoleWord::Planned(Role::Main)),
    (KUBELETS_OWN, RoleWord::KubeletsOwn),
];

impl fmt::Display for Role {
    /// The word of the plan.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word_of(&ROLE_WORDS, &RoleWord::Planned(*self)))
    }
}

/// The words of `restart-policy`, as in a pod's spec.
pub(crate) const RESTART_POLICIES: [(&str, RestartPolicy); 3] = [
    ("Always", RestartPolicy::Always),
    ("OnFailure", RestartPolicy::OnFailure),
    ("Never", RestartPolicy::Never),
];

/// The words of `zero-grace` (K11).
pub(crate) const ZERO_GRACES: [(&str, ZeroGrace); 2] =
    [("obey", ZeroGrace::Obey), ("order", ZeroGrace::Order)];

/// The words of `exit-codes` (J2, J4).
pub(crate) const EXIT_CODES: [(&str, ExitCodes); 2] =
    [("masked", ExitCodes::Masked), ("real", ExitCodes::Real)];

/// The words of a condition in `after.<c>`.
pub(crate) const CONDITIONS: [(&str, Condition); 3] =
    [("ready", Condition::Ready), ("done", Condition::Done), ("started", Condition::Started)];

/// The words of the mode in `restart.<c>`.
pub(crate) const RESTART_MODES: [(&str, RestartMode); 4] = [
    ("never", RestartMode::Never),
    ("on-failure", RestartMode::OnFailure),
    ("always", RestartMode::Always),
    ("visible", RestartMode::Visible),
];

/// The words of `fatal.<c>` (R9, R14).
pub(crate) const FATALS: [(&str, Fatal); 3] = [
    ("failure", Fatal::Failure),
    ("exit", Fatal::Exit),
    ("restart", Fatal::Restart { limit: Fatal::RESTARTS }),
];

/// The words of `oom-score` (N8).
pub(crate) const OOM_SCORES: [(&str, OomScore); 2] = [("protect", OomScore::Protect), ("own", OomScore::Own)];

impl Condition {
    /// Its word in `after.<c>`.
    #[must_use]
    pub fn word(self) -> &'static str {
        word_of(&CONDITIONS, &self)
    }
}

/// The word of a value: the reverse of a table above.
pub(crate) fn word_of<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    // Every table names every variant; the test `tables_are_complete` makes sure of that.
    table.iter().find(|(_, listed)| listed == value).map_or("", |(word, _)| *word)
}

#[cfg(test)]
mod tests;
