//! The hand: a thread that does what a container can delay, so that the thread that answers containerd, decides and kills never does.
//!
//! Owns the thread, its table of descriptors, and the way of a message to it and back. What lives on it is its users' (`streams`): they
//! hold a key (`Held`) and send what is to be done. A container that holds the lock of its pipe stops the hand, in state D; then the
//! head goes on, and a SIGKILL to the container frees the hand.
//!
//! The hand's descriptors are its own (`unshare(CLONE_FILES)`): the kernel closes a killed process's files only when all threads with
//! the same table are gone, and a thread in state D would keep the shim's connections and its lock. So nothing that rings a descriptor
//! may go from one thread to the other, above all no channel of tokio's: a message and its answer go by a `line`.
//!
//! There may be several: what touches a container's pipes is done in turns, one thread at a time (`tenant`).

use std::time::Duration;

mod answers;
mod attention;
mod error;
mod handle;
mod lending;
pub mod line;
mod own_table;
pub mod stock;
mod table;
pub mod tenant;
#[cfg(test)]
mod tests;
mod thread;

pub use self::answers::{Promise, Reply};
pub use self::attention::{Alert, Presence, Pulse};
pub use self::error::HandError;
pub use self::handle::{Hand, Held, WeakHand};
pub use self::own_table::HeadsDescriptors;
pub use self::table::Guard;
pub use self::tenant::Tenant;

/// Time for what takes a hand no time. It is longer only when a container delays the hand.
pub const AT_ONCE: Duration = Duration::from_secs(10);

/// How much longer than its own limit an end of streams may take before the hand is not waited for any more.
pub const LATE: Duration = Duration::from_secs(1);
