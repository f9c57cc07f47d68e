//! `podshim metrics`: prints metrics of the node's pods for Prometheus, or serves them over HTTP on a loopback address.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use crate::arguments::{CommandError, Outcome, Parsed, pod_arguments};
use crate::metrics::exposition;
use crate::output::{Format, print};
use crate::pods::PodReport;
use crate::shims::{self, FindError};

const NAME: &str = "metrics";
/// The text of `-h`.
pub const HELP: &str = "\
usage: podshim metrics [--listen ADDRESS:PORT] [--run-dir DIR]

Writes metrics of all pods of this node in Prometheus' text format: pods by state, stops under way and what is left of their
time, the processor time that podshim spent for each pod outside of its containers' cgroups (the shim, exec probes, hooks,
restarts, requests), and for each container its role, state, restarts and last real exit code.

  --listen ADDRESS:PORT  serve them at /metrics instead, on a loopback address only (127.0.0.1:9753), until you end it
  --run-dir DIR          where the shims are found (/run/podshim)
  -h                     this help

Exit codes: 0; 1 the directory cannot be read, or the address cannot be used; 2 wrong arguments.
";

/// How long one read or write of a scraper's connection may take, and how large its request may be.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);
const REQUEST_BYTES: u64 = 8192;
const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Runs the command.
///
/// # Errors
/// A wrong call, a directory that cannot be read, an address that cannot be used.
pub fn run(arguments: Vec<OsString>) -> Result<Outcome, CommandError> {
    let arguments = match pod_arguments(NAME, arguments, &[], &[], &["listen"])? {
        Parsed::Help => return Ok(print(HELP).map(|()| Outcome::Success)?),
        Parsed::Run(arguments) => arguments,
    };
    if arguments.format == Format::Json {
        return Err(CommandError::usage(NAME, "metrics have a format of their own: no --json"));
    }
    match arguments.own.last() {
        None => print(&collect(&arguments.root)?)?,
        Some((_, address)) => serve(address, &arguments.root)?,
    }
    Ok(Outcome::Success)
}

fn collect(root: &Path) -> Result<String, FindError> {
    let pods: Vec<_> = shims::all(root)?.into_iter().map(PodReport::of).collect();
    Ok(exposition(&pods))
}

/// Serves one scraper after another, until the process ends.
fn serve(address: &str, root: &Path) -> Result<(), CommandError> {
    let parsed: SocketAddr = address
        .parse()
        .map_err(|_| CommandError::usage(NAME, format!("--listen {address:?} is no ADDRESS:PORT")))?;
    // Names of pods and containers stay on the node: a scraper elsewhere needs a proxy that authenticates it.
    if !parsed.ip().is_loopback() {
        return Err(CommandError::usage(
            NAME,
            format!("--listen {address}: only a loopback address is served"),
        ));
    }
    let unusable = |error: io::Error| CommandError::Input(format!("cannot listen on {address}: {error}"));
    let listener = TcpListener::bind(parsed).map_err(unusable)?;
    eprintln!("podshim: metrics on http://{}/metrics", listener.local_addr().map_err(unusable)?);
    for stream in listener.incoming() {
        match stream {
            // Ignore a scraper that goes away or sends nothing: it must not end the server.
            Ok(stream) => drop(answer(stream, root)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(unusable(error)),
        }
    }
    Ok(())
}

fn answer(mut stream: TcpStream, root: &Path) -> io::Result<()> {
    stream.set_read_timeout(Some(REQUEST_LIMIT))?;
    stream.set_write_timeout(Some(REQUEST_LIMIT))?;
    let request = head(&mut stream)?;
    let (status, kind, body) = match request.split_whitespace().collect::<Vec<_>>().as_slice() {
        ["GET", path, ..] if path.split('?').next() == Some("/metrics") => match collect(root) {
            Ok(text) => ("200 OK", TEXT_FORMAT, text),
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

/// Reads the head of a request, and returns its first line.
fn head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut byte = [0];
    let mut limited = stream.take(REQUEST_BYTES);
    while !head.ends_with(b"\r\n\r\n") && limited.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    Ok(String::from_utf8_lossy(line).into_owned())
}
