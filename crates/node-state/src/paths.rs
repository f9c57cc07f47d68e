//! The node's paths on which every shim and every command agree.

/// The settings of the node's administrator for all pods.
pub const NODE_FILE: &str = "/etc/podshim/config.toml";
/// The directory of all pods' state. It does not outlive a reboot, and neither do pods.
pub const STATE_ROOT: &str = "/run/podshim";
/// `podshim drain` makes it and `--undo` removes it (N7); so does a reboot.
pub const DRAINING_FILE: &str = "/run/podshim/draining";
