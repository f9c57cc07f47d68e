//! Asks systemd for the scope of a process that podshim makes itself, and for the end of one.
//!
//! Owns the few calls and how they are spoken: D-Bus, over the socket that systemd keeps for root, where no bus is between.
//! Decides nothing about control groups.

mod manager;
mod message;
mod property;

pub use manager::SystemdError;
pub(crate) use manager::{Manager, SOCKET};
pub(crate) use property::{Property, PropertyValue};
