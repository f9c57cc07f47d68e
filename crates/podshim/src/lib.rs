//! The command `podshim`: for people who write pods or look after a node.
//!
//! Owns reading manifests and configuration, and showing what it finds. It decides nothing about pods: `pod-spec` owns
//! what a plan means, and `pod-lifecycle`, inside the shims, what happens to a pod. It is a library so that tests reach
//! its parts; nothing else uses it.

#![forbid(unsafe_code)]

pub mod arguments;
pub mod check;
pub mod clock;
pub mod commands;
pub mod diff;
pub mod drain;
pub mod events;
pub mod finding_text;
pub mod http;
pub mod metrics;
pub mod outcome;
pub mod output;
pub mod past;
pub mod plan_text;
pub mod pods;
pub mod question;
pub mod reference;
pub mod shims;
pub mod source;
pub mod spans;
pub mod terminal;
pub mod timeline;
pub mod usage;
pub mod web;
pub mod why;
pub mod words;
