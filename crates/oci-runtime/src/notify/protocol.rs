//! What the shim and the processes that have a notify socket say to each other, one packet for each.
//!
//! Owns the form of orders and reports. Both sides are podshim's, but a report's text is a container's: it is bounded.

use cgroups::Membership;

use super::message::{STATUS_LONGEST, Statement};

/// More than the paths of all groups of a container.
pub(super) const ORDER_LONGEST: usize = 16 * 1024;
/// The run that it is of, its kind, and a status in which each byte had to be replaced by three.
pub(super) const REPORT_LONGEST: usize = RUN + 1 + 3 * STATUS_LONGEST;
const RUN: usize = size_of::<u32>();

/// What the shim wants of the keeper of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// No process of the container runs: what comes is not for it. The keeper says when nothing of podshim's is in its groups.
    Idle { number: u32 },
    /// A new run of the container, whose messages count. Without groups no message is its.
    Receive { run: u32, container: Option<Membership> },
}

impl Order {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Idle { number } => [&[0][..], &number.to_ne_bytes()].concat(),
            Self::Receive { run, container } => {
                let groups = container.as_ref().map(Membership::encode).unwrap_or_default();
                [&[1][..], &run.to_ne_bytes(), groups.as_bytes()].concat()
            }
        }
    }

    pub(super) fn decode(packet: &[u8]) -> Self {
        let parts = packet.split_first().and_then(|(kind, rest)| Some((kind, rest.split_first_chunk()?)));
        match parts {
            Some((1, (run, groups))) => Self::Receive {
                run: u32::from_ne_bytes(*run),
                container: str::from_utf8(groups).ok().and_then(Membership::decode),
            },
            Some((_, (number, _))) => Self::Idle { number: u32::from_ne_bytes(*number) },
            None => Self::Idle { number: 0 },
        }
    }
}

/// What the shim hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Announcement {
    /// A receiver's.
    Report(Report),
    /// The keeper's: since the order of this number nothing of podshim's is in the container's groups.
    Left { number: u32 },
}

/// What no report has as its kind.
const LEFT: u8 = 255;

impl Announcement {
    pub(super) fn encode_left(number: u32) -> Vec<u8> {
        [&number.to_ne_bytes()[..], &[LEFT]].concat()
    }

    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
        match packet.split_first_chunk()? {
            (number, [LEFT]) => Some(Self::Left { number: u32::from_ne_bytes(*number) }),
            _ => Report::decode(packet).map(Self::Report),
        }
    }
}

/// What a receiver tells the shim of one run of the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Report {
    pub(super) run: u32,
    pub(super) statement: Statement,
}

impl Report {
    pub(super) fn encode(&self) -> Vec<u8> {
        let (kind, text) = match &self.statement {
            Statement::Ready => (0, ""),
            Statement::Stranger => (1, ""),
            Statement::Status(status) => (2, status.as_str()),
            Statement::Deaf(why) => (3, why.as_str()),
        };
        let mut packet = [&self.run.to_ne_bytes()[..], &[kind], text.as_bytes()].concat();
        packet.truncate(REPORT_LONGEST);
        packet
    }

    fn decode(packet: &[u8]) -> Option<Self> {
        let (run, rest) = packet.split_first_chunk()?;
        let (kind, text) = rest.split_first()?;
        let text = || String::from_utf8_lossy(text).into_owned();
        let statement = match kind {
            0 => Statement::Ready,
            1 => Statement::Stranger,
            2 => Statement::Status(text()),
            _ => Statement::Deaf(text()),
        };
        Some(Self { run: u32::from_ne_bytes(*run), statement })
    }
}
