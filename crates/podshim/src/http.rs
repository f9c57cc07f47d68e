//! A server of HTTP on a loopback address, for readers of this node: one request on a connection, bounded in time and size.
//!
//! Owns the listener, the reading of a request, and the form of an answer. Decides nothing of what is answered: the commands do.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use node_setup::signals::{Signals, WaitResult};

use crate::outcome::CommandError;

/// How long a reader's whole request may take, from its connection to the end of the answer, and how large it may be.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);
const REQUEST_BYTES: usize = 8192;
/// Of an answer that is plain text.
pub const PLAIN: &str = "text/plain; charset=utf-8";

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    signals: Signals,
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Listens at that address, and takes SIGTERM and SIGINT: threads that begin before would get them.
    ///
    /// # Errors
    /// The address cannot be used.
    pub fn new(address: SocketAddr) -> Result<Self, CommandError> {
        let listen = || {
            let (signals, listener) = (Signals::take()?, TcpListener::bind(address)?);
            // A reader that is gone by now must not make it wait for the next one.
            listener.set_nonblocking(true)?;
            Ok(Self { signals, address: listener.local_addr()?, listener })
        };
        listen().map_err(|error| unusable(address, &error))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts one connection after another, until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The address cannot be used any more.
    pub fn run(&self, mut accepted: impl FnMut(Connection)) -> Result<(), CommandError> {
        let failed = |error: io::Error| unusable(self.address, &error);
        while self.signals.wait_with(self.listener.as_fd()).map_err(failed)? == WaitResult::ByTime {
            match self.listener.accept() {
                Ok((stream, _)) => accepted(Connection::new(stream)),
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::WouldBlock
                    ) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(())
    }
}

fn unusable(address: SocketAddr, error: &io::Error) -> CommandError {
    CommandError::Input(format!("cannot listen on {address}: {error}"))
}

/// A reader's connection, whose reads and writes together end at one moment.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    until: Instant,
}

#[allow(clippy::disallowed_methods, reason = "a command that waits; no decision about a pod is made here")]
impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, until: Instant::now() + REQUEST_LIMIT }
    }

    /// Gives the reader the same time once more: for an answer that goes on.
    pub fn renew(&mut self) {
        self.until = Instant::now() + REQUEST_LIMIT;
    }

    /// What is left for the next read or write.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }

    /// Writes a whole answer. `headers` are lines of their own, each with its end.
    ///
    /// # Errors
    /// The reader is gone, or too slow.
    pub fn answer(&mut self, status: &str, kind: &str, headers: &str, body: &str) -> io::Result<()> {
        let length = body.len();
        write!(
            self,
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n{headers}\r\n{body}"
        )
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for Connection {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The head of a request.
#[derive(Debug)]
pub struct Request {
    head: String,
}

impl Request {
    /// Reads it.
    ///
    /// # Errors
    /// The reader is gone, or too slow.
    pub fn read(connection: &mut Connection) -> io::Result<Self> {
        let (mut head, mut chunk) = (Vec::new(), [0; 1024]);
        while head.len() < REQUEST_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
            let most = chunk.len().min(REQUEST_BYTES - head.len());
            match connection.read(&mut chunk[..most])? {
                0 => break,
                length => head.extend_from_slice(&chunk[..length]),
            }
        }
        Ok(Self { head: String::from_utf8_lossy(&head).into_owned() })
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.head.lines().next().unwrap_or_default().split_whitespace()
    }

    /// What is asked for, if it is asked for by GET: the path without its query.
    pub fn path(&self) -> Option<&str> {
        let mut words = self.words();
        (words.next() == Some("GET")).then(|| words.next()?.split('?').next())?
    }

    /// A value of the query, as it was written.
    pub fn value(&self, key: &str) -> Option<&str> {
        let (_, query) = self.words().nth(1)?.split_once('?')?;
        query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('='))
    }

    /// The values of a header, one for each line that has it.
    pub fn header<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

#[cfg(test)]
impl Request {
    /// A request with that head.
    pub fn of(head: &str) -> Self {
        Self { head: head.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::Request;

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let request = Request::of("GET /pod?id=abc&x=1 HTTP/1.1\r\nHOST: a:1\r\nhost:b\r\n\r\n");
        assert_eq!(
            (request.path(), request.value("id"), request.value("i")),
            (Some("/pod"), Some("abc"), None)
        );
        assert_eq!(request.header("Host").collect::<Vec<_>>(), ["a:1", "b"]);
        assert_eq!(Request::of("POST / HTTP/1.1\r\n\r\n").path(), None);
        assert_eq!(Request::of("").path(), None);
    }
}
