//! A shim spoken to as containerd does, without containerd: its binary's actions and its Task service, and what
//! containerd prepares before it. For the differential test and for measurements; tests of behaviour go through
//! containerd.

pub mod bundle;
pub mod shim;
pub mod streams;
