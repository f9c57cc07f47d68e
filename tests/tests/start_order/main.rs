//! How pods start and stay up on real containerd and runc: the plan's order, inits, gates, holds and restarts in place
//! (the S-, I-, U- and R-rules), and what bad annotations are answered. Every expectation is a rule's, named in
//! the test; cases of the kubelet's own suite carry their number there, with "e2e" where a rule has the same
//! (docs/rules.md has both).

mod after;
mod annotations;
mod gates;
mod gates_probed;
mod gates_told;
mod held;
mod inits;
mod node_file;
mod oom_scores;
mod plan;
mod restart_keys;
mod restarts;
mod restarts_in_place;
mod sidecars;
mod standby;
mod support;
