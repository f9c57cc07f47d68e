//! A process in a container without the OCI runtime: that of an `exec:` gate or of a hook.
//!
//! The OCI runtime takes some fifteen milliseconds of a processor for one, whatever its program. What a spec asks of it is done
//! completely, or the OCI runtime does it (`request`). Owns the way from a request to a process (`start`), which `programs/exec.rs`
//! goes from its own file in memory.

mod orders;
mod request;
mod start;

pub use request::{ExecRequest, Execs};
pub use start::{ExecError, ExecProgram, Started, Target, start};
