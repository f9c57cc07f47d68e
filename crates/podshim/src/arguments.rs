//! Arguments that several commands take. Each command declares the others beside its code; clap makes the parser, `-h`,
//! the completions and the man pages of these declarations.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueHint};
use manifests::check::CheckContext;
use node_state::entry::Entry;
use node_state::past::HISTORY_ROOT;
use node_state::paths::STATE_ROOT;
use pod_spec::{BoundedDuration, DurationError, Node};

use crate::outcome::CommandError;
use crate::output::Format;
use crate::shims::{self, FindError};
use crate::source;

/// How to show the result.
#[derive(Args)]
pub struct ResultArguments {
    /// For programs: docs/podshim-json.md
    #[arg(long)]
    json: bool,
    /// text, or json: the same as --json
    #[arg(short, long, value_name = "FORMAT", value_enum, default_value_t, hide_possible_values = true)]
    #[arg(hide_default_value = true)]
    output: Format,
}

impl ResultArguments {
    /// How to show the result.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.output }
    }
}

/// Files, or standard input.
#[derive(Args)]
pub struct FileArguments {
    /// "-" is standard input
    #[arg(value_name = "FILE", required = true, value_hint = ValueHint::FilePath)]
    pub files: Vec<String>,
}

/// What a pod's node and its webhooks do to it, which the pod's manifest does not say.
#[derive(Args)]
pub struct ContextArguments {
    /// Take the manifests as a node with this file does: its defaults; what it forbids is an error
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    node_file: Option<String>,
    /// A container that something adds to each pod later, such as istio-proxy: the plan may name it
    #[arg(long, value_name = "NAME")]
    injected: Vec<String>,
}

impl ContextArguments {
    /// Reads the node's file.
    ///
    /// # Errors
    /// It cannot be read, or is wrong.
    pub fn read(&self) -> Result<CheckContext, CommandError> {
        let node = match &self.node_file {
            Some(name) => Node::parse(&source::read(name)?.text)
                .map_err(|error| CommandError::Input(format!("{name}: {error}")))?,
            None => Node::default(),
        };
        Ok(CheckContext { node, injected: self.injected.clone() })
    }

    /// The words that give these arguments to another command.
    pub fn words(&self) -> String {
        let node_file = self.node_file.iter().map(|name| format!("--node-file {name} "));
        node_file.chain(self.injected.iter().map(|name| format!("--injected {name} "))).collect()
    }
}

/// Where the shims are found.
#[derive(Args)]
pub struct NodeArguments {
    /// Where the shims are found
    #[arg(long, value_name = "DIR", default_value = STATE_ROOT)]
    pub run_dir: PathBuf,
}

/// A namespace of Kubernetes.
#[derive(Args)]
pub struct NamespaceArgument {
    /// Only pods of this namespace of Kubernetes
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
}

/// A pod that a shim serves, to end or to change it.
#[derive(Args)]
pub struct ExactPodArgument {
    #[command(flatten)]
    namespace: NamespaceArgument,
    /// Its whole name, namespace/name or id: no prefix
    #[arg(value_name = "POD")]
    pub pod: String,
}

impl ExactPodArgument {
    /// The pod's entry.
    ///
    /// # Errors
    /// As [`shims::find_exactly`].
    pub fn find(&self, node: &NodeArguments) -> Result<Entry, FindError> {
        shims::find_exactly(&node.run_dir, &self.pod, self.namespace.namespace.as_deref())
    }
}

/// A pod that a shim serves, to look at it.
#[derive(Args)]
pub struct PodArgument {
    /// Its namespace.
    #[command(flatten)]
    pub namespace: NamespaceArgument,
    /// Its name, namespace/name or id, or a unique prefix of one
    #[arg(value_name = "POD")]
    pub pod: String,
}

impl PodArgument {
    /// The pod's entry.
    ///
    /// # Errors
    /// As [`shims::find`].
    pub fn find(&self, node: &NodeArguments) -> Result<Entry, FindError> {
        shims::find(&node.run_dir, &self.pod, self.namespace.namespace.as_deref())
    }
}

/// Where the records of ended pods are.
#[derive(Args)]
pub struct HistoryArguments {
    /// Where the records of ended pods are
    #[arg(long, value_name = "DIR", default_value = HISTORY_ROOT)]
    pub history_dir: PathBuf,
}

/// Parses a duration in which a bare number is seconds, as with crictl and kubectl.
///
/// # Errors
/// It is neither.
pub fn duration_or_seconds(text: &str) -> Result<Duration, DurationError> {
    match text.parse() {
        Ok(seconds) => Ok(BoundedDuration::of_seconds(seconds).get()),
        Err(_) => pod_spec::parse_duration(text),
    }
}

/// Parses an address on which names of pods and containers stay on the node: a reader elsewhere needs a proxy that
/// authenticates it.
///
/// # Errors
/// It is no address, or not one of the loopback.
pub fn loopback_address(text: &str) -> Result<SocketAddr, &'static str> {
    let address: SocketAddr = text.parse().map_err(|_| "not an ADDRESS:PORT")?;
    if address.ip().is_loopback() { Ok(address) } else { Err("only a loopback address is allowed") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N19: one way to give a time, for every option that takes one.
    #[test]
    fn found_n19_a_bare_number_is_seconds() {
        for (text, seconds) in [("90", 90), ("0", 0), ("90s", 90), ("5m", 300)] {
            assert_eq!(duration_or_seconds(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        assert!(duration_or_seconds("soon").is_err());
        assert!(duration_or_seconds("-1").is_err());
    }
}
