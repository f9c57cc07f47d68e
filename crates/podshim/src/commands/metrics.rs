//! `podshim metrics`: prints metrics of the node's pods for Prometheus, or serves them over HTTP on a loopback address.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::arguments::{NodeArguments, loopback_address};
use crate::outcome::{CommandError, Outcome};
use clap::Args;
use node_setup::signals::{Signals, WaitResult};
use node_state::totals;

use crate::metrics::{exposition, older_format};
use crate::output::print;
use crate::pods::PodReport;
use crate::shims::{self, FindError};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Writes metrics of all pods of this node in OpenMetrics, which Prometheus reads: pods by state, stops under way and what is left of
their time, the processor time that podshim spent for each pod outside of its containers' cgroups (the shim, exec probes, hooks,
restarts, requests), and for each container its role, state, restarts, wait for gates and last real exit code. And what was counted
since the node was booted, also of pods that have ended: restarts, gate waits and time-outs, forced kills, stops and how long they
took, calls of the OCI runtime, dropped events. docs/metrics.md lists all.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 the directory cannot be read, or the address cannot be used; 2 wrong arguments.";

/// Arguments of `podshim metrics`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Serve them at /metrics instead, on a loopback address only (such as 127.0.0.1:9753), until you end it
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = loopback_address)]
    listen: Option<SocketAddr>,
    #[command(flatten)]
    node: NodeArguments,
}

/// How long a scraper's whole request may take, from its connection to the end of the answer, and how large it may be. The
/// next scraper waits as long.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);
const REQUEST_BYTES: usize = 8192;
/// A scraper takes the type for its parser's choice.
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Runs the command.
///
/// # Errors
/// A directory that cannot be read, an address that cannot be used.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    match arguments.listen {
        None => print(&collect(&arguments.node.run_dir)?)?,
        Some(address) => serve(address, &arguments.node.run_dir)?,
    }
    Ok(Outcome::Success)
}

fn collect(root: &Path) -> Result<String, FindError> {
    let pods: Vec<_> = shims::all(root)?.into_iter().map(PodReport::of).collect();
    // Read from the pods' entries: a counter must not become less because a shim is dead or silent.
    let counts = totals::all(root).map_err(|source| FindError::List { root: root.to_owned(), source })?;
    Ok(exposition(&pods, &counts))
}

/// Serves one scraper after another, until SIGTERM or SIGINT.
fn serve(address: SocketAddr, root: &Path) -> Result<(), CommandError> {
    let unusable = |error: io::Error| CommandError::Input(format!("cannot listen on {address}: {error}"));
    let signals = Signals::take().map_err(unusable)?;
    let listener = TcpListener::bind(address).map_err(unusable)?;
    eprintln!("podshim: metrics on http://{}/metrics", listener.local_addr().map_err(unusable)?);
    // A scraper that is gone by now must not make it wait for the next one.
    listener.set_nonblocking(true).map_err(unusable)?;
    while signals.wait_with(listener.as_fd()).map_err(unusable)? == WaitResult::ByTime {
        match listener.accept() {
            // Ignore a scraper that goes away or sends nothing: it must not end the server.
            Ok((stream, _)) => drop(answer(stream, root)),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::WouldBlock) => {}
            Err(error) => return Err(unusable(error)),
        }
    }
    Ok(())
}

/// A scraper's connection, whose reads and writes together end at one moment.
struct Connection {
    stream: TcpStream,
    until: Instant,
}

#[allow(clippy::disallowed_methods, reason = "a command that waits; no decision about a pod is made here")]
impl Connection {
    fn new(stream: TcpStream) -> Self {
        Self { stream, until: Instant::now() + REQUEST_LIMIT }
    }

    /// What is left for the next read or write.
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
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

fn answer(stream: TcpStream, root: &Path) -> io::Result<()> {
    let mut stream = Connection::new(stream);
    let head = head(&mut stream)?;
    let request = head.lines().next().unwrap_or_default();
    let (status, kind, body) = match request.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["GET", path, ..] if path.split('?').next() == Some("/metrics") => match collect(root) {
            Ok(text) if accepts_open_metrics(&head) => ("200 OK", OPEN_METRICS, text),
            Ok(text) => ("200 OK", TEXT_FORMAT, older_format(&text)),
            Err(error) => ("500 Internal Server Error", "text/plain", format!("{error}\n")),
        },
        ["GET", ..] => ("404 Not Found", "text/plain", "metrics are at /metrics\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "only GET\n".to_owned()),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

/// Whether the scraper names OpenMetrics among the types that it takes. Each that does prefers it.
fn accepts_open_metrics(head: &str) -> bool {
    head.lines().skip(1).filter_map(|line| line.split_once(':')).any(|(name, types)| {
        name.eq_ignore_ascii_case("accept") && types.contains("application/openmetrics-text")
    })
}

/// Reads the head of a request.
fn head(connection: &mut Connection) -> io::Result<String> {
    let (mut head, mut chunk) = (Vec::new(), [0; 1024]);
    while head.len() < REQUEST_BYTES && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let most = chunk.len().min(REQUEST_BYTES - head.len());
        match connection.read(&mut chunk[..most])? {
            0 => break,
            length => head.extend_from_slice(&chunk[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}
