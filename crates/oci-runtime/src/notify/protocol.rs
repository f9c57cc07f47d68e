//! What the shim and the processes that have a notify socket say to each other, one packet for each.
//!
//! Owns the form of orders and reports. Both sides are podshim's, but a report's text is a container's: it is bounded.

use super::message::{STATUS_LONGEST, Statement};
use crate::cgroup::Membership;

/// More than the paths of all groups of a container.
pub(super) const ORDER_LONGEST: usize = 16 * 1024;
/// The run that it is of, its kind, and a status in which each byte had to be replaced by three.
pub(super) const REPORT_LONGEST: usize = RUN + 1 + 3 * STATUS_LONGEST;
const RUN: usize = size_of::<u32>();

/// What the shim wants of the keeper of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Order {
    /// No process of the container runs: what comes is not for it.
    Idle,
    /// A new run of the container, whose messages count. Without groups no message is its.
    Receive { run: u32, container: Option<Membership> },
}

impl Order {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Idle => vec![0],
            Self::Receive { run, container } => {
                let groups = container.as_ref().map(Membership::encode).unwrap_or_default();
                [&[1][..], &run.to_ne_bytes(), groups.as_bytes()].concat()
            }
        }
    }

    pub(super) fn decode(packet: &[u8]) -> Self {
        let received = packet.strip_prefix(&[1]).and_then(<[u8]>::split_first_chunk);
        received.map_or(Self::Idle, |(run, groups)| Self::Receive {
            run: u32::from_ne_bytes(*run),
            container: str::from_utf8(groups).ok().and_then(Membership::decode),
        })
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

    pub(super) fn decode(packet: &[u8]) -> Option<Self> {
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
