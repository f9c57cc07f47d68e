//! The test bench of the pod core: a simulator on virtual time, an exhaustive explorer, and the invariants that both
//! check after every step.
//!
//! Owns the fake world (processes, operations, callers) and none of the core's decisions: the invariants look only at
//! what goes into the core and what comes out, never at the core's own tables. Dev-only; no clock, no IO, and only
//! seeded randomness. A caller is a script, or a kubelet that sees the results of its calls and restarts by its policy.
//! The program `simulate` runs it by the million (`hack/simulate`).

#![forbid(unsafe_code)]

mod canonical;
mod command;
mod explorer;
mod fairness;
mod inspection;
mod invariants;
mod kubelet;
mod kubelet_grid;
mod new_container;
mod operation_kind;
mod program;
mod random;
mod shrink;
mod simulator;
mod text;
mod trace;
mod world;

pub use command::{Command, CommandError, Detail, PodCaller, Scenario};
pub use explorer::{Exploration, Explorer, Limits, Report};
pub use invariants::Violation;
pub use kubelet::fault::Fault;
pub use kubelet::{KubeletSetup, KubeletVersion, PodContainer, SpecPart, parse_policy};
pub use kubelet_grid::scenarios as kubelet_grid;
pub use new_container::NewContainer;
pub use operation_kind::OperationKind;
pub use program::{OnStop, Program, Run, RunEnd};
pub use random::scenario as random_scenario;
pub use random::{FaultKind, KubeletRun, two_callers};
pub use shrink::{Failure, check, shrink};
pub use simulator::{RunError, Simulator};
