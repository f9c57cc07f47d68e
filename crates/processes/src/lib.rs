//! Starts processes, waits for them and signals them, for the whole shim.
//!
//! What has a reason of its own does it elsewhere: the sandbox's clone (own-processes), the holder of a user namespace for a mount
//! (mounts), an OCI runtime's process group that hangs (oci-runtime), and the programs that are not the shim (delete, the command).
//!
//! Owns the one reaper, the process as a value (pid and pidfd), and helpers: processes of podshim's own for one job that may hang.
//! Never decides who runs or ends, and knows neither containers nor the OCI runtime. Its handles are based on `Rc` and not `Send`:
//! it is made for one thread, a tokio current-thread runtime with a `LocalSet`.

pub mod helper_process;
pub mod reaper;

mod process;

pub use self::process::{
    ExecOutcome, ExecutableIdentity, InvalidSignalNumber, Process, SignalDelivery, SignalNumber,
    disable_huge_pages, open_files_before, processor_time, thread_processor_time, use_all_open_files,
};
