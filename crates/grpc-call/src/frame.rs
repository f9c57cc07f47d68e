//! Frames of HTTP/2 (RFC 9113, 4.1): their nine bytes of header, and where one ends. Owns nothing of what they mean.

use crate::error::CallError;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// Of DATA and HEADERS.
pub(crate) const END_STREAM: u8 = 1;
/// Of SETTINGS and PING.
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// The only stream: the first that a client can open.
pub(crate) const STREAM: u32 = 1;

const HEADER: usize = 9;
/// A client that does not ask for more gets no longer frame.
const LONGEST: usize = 16_384;

/// A whole frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The payload without its padding; `None` if it is all padding and more.
    pub(crate) fn data(&self) -> Option<&[u8]> {
        if self.flags & PADDED == 0 {
            return Some(&self.payload);
        }
        let (padding, rest) = self.payload.split_first()?;
        rest.get(..rest.len().checked_sub(usize::from(*padding))?)
    }
}

/// Bytes that become frames.
#[derive(Debug, Default)]
pub(crate) struct Frames(Vec<u8>);

impl Frames {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next frame that is whole.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Frame>, CallError> {
        let Some([a, b, c, kind, flags, ..]) = self.0.get(..HEADER) else { return Ok(None) };
        let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
        if length > LONGEST {
            return Err(CallError::Malformed("a frame that is too long"));
        }
        let (kind, flags, end) = (*kind, *flags, HEADER + length);
        let Some(payload) = self.0.get(HEADER..end) else { return Ok(None) };
        let frame = Frame { kind, flags, payload: payload.to_vec() };
        self.0.drain(..end);
        Ok(Some(frame))
    }
}

/// A frame as it is sent.
pub(crate) fn encode(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [&[a, b, c, kind, flags, d, e, f, g][..], payload].concat()
}
