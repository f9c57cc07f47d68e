//! The shim's threads, and what a thread waits for.
//!
//! The head is the one thread that answers containerd, decides and kills: what it does is measured (`busy`), and it must wait for
//! nothing that a container can delay. Such things are done on the hand (`hand`), by a thread of its own for one job
//! (`helper_thread`), or without a wait (`at_once`).
//!
//! Owns these threads, the lines between them, and the descriptors by which a thread is woken (`async_file`, `timer`). Never
//! starts a process or waits for one (`processes`), and knows nothing of containers.

pub mod async_file;
pub mod at_once;
pub mod busy;
pub mod hand;
pub mod helper_thread;
pub mod stack;
pub mod timerfd;
