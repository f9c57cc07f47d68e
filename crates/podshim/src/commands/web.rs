//! `podshim web`: serves a page with the node's pods and their timelines, as they live, on a loopback address.

use std::net::SocketAddr;

use clap::Args;

use crate::arguments::{HistoryArguments, NodeArguments, loopback_address};
use crate::outcome::{CommandError, Outcome};
use crate::web::{self, Site};

/// What `-h` says before the arguments.
const ABOUT: &str = "\
Serves a page for a browser: the pods of this node with timelines that grow as they live, why one is held, the plan as a graph, all
that happened to a pod, and the pods that have ended. It only shows, and asks no shim while no page is open. Every user of this node
can connect to a loopback address, and every pod with hostNetwork: so the page has no commands and nothing that a program writes. From
elsewhere: ssh -L, or kubectl port-forward.";
const EXIT_CODES: &str = "\
Exit codes: 0; 1 the address cannot be used; 2 wrong arguments.";

/// Arguments of `podshim web`.
#[derive(Args)]
#[command(before_help = ABOUT, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Where, on a loopback address only, until you end it
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9754", value_parser = loopback_address)]
    listen: SocketAddr,
    /// What the page calls this node; without it NODE_NAME, or the name of the host
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    #[command(flatten)]
    run: NodeArguments,
    #[command(flatten)]
    history: HistoryArguments,
}

/// Runs the command.
///
/// # Errors
/// An address that cannot be used.
pub fn run(arguments: &Arguments) -> Result<Outcome, CommandError> {
    let node = arguments.node.clone().or_else(|| std::env::var("NODE_NAME").ok()).or_else(host_name);
    let site = Site {
        run_dir: arguments.run.run_dir.clone(),
        history_dir: arguments.history.history_dir.clone(),
        node: control_api::text::printable(&node.unwrap_or_default()),
    };
    web::run(arguments.listen, site)?;
    Ok(Outcome::Success)
}

fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}
