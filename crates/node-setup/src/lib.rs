//! What podshim writes on a node, and whether a node is ready for it.
//!
//! Owns the files of an installation and how they come and go, what containerd's configuration has to say, and the checks of
//! `podshim doctor`. Asks no person and shows nothing: the command does both. Knows no pod.

#![forbid(unsafe_code)]

pub mod bounded;
pub mod containerd_config;
pub mod doctor;
pub mod glob;
pub mod install;
pub mod node;
pub mod node_file;
pub mod signals;
