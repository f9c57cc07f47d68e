//! The bounds on what a pod author may write (DESIGN §6): annotations are untrusted input, and a process that runs as
//! root reads them. This file contains only numbers.

use std::time::Duration;

/// Most containers one plan may have.
pub const MAX_CONTAINERS: usize = 64;

/// Most `podshim.io/` keys one pod may have; every container with every key stays well below it.
pub const MAX_KEYS: usize = 1024;

/// Longest value of one key, in bytes. Also keeps a command below the kernel's limit for one argument.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;

/// Longest container name or alias, in bytes: the kubelet's limit for a container name.
pub const MAX_NAME_BYTES: usize = 63;

/// Most names of init and ephemeral containers that a shim keeps of its pod (S15).
pub const MAX_KUBELETS_OWN: usize = 256;

/// Longest duration: 365 days. Deadlines computed from it cannot overflow.
pub const MAX_DURATION: Duration = Duration::from_secs(365 * 24 * 3600);

/// Shortest period of a probe (11.3).
pub const MIN_PROBE_PERIOD: Duration = Duration::from_millis(100);

/// Shortest base of the delays before restarts (R4): a program that cannot run must not keep a core busy.
pub const MIN_BACKOFF: Duration = Duration::from_millis(100);

/// Most codes and ranges of codes in `codes` or `not` of `restart.<c>` (R13): as many as Kubernetes takes rules.
pub const MAX_CODE_RANGES: usize = 20;

/// Largest compiled pattern of a `log:` gate: instructions, and ranges of its sets. Each letter of a line costs at most
/// this many steps.
pub const MAX_PATTERN: usize = log_pattern::MAX_SIZE;

/// Shortest timeout of a probe: a shorter one could never succeed.
pub const MIN_PROBE_TIMEOUT: Duration = Duration::from_millis(1);

/// Most errors spelled out in the one line that answers a Create; podshim only counts the others.
pub const MAX_LISTED_ERRORS: usize = 16;

/// Longest piece of a bad key or value that a message repeats, in bytes.
pub(crate) const MAX_EXCERPT_BYTES: usize = 96;

/// The bounds of the node's `replace-wait` (T15): with less than a second podshim would take a kubelet's own recreation
/// for an end.
pub(crate) const MIN_REPLACE_WAIT: Duration = Duration::from_secs(1);
pub(crate) const MAX_REPLACE_WAIT: Duration = Duration::from_secs(86_400);

/// The bounds of the node's `lone-stop-window` (T16): a kubelet sends the stops of a pod within milliseconds.
pub(crate) const MIN_LONE_STOP_WINDOW: Duration = Duration::from_millis(100);
pub(crate) const MAX_LONE_STOP_WINDOW: Duration = Duration::from_secs(60);
