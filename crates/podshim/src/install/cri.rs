//! What the node's containerd answers on its CRI socket: its version, and whether it has podshim's runtime.
//!
//! Owns as much of gRPC as two requests need: one stream of HTTP/2 with fixed headers, and the few fields that are read
//! of two messages. A gRPC stack would be larger than the rest of the command. Everything that arrives is bounded.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::containerd::HANDLER;

/// How long containerd may be silent.
const SILENCE: Duration = Duration::from_secs(5);
/// More than any answer has: containerd's configuration as JSON is some 20 kB.
const MAX_ANSWER: usize = 4 << 20;
/// A frame that is longer breaks HTTP/2's default limit.
const MAX_FRAME: usize = 16_384;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The identifier of the only stream.
const STREAM: u32 = 1;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
/// Of DATA and HEADERS.
const END_STREAM: u8 = 1;
/// Of SETTINGS and PING.
const ACK: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// Whether the running containerd has podshim's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loaded {
    /// It starts pods on podshim.
    Yes,
    /// It has not read a configuration with podshim's runtime.
    No,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// The socket cannot be used.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// containerd refused the request, as it does while it starts.
    #[error("it does not serve the CRI yet")]
    Refused,
    /// The answer is not what a containerd sends.
    #[error("its answer is not understood: {0}")]
    Malformed(&'static str),
}

/// The version of the containerd that listens there.
///
/// # Errors
/// It does not answer.
pub fn version(socket: &Path) -> Result<String, CriError> {
    let answer = call(socket, "/runtime.v1.RuntimeService/Version", &[])?;
    let version = fields(&answer).find(|(number, _)| *number == 3).map(|(_, value)| value);
    let version = version.ok_or(CriError::Malformed("no version"))?;
    Ok(String::from_utf8_lossy(version).into_owned())
}

/// Whether the containerd that listens there has podshim's runtime.
///
/// # Errors
/// It does not answer.
pub fn loaded(socket: &Path) -> Result<Loaded, CriError> {
    // `verbose`, by which the answer has the configuration.
    let answer = call(socket, "/runtime.v1.RuntimeService/Status", &[0x08, 1])?;
    let value = |entry: &[u8], wanted: u64| {
        fields(entry).find(|(number, _)| *number == wanted).map(|(_, value)| value.to_vec())
    };
    let info = fields(&answer).filter(|(number, _)| *number == 2).map(|(_, entry)| entry);
    let config =
        info.filter(|entry| value(entry, 1).as_deref() == Some(b"config")).find_map(|entry| value(entry, 2));
    let config = config.ok_or(CriError::Malformed("no configuration"))?;
    let config: serde_json::Value = serde_json::from_slice(&config)
        .map_err(|_| CriError::Malformed("a configuration that is not JSON"))?;
    let runtime = config.get("containerd").and_then(|it| it.get("runtimes")).and_then(|it| it.get(HANDLER));
    Ok(if runtime.is_some() { Loaded::Yes } else { Loaded::No })
}

/// The answer to one request.
fn call(socket: &Path, method: &str, request: &[u8]) -> Result<Vec<u8>, CriError> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(SILENCE))?;
    stream.set_write_timeout(Some(SILENCE))?;
    stream.write_all(&question(method, request))?;
    let mut answer = Vec::new();
    loop {
        let (kind, flags, payload) = frame(&mut stream)?;
        match kind {
            DATA => {
                answer.extend_from_slice(without_padding(flags, &payload)?);
                if answer.len() > MAX_ANSWER {
                    return Err(CriError::Malformed("too long"));
                }
            }
            SETTINGS if flags & ACK == 0 => acknowledge(&mut stream, SETTINGS, &[]),
            PING if flags & ACK == 0 => acknowledge(&mut stream, PING, &payload),
            RST_STREAM | GOAWAY => return Err(CriError::Refused),
            _ => {}
        }
        if matches!(kind, DATA | HEADERS) && flags & END_STREAM != 0 {
            break;
        }
    }
    // An error has no message: its code is in the headers, which are not read.
    let [compressed, a, b, c, d, message @ ..] = answer.as_slice() else { return Err(CriError::Refused) };
    let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
    match (compressed, message.get(..length)) {
        (0, Some(message)) => Ok(message.to_vec()),
        _ => Err(CriError::Malformed("not one whole message")),
    }
}

