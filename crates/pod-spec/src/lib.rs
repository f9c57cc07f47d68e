//! What a pod is, and how annotations say it.
//!
//! Owns the vocabulary of SEMANTICS §11: the plan (which containers are init, sidecar and main, in which
//! order), gates, graces, policies, and every error a pod author can make in writing them. Pure: no IO, no
//! clock, no globals. It never decides what happens to a pod; that is `pod-lifecycle`.

#![forbid(unsafe_code)]

mod plan;

pub use plan::{
    ExitCodes, Gate, GateAction, Member, Others, Plan, ProbeTiming, RestartPolicy, Role, Signal, ZeroGrace,
};
