//! Talks to a shim as containerd does, but without containerd: the actions of its binary, its Task service, and the
//! bundle that containerd prepares. For the differential test and for measurements; tests of behaviour go through
//! containerd.

pub mod bundle;
pub mod container;
pub mod sandbox;
pub mod shim;
pub mod streams;
