//! The socket on which a container reports `READY=1`, in the protocol of systemd services (sd_notify).
//!
//! Owns the socket in the bundle, the check of the sender, and the limits on messages. Never answers, and keeps no
//! message. A helper closes descriptors that come along (`relay`).

mod message;
mod relay;
mod socket;

#[cfg(any(test, fuzzing))]
pub(crate) use message::STATUS_LONGEST;
pub use message::{Message, Readiness};
pub use socket::{NotifySocket, Sender};
