//! Manifests of pods as text: reads them, checks the plans in them, explains these, and translates native sidecars.
//!
//! Owns what podshim says of a file before there is a pod. Pure: text in, findings and text out; it opens no file, runs no
//! program and has no clock. `pod-spec` owns what a plan means, and `podshim` how a finding is shown.

#![forbid(unsafe_code)]

pub mod annotations;
pub mod check;
pub mod explanation;
pub mod finding;
pub mod manifest;
mod quantity;
pub mod resources;
pub mod restart_rules;
pub mod sidecarset;
pub mod source;
pub mod translate;
pub mod yaml;
