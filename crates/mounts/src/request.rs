//! A mount, as the Create request says it.

/// One mount of a Create request; several are mounted one over the other.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RootfsMount {
    /// File system type: `overlay`, `bind`, `ext4`, ...
    pub kind: String,
    /// Source, as for `mount(8)`.
    pub source: String,
    /// Options as in `/etc/fstab`.
    pub options: Vec<String>,
}
