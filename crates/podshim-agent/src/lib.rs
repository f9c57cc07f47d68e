//! The agent of a node: writes what podshim knows of the node's pods into Kubernetes, as Events and as a condition.
//!
//! Owns what is written, and when. Decides nothing about a pod and delays nothing: without it podshim works as ever, and all that it knows
//! it can ask its shims again. `story`, `conditions`, `outbox` and `node` are pure; `shims` reads shims, `cluster` speaks to the API server.

#![forbid(unsafe_code)]

pub mod agent;
mod bucket;
mod clock;
mod cluster;
mod conditions;
mod directory;
mod node;
mod object;
mod outbox;
mod report;
mod shims;
mod story;
mod watched;
