//! What podshim keeps in files of the node: where its pods' shims are found, what they have counted, and what became of ended
//! pods.
//!
//! Owns these files, their places and who may read them. Shims write them, commands read them, and either may find the other
//! gone. Decides nothing of a pod, and asks no shim: that is `control-api`.

#![forbid(unsafe_code)]

pub mod calendar;
pub mod counts;
pub mod entry;
pub mod past;
pub mod paths;
pub mod places;
pub mod replace;
pub mod totals;
