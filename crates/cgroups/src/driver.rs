//! Who makes a container's groups. Owns the choice as a word; the caller chooses.

/// Which program manages the container's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CgroupDriver {
    /// The runtime writes the cgroup files itself.
    #[default]
    Cgroupfs,
    /// The runtime asks systemd.
    Systemd,
}
