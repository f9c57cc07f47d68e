//! How pods end on real containerd and runc: the order of the stop, its budget, the signal table and completion (the
//! T-, K- and J-rules of docs/rules.md), pods that only `ctr` creates, and restarts of containerd in the middle of a
//! stop. Every expectation comes from a rule that the test names.

mod budget;
mod completion;
mod ctr_pod;
mod ctr_pods;
mod daemons;
mod drain;
mod fatal;
mod frozen;
mod held;
mod hooks;
mod kep_4438;
mod order;
mod pod_restart;
mod policy;
mod repetitions;
mod rounds;
mod sandbox;
mod signals;
mod support;
mod zero_grace;
