//! How pods start and stay up on real containerd and runc: the plan's order, inits, gates, holds and restarts in place
//! (the S-, I-, U- and R-rules), and the answers to bad annotations. Every expectation comes from a rule that the test
//! names. Cases of the kubelet's own suite carry their number there, with "e2e" where a rule has the same number
//! (docs/rules.md has both).

mod after;
mod annotations;
mod gate_processes;
mod gates;
mod gates_notified;
mod gates_probed;
mod held;
mod inits;
mod injected;
mod kruise;
mod node_file;
mod oom_scores;
mod plan;
mod restart_all;
mod restart_keys;
mod restarts;
mod restarts_in_place;
mod sidecars;
mod standby;
mod support;
mod unstarted;
