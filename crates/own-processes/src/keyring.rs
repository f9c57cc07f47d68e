//! The session keyring of what is made. Owns the choice as a word, for the OCI runtime too; the caller chooses.

/// Whether the container gets a session keyring of its own (option NoNewKeyring).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionKeyring {
    /// A new one.
    #[default]
    New,
    /// The shim's own.
    Inherited,
}
