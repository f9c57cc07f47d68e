//! What a datagram says, and what the shim hears of it.

/// Longest datagram that is read, as in systemd; longer ones are dropped.
pub(super) const MESSAGE_LONGEST: usize = 4096;
/// Longest status that is kept, in bytes.
pub(crate) const STATUS_LONGEST: usize = 128;

/// The part of a datagram that podshim uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Message {
    /// Whether it has `READY=1`.
    pub(crate) readiness: Readiness,
    /// `STATUS=`, cut to fit into one line.
    pub(crate) status: Option<String>,
}

/// Whether a program reports that it is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// It does not say.
    #[default]
    NotReported,
    /// `READY=1`.
    Ready,
}

/// What a container has said with its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// It is ready. It is heard no more.
    Ready,
    /// It is not, and this is its status.
    Status(String),
    /// The sender of a message is no process of the container.
    Stranger,
    /// Its messages cannot be received, for this reason.
    Deaf(String),
}

impl Message {
    /// Reads `KEY=value` lines and skips those that podshim does not use.
    pub(crate) fn parse(datagram: &[u8]) -> Self {
        let mut message = Self::default();
        for line in datagram.split(|byte| *byte == b'\n') {
            if line == b"READY=1" {
                message.readiness = Readiness::Ready;
            } else if let Some(status) = line.strip_prefix(b"STATUS=") {
                let status = &status[..status.len().min(STATUS_LONGEST)];
                message.status = Some(String::from_utf8_lossy(status).trim().to_owned());
            }
        }
        message
    }

    /// What the shim hears if a process of the container has sent it.
    pub(super) fn statement(self) -> Option<Statement> {
        match (self.readiness, self.status) {
            (Readiness::Ready, _) => Some(Statement::Ready),
            (Readiness::NotReported, status) => status.map(Statement::Status),
        }
    }
}
