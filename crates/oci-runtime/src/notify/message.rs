//! What a datagram says.

/// Longest datagram that is read, as in systemd; longer ones are dropped.
pub(super) const MESSAGE_LONGEST: usize = 4096;
/// Longest status that is kept, in bytes.
pub(crate) const STATUS_LONGEST: usize = 128;

/// The part of a datagram that podshim uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Whether it has `READY=1`.
    pub readiness: Readiness,
    /// `STATUS=`, cut to fit into one line.
    pub status: Option<String>,
}

/// Whether a program reports that it is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Readiness {
    /// It does not say.
    #[default]
    NotReported,
    /// `READY=1`.
    Ready,
}

impl Message {
    /// Reads `KEY=value` lines and skips those that podshim does not use.
    pub fn parse(datagram: &[u8]) -> Self {
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
}
