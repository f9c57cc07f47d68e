//! One unary call of gRPC, without IO: the bytes that a client sends, and the message in the bytes that come back.
//!
//! It is for one call on a connection of its own, to a server that is not trusted: a gate's question to the health service of
//! a container, the installer's question to containerd. What arrives is bounded, by bytes and so by frames.
//!
//! ```
//! let mut call = grpc_call::Call::new("/grpc.health.v1.Health/Check", "127.0.0.1:50051", &[], 1024);
//! let to_send = call.request();
//! # let received = &[][..];
//! // ... send it, read what comes, and until `receive` returns a message:
//! let received = call.receive(received)?;
//! # assert!(!to_send.is_empty() && received.reply.is_empty() && received.message.is_none());
//! # Ok::<(), grpc_call::CallError>(())
//! ```
//!
//! # Why not a crate
//!
//! A gRPC stack is 300 kB and more, a sixth of the shim. What is left out for that: headers of the answer are not read, so a
//! call that fails says only that it did ([`CallError::Refused`]); no compression; no second call.

#![forbid(unsafe_code)]

mod error;
mod frame;
pub mod message;

pub use error::CallError;
use frame::{Frame, Frames};

/// What a client says first (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a server may send beside the message: settings, headers, trailers, pings.
const OVERHEAD: usize = 64 << 10;

/// One call.
#[derive(Debug)]
pub struct Call {
    request: Vec<u8>,
    longest: usize,
    received: usize,
    frames: Frames,
    /// The message with its prefix.
    answer: Vec<u8>,
    server: Server,
}

/// How far the server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    /// Its first frame has not come.
    Silent,
    /// It speaks HTTP/2.
    Speaks,
}

/// What has come of some bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// To send back now.
    pub reply: Vec<u8>,
    /// The answer, once it is whole: the call has ended.
    pub message: Option<Vec<u8>>,
}

impl Call {
    /// A call of a method (`/package.Service/Method`), with a request of protobuf, whose answer may have `longest` bytes.
    /// `authority` is the server's address or name.
    ///
    /// # Panics
    /// In a debug build, if the method or the authority has more than 126 bytes.
    pub fn new(method: &str, authority: &str, request: &[u8], longest: usize) -> Self {
        Self {
            request: whole_request(method, authority, request, longest),
            longest,
            received: 0,
            frames: Frames::default(),
            answer: Vec::new(),
            server: Server::Silent,
        }
    }

    /// All that the client has to say; one write, as nothing of it needs the server's consent.
    pub fn request(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.request)
    }

    /// Takes what has arrived, cut wherever the connection cuts it.
    ///
    /// # Errors
    /// The call has failed, and the connection is of no more use.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Received, CallError> {
        self.received += bytes.len();
        if self.received > self.longest + OVERHEAD {
            return Err(CallError::TooLong);
        }
        self.frames.add(bytes);
        let mut received = Received::default();
        while received.message.is_none() {
            let frame = match (self.frames.next_frame(), self.server) {
                // As long as a frame of HTTP/2 can never be: these are other bytes.
                (Err(_), Server::Silent) => return Err(CallError::NotGrpc),
                (frame, _) => frame?,
            };
            let Some(frame) = frame else { break };
            self.take(&frame, &mut received)?;
        }
        Ok(received)
    }

    fn take(&mut self, frame: &Frame, received: &mut Received) -> Result<(), CallError> {
        // A server's first frame are its settings (RFC 9113, 3.4).
        if self.server == Server::Silent && frame.kind != frame::SETTINGS {
            return Err(CallError::NotGrpc);
        }
        self.server = Server::Speaks;
        match frame.kind {
            frame::SETTINGS | frame::PING if frame.flags & frame::ACK == 0 => {
                let payload = if frame.kind == frame::PING { &frame.payload[..] } else { &[] };
                received.reply.extend(frame::encode(frame.kind, frame::ACK, 0, payload));
            }
            frame::DATA => {
                let data = frame.data().ok_or(CallError::Malformed("padding"))?;
                self.answer.extend_from_slice(data);
                if self.answer.len() > self.longest {
                    return Err(CallError::TooLong);
                }
            }
            frame::RST_STREAM | frame::GOAWAY => return Err(CallError::Refused),
            _ => {}
        }
        // Not before: what is left unread would turn the close into a reset, which servers log.
        if matches!(frame.kind, frame::DATA | frame::HEADERS) && frame.flags & frame::END_STREAM != 0 {
            received.message = Some(self.whole_message()?);
        }
        Ok(())
    }

    fn whole_message(&self) -> Result<Vec<u8>, CallError> {
        let [compressed, a, b, c, d, message @ ..] = self.answer.as_slice() else {
            return Err(CallError::Refused);
        };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        match (compressed, message.get(..length)) {
            (0, Some(message)) => Ok(message.to_vec()),
            _ => Err(CallError::Malformed("not one whole message")),
        }
    }
}

fn whole_request(method: &str, authority: &str, request: &[u8], longest: usize) -> Vec<u8> {
    // Windows so large that no answer waits for more: SETTINGS_INITIAL_WINDOW_SIZE, and the connection's own.
    let window = (longest as u32).to_be_bytes();
    let settings = [&[0, 4][..], &window].concat();
    let mut message = vec![0];
    message.extend((request.len() as u32).to_be_bytes());
    message.extend(request);
    [
        PREFACE.to_vec(),
        frame::encode(frame::SETTINGS, 0, 0, &settings),
        frame::encode(frame::WINDOW_UPDATE, 0, 0, &window),
        frame::encode(frame::HEADERS, frame::END_HEADERS, frame::STREAM, &headers(method, authority)),
        frame::encode(frame::DATA, frame::END_STREAM, frame::STREAM, &message),
    ]
    .concat()
}

/// The request's headers in HPACK (RFC 7541): entries of its static table, and literals that no table takes up.
fn headers(method: &str, authority: &str) -> Vec<u8> {
    let (post, http) = (0x83, 0x86);
    let (path, authority_name, content_type, user_agent) =
        (&[0x04][..], &[0x01][..], &[0x0f, 31 - 15][..], &[0x0f, 58 - 15][..]);
    let mut bytes = vec![post, http];
    for (name, value) in [
        (path, method),
        (authority_name, authority),
        (content_type, "application/grpc"),
        (user_agent, "podshim"),
        (b"\0\x02te", "trailers"),
    ] {
        debug_assert!(value.len() < 127, "its length is one byte");
        bytes.extend(name);
        bytes.push(value.len() as u8);
        bytes.extend(value.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests;