/// All that the client has to say.
fn question(method: &str, request: &[u8]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    // Windows so large that no answer waits for more: SETTINGS_INITIAL_WINDOW_SIZE, and the connection's own.
    let window = (MAX_ANSWER as u32).to_be_bytes();
    let settings = [&[0, 4][..], &window].concat();
    let mut message = vec![0];
    message.extend((request.len() as u32).to_be_bytes());
    message.extend(request);
    for (kind, flags, stream, payload) in [
        (SETTINGS, 0, 0, settings),
        (WINDOW_UPDATE, 0, 0, window.to_vec()),
        (HEADERS, END_HEADERS, STREAM, headers(method)),
        (DATA, END_STREAM, STREAM, message),
    ] {
        bytes.extend(frame_head(kind, flags, stream, payload.len()));
        bytes.extend(payload);
    }
    bytes
}

/// The request's headers in HPACK: entries of its static table, and literals that no table takes up.
fn headers(method: &str) -> Vec<u8> {
    let literal = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    let (post, http) = (0x83, 0x86);
    let (path, authority, content_type) = (0x04, 0x01, [0x0f, 31 - 15]);
    let mut bytes = vec![post, http, path];
    bytes.extend(literal(method));
    bytes.push(authority);
    bytes.extend(literal("localhost"));
    bytes.extend(content_type);
    bytes.extend(literal("application/grpc"));
    bytes.push(0);
    bytes.extend(literal("te"));
    bytes.extend(literal("trailers"));
    bytes
}

fn frame_head(kind: u8, flags: u8, stream: u32, length: usize) -> [u8; 9] {
    let [_, a, b, c] = (length as u32).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    [a, b, c, kind, flags, d, e, f, g]
}

fn acknowledge(stream: &mut UnixStream, kind: u8, payload: &[u8]) {
    // If containerd has gone, the next read says so, after what it sent before.
    let _ = stream.write_all(&[&frame_head(kind, ACK, 0, payload.len()), payload].concat());
}

