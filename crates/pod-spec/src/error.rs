//! Every error that a pod author can make (11.4), as values that read as one line: the key, the bad value, the nearest
//! valid word. Owns the wording; `parse` finds the errors.

use std::fmt;

use crate::command::CommandError;
use crate::duration::DurationError;
use crate::excerpt::printable;
use crate::keys::PREFIX;
use crate::limits::{MAX_CONTAINERS, MAX_KEYS, MAX_LISTED_ERRORS, MAX_VALUE_BYTES};
use crate::nearest::Hint;
use crate::signal::SignalError;

mod codes;
mod gate;
mod list;
mod option;

pub use codes::CodesError;
pub use gate::GateError;
pub use list::ListError;
pub use option::OptionError;

/// All that is wrong with a pod's annotations. The message is one line, problems separated by `"; "`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPlan {
    errors: Vec<PlanError>,
}

impl InvalidPlan {
    /// `None` if nothing is wrong.
    pub(crate) fn from_errors(errors: Vec<PlanError>) -> Option<Self> {
        (!errors.is_empty()).then_some(Self { errors })
    }

    /// The errors in the order they were found; at least one.
    pub fn errors(&self) -> &[PlanError] {
        &self.errors
    }
}

impl std::error::Error for InvalidPlan {}

impl fmt::Display for InvalidPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.errors.iter().take(MAX_LISTED_ERRORS).enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{error}")?;
        }
        match self.errors.len().saturating_sub(MAX_LISTED_ERRORS) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// One thing that is wrong, and the annotation it is in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct PlanError {
    /// The annotation's whole key in printable form, shortened if very long.
    pub key: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl PlanError {
    /// `key` is what follows the prefix.
    pub(crate) fn new(key: &str, problem: impl Into<Problem>) -> Self {
        Self { key: printable_key(key), problem: problem.into() }
    }
}

/// The whole key on one line: `ctr` passes any bytes as an annotation.
pub(crate) fn printable_key(key: &str) -> String {
    format!("{PREFIX}{}", printable(key))
}

