//! What a process reads and writes: containerd's fifos, pipes, files, terminals and logging programs.
//!
//! Two sides. `head` is what the thread that decides has: keys and verbs. `stdio` (fifos and pipes) and `console` (terminals) live
//! on the hand, where a container may delay them.
//!
//! Owns the shim's ends of these files, and that the head holds none of them longer than it takes to start the OCI runtime with it.
//! Never decides what is shown or kept, and knows no container.

pub mod console;
pub mod head;
pub mod stdio;