/// Kind, flags and payload of the next frame.
fn frame(stream: &mut UnixStream) -> Result<(u8, u8, Vec<u8>), CriError> {
    let mut head = [0; 9];
    stream.read_exact(&mut head)?;
    let [a, b, c, kind, flags, ..] = head;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if length > MAX_FRAME {
        return Err(CriError::Malformed("a frame that is too long"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload)?;
    Ok((kind, flags, payload))
}

fn without_padding(flags: u8, payload: &[u8]) -> Result<&[u8], CriError> {
    if flags & PADDED == 0 {
        return Ok(payload);
    }
    let wrong = CriError::Malformed("padding");
    let Some((length, rest)) = payload.split_first() else { return Err(wrong) };
    rest.len().checked_sub(usize::from(*length)).and_then(|end| rest.get(..end)).ok_or(wrong)
}

/// The fields of a message that have bytes, with their numbers. Ends where the message is not understood.
fn fields(message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = message;
    std::iter::from_fn(move || {
        loop {
            let key = varint(&mut rest)?;
            match key & 7 {
                0 => drop(varint(&mut rest)?),
                1 => rest = rest.get(8..)?,
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    let (value, after) = rest.split_at_checked(length)?;
                    rest = after;
                    return Some((key >> 3, value));
                }
                5 => rest = rest.get(4..)?,
                _ => return None,
            }
        }
    })
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    /// What the function says of a server that sends this once it has the whole request.
    fn asked<T>(answer: Vec<u8>, ask: impl Fn(&Path) -> T) -> T {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut preface = [0; 24];
            stream.read_exact(&mut preface).unwrap();
            assert_eq!(preface, PREFACE);
            while frame(&mut stream).unwrap().0 != DATA {}
            // The client may have gone already.
            let _ = stream.write_all(&answer);
        });
        let said = ask(&path);
        server.join().unwrap();
        said
    }

    fn framed(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        [&frame_head(kind, flags, STREAM, payload.len())[..], payload].concat()
    }

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let length = [(value.len() & 0x7f) as u8 | 0x80, (value.len() >> 7) as u8];
        [&[number << 3 | 2][..], &length, value].concat()
    }

    fn message(content: &[u8]) -> Vec<u8> {
        [&[0][..], &(content.len() as u32).to_be_bytes(), content].concat()
    }

    /// An answer as containerd gives it, in frames of a few bytes, one of them padded, with others between them.
    fn answer(content: &[u8]) -> Vec<u8> {
        let mut bytes =
            [framed(SETTINGS, 0, &[]), framed(PING, 0, &[7; 8]), framed(HEADERS, END_HEADERS, &[0x88])]
                .concat();
        let message = message(content);
        let (first, rest) = message.split_at(3);
        bytes.extend(framed(DATA, PADDED, &[&[2][..], first, &[0, 0]].concat()));
        rest.chunks(50).for_each(|part| bytes.extend(framed(DATA, 0, part)));
        bytes.extend(framed(HEADERS, END_HEADERS | END_STREAM, &[0x88]));
        bytes
    }

    fn status(config: &str) -> Vec<u8> {
        let entry = |key: &str, value: &str| [field(1, key.as_bytes()), field(2, value.as_bytes())].concat();
        [field(1, &[0x08, 1]), field(2, &entry("golang", "\"go1.20\"")), field(2, &entry("config", config))]
            .concat()
    }

    #[test]
    fn the_running_configuration_says_whether_podshim_is_loaded() {
        let with =
            r#"{"containerd":{"runtimes":{"podshim":{"runtimeType":"io.containerd.podshim.v2"},"runc":{}}}}"#;
        for (config, wanted) in
            [(with.to_owned(), Loaded::Yes), (with.replace("podshim", "gvisor"), Loaded::No)]
        {
            assert_eq!(asked(answer(&status(&config)), loaded).unwrap(), wanted);
        }
    }

    #[test]
    fn the_version_is_the_third_field() {
        let content =
            [field(1, b"0.1.0"), field(2, b"containerd"), field(3, b"v2.1.4"), field(4, b"v1")].concat();
        assert_eq!(asked(answer(&content), version).unwrap(), "v2.1.4");
    }

    #[test]
    fn an_error_has_no_message() {
        let refused = framed(HEADERS, END_HEADERS | END_STREAM, &[0x88]);
        for answer in [refused, framed(GOAWAY, 0, &[0; 8]), framed(RST_STREAM, 0, &[0; 4])] {
            assert!(matches!(asked(answer, version), Err(CriError::Refused)));
        }
        assert!(matches!(version(Path::new("/nowhere/socket")), Err(CriError::Io(_))));
    }

    /// No beginning of an answer, and no answer with another byte in it, does more harm than an error.
    #[test]
    fn what_is_no_answer_is_an_error() {
        let whole = answer(&status("{}"));
        assert!(matches!(asked(whole.clone(), loaded), Ok(Loaded::No)));
        for length in 0..whole.len() {
            assert!(asked(whole[..length].to_vec(), loaded).is_err(), "{length} bytes");
        }
        for changed in [0, 3, 9, 12, 40, 60] {
            let mut bytes = whole.clone();
            bytes[changed] ^= 0xff;
            let _ = asked(bytes, loaded);
        }
        assert_eq!(fields(&[0x80; 40]).count(), 0);
        assert_eq!(fields(&[0x0a, 0x7f, 1]).count(), 0);
    }
}