/// What can be wrong with one annotation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not a key of 11.2 or 11.3.
    #[error("unknown key{hint}")]
    UnknownKey {
        /// The nearest key.
        hint: Hint,
    },
    /// A container's key without the container.
    #[error("a container is missing: write {PREFIX}{word}.<container>")]
    ContainerMissing {
        /// The key's word.
        word: &'static str,
    },
    /// A pod's key with a container.
    #[error("{word:?} is a key of the whole pod: write {PREFIX}{word}")]
    OfThePod {
        /// The key's word.
        word: &'static str,
    },
    /// `drain-priority` with a value that is no whole number of 32 bits (N11).
    #[error("{value:?} is no priority: write a whole number, such as 1000; pods with a lower one end first")]
    NotAPriority {
        /// The value.
        value: String,
    },
    /// More keys than [`MAX_KEYS`].
    #[error("the pod has {count} keys of podshim, at most {MAX_KEYS} are allowed")]
    TooManyKeys {
        /// How many there are.
        count: usize,
    },
    /// A value longer than [`MAX_VALUE_BYTES`].
    #[error("the value has {bytes} bytes, at most {MAX_VALUE_BYTES} are allowed")]
    ValueTooLong {
        /// How long it is.
        bytes: usize,
    },
    /// The key's container, or one that the value names, is not in the plan.
    #[error("no container {name:?} in {PREFIX}plan{hint}")]
    NoSuchContainer {
        /// The name that was written.
        name: String,
        /// The nearest name of the plan.
        hint: Hint,
    },
    /// One container's setting given under its name and under its alias.
    #[error("the same container is set by {other} too: keep one of the two")]
    SetTwice {
        /// The other key.
        other: String,
    },
    /// Other keys without `podshim.io/plan`.
    #[error("missing, but {key} is set: add the plan, such as \"proxy=sidecar, app=main\"")]
    PlanMissing {
        /// One of the other keys.
        key: String,
    },
    /// Both forms of a plan in one pod (S10).
    #[error(
        "{PREFIX}plan is set too: add {name:?} to the plan and remove the key, or replace the plan by a \
         {PREFIX}role.<container> for each init and sidecar"
    )]
    RoleBesidePlan {
        /// The container of the role.
        name: String,
    },
    /// `role.<c>: none` for a container of the plan (S8).
    #[error("{name:?} has another role in {PREFIX}plan: remove one of the two")]
    KubeletsOwnIsPlanned {
        /// The container.
        name: String,
    },
    /// Another key of a container that is the kubelet's own (S8).
    #[error("{name:?} is the kubelet's own (\"none\"), and podshim does nothing with it: remove the key")]
    KeyOfKubeletsOwn {
        /// The container.
        name: String,
    },
    /// A dependency on a container that is the kubelet's own (S8).
    #[error("{name:?} is the kubelet's own (\"none\"), which runs it before the plan: remove it here")]
    AfterKubeletsOwn {
        /// The container.
        name: String,
    },
    /// A job whose `role.<c>` name no main (S11): its first container could complete it before the second exists.
    #[error(
        "with {PREFIX}restart-policy={policy} podshim has to know the mains: add {PREFIX}role.<container>: \"main\" \
         for each"
    )]
    MainsOfJobUnknown {
        /// The restart policy.
        policy: &'static str,
    },
    /// Something wrong in the plan's list.
    #[error(transparent)]
    List(#[from] ListError),
    /// A word that is not one of the valid ones.
    #[error("unknown value {value:?}{hint}")]
    UnknownValue {
        /// The word.
        value: String,
        /// The valid ones.
        hint: Hint,
    },
    /// An invalid duration.
    #[error(transparent)]
    Duration(#[from] DurationError),
    /// A container's grace that could never be used up, as it lies inside the pod's (T8).
    #[error("{grace} is longer than {PREFIX}grace: write at most {pod_grace}, or raise {PREFIX}grace")]
    GraceAbovePod {
        /// The container's.
        grace: String,
        /// The pod's.
        pod_grace: String,
    },
    /// More is kept of the budget than there is (T19).
    #[error("{reserve} is longer than {PREFIX}grace: write at most {grace}, or raise {PREFIX}grace")]
    ReserveAboveGrace {
        /// What is kept.
        reserve: String,
        /// The budget.
        grace: String,
    },
    /// An invalid signal, or one that cannot be a stop signal.
    #[error(transparent)]
    Signal(#[from] SignalError),
    /// An invalid gate.
    #[error(transparent)]
    Gate(#[from] GateError),
    /// An invalid command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// An invalid option of `restart.<c>`.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// `restart.<c>` whose longest delay is shorter than its base.
    #[error("max={max} is shorter than base={base}")]
    BackoffMaxBelowBase {
        /// The longest delay.
        max: String,
        /// The base, from which the delays double.
        base: String,
    },
    /// `codes` or `not` beside a word other than `on-failure`, which restarts by no code (R13).
    #[error("{option:?} is an option of \"on-failure\", and {mode:?} does not go by codes")]
    CodesOfOtherMode {
        /// The option.
        option: &'static str,
        /// The word.
        mode: &'static str,
    },
    /// `codes` and `not` in one value.
    #[error("\"codes\" and \"not\" are both given: keep one of the two")]
    CodesAndNot,
    /// A list of exit codes in which something is wrong.
    #[error("{option}: {source}")]
    Codes {
        /// The option.
        option: &'static str,
        /// What is wrong.
        source: CodesError,
    },
    /// A hook that is not `exec:`.
    #[error("{value:?} is no hook: write \"exec:<command>\"")]
    HookNotExec {
        /// What was written.
        value: String,
    },
    /// A key that has no meaning for an init container (I6).
    #[error("{name:?} is an init container: it has no {word:?}")]
    NotForInit {
        /// The container.
        name: String,
        /// The key's word.
        word: &'static str,
    },
    /// `fatal` on an init container: its failure always fails the pod (I2).
    #[error("{name:?} is an init container: its failure already fails the pod, remove the key")]
    InitIsFatal {
        /// The container.
        name: String,
    },
    /// `restart=always` on an init container, which would never be done.
    #[error(
        "{name:?} is an init container: with \"always\" it would never be done \
         (did you mean \"on-failure\"?)"
    )]
    InitAlwaysRestarted {
        /// The container.
        name: String,
    },
    /// `codes` with 0 on an init container, which would never be done.
    #[error("{name:?} is an init container: with 0 in \"codes\" it would never be done, remove the 0")]
    InitSuccessRestarted {
        /// The container.
        name: String,
    },
    /// An entry of `after.<c>` that is not `container=condition`.
    #[error("{entry:?} is not a dependency: write container=ready, container=done or container=started")]
    DependencyMalformed {
        /// The entry.
        entry: String,
    },
    /// An unknown condition.
    #[error("unknown condition {condition:?} in {entry:?}{hint}")]
    UnknownCondition {
        /// The condition.
        condition: String,
        /// The entry.
        entry: String,
        /// The valid ones.
        hint: Hint,
    },
    /// The same container twice in one `after.<c>`.
    #[error("{name:?} is named twice")]
    DependencyTwice {
        /// The container.
        name: String,
    },
    /// More dependencies than a plan can have containers.
    #[error("more than {MAX_CONTAINERS} dependencies")]
    TooManyDependencies,
    /// A container after itself.
    #[error("{name:?} cannot start after itself")]
    AfterItself {
        /// The container.
        name: String,
    },
    /// `x=done` where x is a sidecar: sidecars end after everything else.
    #[error("{name:?} is a sidecar and never \"done\" (did you mean \"{name}=ready\"?)")]
    SidecarNeverDone {
        /// The sidecar.
        name: String,
    },
    /// `migrate` on a container without a standby (V4).
    #[error("{name:?} has no standby to take over from: write the pair as \"{name}|other=sidecar\"")]
    NotInAPair {
        /// The container.
        name: String,
    },
    /// `after` on the second of a standby pair (V1).
    #[error(
        "{name:?} is the standby of {first:?} and has its place in the order: write {PREFIX}after.{first}"
    )]
    OrderOfThePair {
        /// The container.
        name: String,
        /// The first of the pair.
        first: String,
    },
    /// `x=done` where podshim restarts x whatever its exit code.
    #[error("{name:?} is restarted \"always\" and so never \"done\" (did you mean \"on-failure\"?)")]
    AlwaysRestarted {
        /// The container.
        name: String,
    },
    /// `x=done` where podshim restarts x after 0 too.
    #[error("{name:?} is restarted after 0 too and so never \"done\": remove the 0 from its codes")]
    SuccessRestarted {
        /// The container.
        name: String,
    },
    /// An option of `fatal.<c>` beside a word that has none (R14).
    #[error("{word:?} has no options: only \"restart\" has a limit (did you mean \"restart;limit=5\"?)")]
    OptionOfOtherFatal {
        /// The word.
        word: &'static str,
    },
    /// `fatal` on a container whose fatal exit podshim would restart each time (R9).
    #[error(
        "no exit would ever be fatal: {restart} restarts the container after each; add a limit to it, \
         or remove one of the two keys"
    )]
    FatalNeverSeen {
        /// The annotation that restarts it.
        restart: String,
    },
    /// Containers that wait for each other in a circle.
    #[error("cycle: {}", .path.join(" after "))]
    Cycle {
        /// The containers of the circle; the first is repeated at the end.
        path: Vec<String>,
    },
    /// `zero-grace=order` with no sidecar whose order it could keep.
    #[error("\"order\" needs a sidecar in {PREFIX}plan, there is none")]
    OrderWithoutSidecar,
    /// `exit-codes=real` under OnFailure (J10): the kubelet would restart a sidecar that a completed job has stopped, and
    /// never restart one that exits with 0 in a stop after which the pod goes on.
    #[error(
        "\"real\" cannot be used with restart-policy OnFailure: the kubelet restarts by these codes, and the job \
         would never end (did you mean \"masked\"?)"
    )]
    RealCodesOnFailure,
    /// A key or a value that the node's configuration forbids.
    #[error("{word:?} is forbidden on this node")]
    ForbiddenByNode {
        /// The key, or the beginning of the value.
        word: &'static str,
    },
    /// A key that the node's configuration sets for every pod.
    #[error("is fixed on this node: remove the key")]
    FixedByNode,
    /// A value beyond a bound of the node's configuration.
    #[error("this node allows {bound}")]
    BeyondNode {
        /// The bound, in words.
        bound: String,
    },
}
