//! `http:` probes: one GET inside the container's network namespace (rule U2).
//!
//! Owns the request and the rule for a valid answer. Reads little and follows no redirect: the other side is the
//! container's program, which is not trusted.

use std::net::SocketAddr;

use super::deadline::{Connection, Failed};

/// The most that is read of an answer. A usual answer fits: unread bytes would turn the close into a reset, which
/// servers log.
const ANSWER_LONGEST: usize = 4096;

pub(super) fn check(connection: Connection, address: SocketAddr, path: &str) -> Result<(), Failed> {
    match status(connection, address, path)? {
        Some(200..=399) => Ok(()),
        Some(status) => Err(Failed::Because(status.to_string())),
        None => Err(Failed::Because("no HTTP answer".to_owned())),
    }
}

fn status(mut connection: Connection, address: SocketAddr, path: &str) -> Result<Option<u16>, Failed> {
    // One write: some servers answer a request that comes in pieces with 400.
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: podshim\r\nAccept: */*\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes())?;
    let mut answer = vec![0; ANSWER_LONGEST];
    let mut length = 0;
    while length < answer.len() && !answer[..length].contains(&b'\n') {
        match connection.read(&mut answer[length..])? {
            0 => break,
            more => length += more,
        }
    }
    Ok(status_of(&answer[..length]))
}

/// The status of `HTTP/1.1 200 OK`; `None` if the answer does not start like that.
pub(crate) fn status_of(answer: &[u8]) -> Option<u16> {
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'0'..=b'9', b' ', status @ ..] = answer else {
        return None;
    };
    let (digits, b' ' | b'\r' | b'\n') = (status.get(..3)?, status.get(3)?) else { return None };
    // A sign is not a digit.
    let digits = digits.iter().all(u8::is_ascii_digit).then_some(digits)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_line_is_an_answer() {
        for (answer, expected) in [
            (&b"HTTP/1.1 200 OK\r\nServer: x\r\n"[..], Some(200)),
            (b"HTTP/1.0 404 \xff\xfe\r\n", Some(404)),
            (b"HTTP/1.1 503\r\n", Some(503)),
            (b"HTTP/1.1 302\n", Some(302)),
            (b"", None),
            (b"HTTP/1.1 200", None),
            (b"HTTP/1.1 2000 OK\r\n", None),
            (b"HTTP/1.1 +20 OK\r\n", None),
            (b"HTTP/1.1  200 OK\r\n", None),
            (b"HTTP/2 200\r\n", None),
            (b"SSH-2.0-OpenSSH\r\n", None),
        ] {
            assert_eq!(status_of(answer), expected, "{}", answer.escape_ascii());
        }
    }
}
