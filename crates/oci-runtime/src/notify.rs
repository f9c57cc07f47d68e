//! The socket on which a container reports `READY=1`, in the protocol of systemd services (sd_notify).
//!
//! Owns the socket in the bundle, the check of the sender, and the limits on messages. Never answers, and keeps no
//! message. The shim takes no part in what a message costs: `keeper` has the socket, `receiver` reads it.

mod keeper;
mod message;
mod protocol;
mod receiver;
mod socket;

pub use message::Statement;
#[cfg(any(test, fuzzing))]
pub(crate) use message::{Message, Readiness, STATUS_LONGEST};
pub use socket::NotifySocket;
