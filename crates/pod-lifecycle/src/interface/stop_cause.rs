//! Why a stop of the pod began, for the rules and for an operator alike. Decides nothing: which cause replaces which is
//! `stop`.

use pod_spec::Signal;

/// Why a stop began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopCause {
    /// T12a: a caller stops the containers.
    Caller,
    /// T12b: the sandbox is stopped, or died.
    Sandbox(SandboxEnd),
    /// T12c: an operator, or a signal to the shim.
    Requested,
    /// K11: SIGKILL where `zero-grace=order` makes a stop of it (T12c).
    ZeroGrace,
    /// T12c: the mains are done (J1).
    Completed,
    /// I2: an init failed under Never.
    InitFailed,
    /// I8: a sidecar could not be started under Never, or was not recreated.
    SidecarFailed,
    /// T12c: the end of a container that is fatal (R9).
    Fatal,
    /// R14: the pod is to start again.
    Restart,
}

/// How a stop involves the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxEnd {
    /// K13: a caller stops it; the signal waits until nothing else is left.
    Killed(Signal),
    /// K13: pause has got its signal.
    Signalled,
    /// K16: it died by itself.
    Died,
}
