//! `podshim metrics`: prints metrics of the node's pods for Prometheus, or serves them over HTTP on a loopback address.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use clap::Args;
use node_state::totals;

use crate::arguments::{NodeArguments, loopback_address};
use crate::http::{Connection, PLAIN, Request, Server};
use crate::metrics::{exposition, older_format};
use crate::outcome::{CommandError, Outcome};
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
        Some(address) => {
            let server = Server::new(address)?;
            eprintln!("podshim: metrics on http://{}/metrics", server.address());
            // One scraper after another. Ignore one that goes away or sends nothing: it must not end the server.
            server.run(|connection| drop(answer(connection, &arguments.node.run_dir)))?;
        }
    }
    Ok(Outcome::Success)
}

fn collect(root: &Path) -> Result<String, FindError> {
    let pods: Vec<_> = shims::all(root)?.into_iter().map(PodReport::of).collect();
    // Read from the pods' entries: a counter must not become less because a shim is dead or silent.
    let counts = totals::all(root).map_err(|source| FindError::List { root: root.to_owned(), source })?;
    Ok(exposition(&pods, &counts))
}

fn answer(mut connection: Connection, root: &Path) -> io::Result<()> {
    let request = Request::read(&mut connection)?;
    let (status, kind, body) = match request.path() {
        Some("/metrics") => match collect(root) {
            Ok(text) if accepts_open_metrics(&request) => ("200 OK", OPEN_METRICS, text),
            Ok(text) => ("200 OK", TEXT_FORMAT, older_format(&text)),
            Err(error) => ("500 Internal Server Error", PLAIN, format!("{error}\n")),
        },
        Some(_) => ("404 Not Found", PLAIN, "metrics are at /metrics\n".to_owned()),
        None => ("405 Method Not Allowed", PLAIN, "only GET\n".to_owned()),
    };
    connection.answer(status, kind, "", &body)
}

/// Whether the scraper names OpenMetrics among the types that it takes. Each that does prefers it.
fn accepts_open_metrics(request: &Request) -> bool {
    request.header("accept").any(|types| types.contains("application/openmetrics-text"))
}
