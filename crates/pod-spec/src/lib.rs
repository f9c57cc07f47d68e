//! What a pod is, and how annotations describe it.
//!
//! Owns the vocabulary of docs/rules.md, section 11: the plan (which containers are init, sidecar and main, in which
//! order), gates, graces, policies, and every error that a pod author can make in writing them. Pure: no IO, no clock,
//! no globals. It never decides what happens to a pod; `pod-lifecycle` does.

#![forbid(unsafe_code)]

#[cfg(any(test, fuzzing))]
pub mod bad_input;
mod code_set;
mod command;
mod drain_priority;
mod duration;
mod error;
mod excerpt;
mod keys;
pub mod kruise;
mod kubelets_own;
pub mod limits;
mod name;
mod nearest;
mod node;
mod order;
mod parse;
mod plan;
mod restart_request;
mod shares;
mod signal;
mod suggestion;
pub mod toml;
mod warning;
mod write;

pub use code_set::CodeSet;
pub use command::CommandError;
pub use drain_priority::drain_priority;
pub use duration::{BoundedDuration, DurationError, DurationText, parse as parse_duration};
pub use error::{CodesError, GateError, InvalidPlan, ListError, OptionError, PlanError, Problem};
pub use keys::{PREFIX, STARTED_CONDITION};
pub use kubelets_own::{KubeletsOwn, NamePattern};
pub use name::is_name;
pub use nearest::Hint;
pub use node::{History, KruiseMarks, Node, NodeError, SandboxMaker, ValueProblem};
pub use order::{Link, Order, needs};
pub use parse::{Parsed, parse};
pub use plan::{
    Backoff, Condition, Defaults, Dependency, ExitCodes, Fatal, Gate, GateAction, Member, OomScore, Others,
    Plan, ProbeTiming, Restart, RestartMode, RestartPolicy, Role, Settings, Signal, Source, ZeroGrace,
};
pub use restart_request::restart_request;
pub use shares::{LastSignals, STEP_TIME, Shares, shrunk};
pub use signal::SignalError;
pub use suggestion::nearest_word;
pub use warning::Warning;
