//! The binary `podshim-agent`: reads its arguments and runs the agent until SIGTERM.

#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use kube::{Client, Config};
use lexopt::{Arg, Parser, ValueExt};
use node_state::paths::{NODE_FILE, STATE_ROOT};
use pod_spec::Node as NodeFile;
use podshim_agent::agent::{self, Settings};
use tokio::signal::unix::{SignalKind, signal};

const HELP: &str = "\
usage: podshim-agent [--node NAME] [OPTIONS]

Writes what podshim knows of this node's pods into Kubernetes: events of held containers, failed gates, restarts in place and
stops; the condition podshim.io/Started of pods whose readinessGates name it; contradictions between a pod and its plan. It
changes nothing on the node, and podshim works without it as ever. docs/agent.md has what it writes and what it may.

  --node NAME       the node's name in Kubernetes (without it the variable NODE_NAME)
  --run-dir DIR     the directory of the pods' shims (/run/podshim)
  --node-file FILE  the settings of the node's administrator (/etc/podshim/config.toml)
  --api-server URL  the API server (without it that of the pod's service account, or of KUBECONFIG)
  -h, --help        this help
  --version         the version

Exit codes: 0 after SIGTERM or SIGINT, 1 it cannot go on, 2 wrong arguments.";

/// How long an answer, or the next piece of a watch, may take.
const READ_TIMEOUT: Duration = Duration::from_secs(300);

enum Command {
    Run(Box<Arguments>),
    Print(String),
}

#[derive(Default)]
struct Arguments {
    node: Option<String>,
    run_directory: Option<PathBuf>,
    node_file: Option<PathBuf>,
    api_server: Option<String>,
}

fn main() -> ExitCode {
    let arguments = match read(std::env::args_os().skip(1)) {
        Ok(Command::Run(arguments)) => arguments,
        Ok(Command::Print(text)) => {
            println!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("podshim-agent: {error} (see -h)");
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error),
    };
    match runtime.block_on(run(*arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&*error),
    }
}

fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("podshim-agent: {error}");
    ExitCode::FAILURE
}

fn read(words: impl Iterator<Item = OsString> + 'static) -> Result<Command, lexopt::Error> {
    let mut arguments = Arguments::default();
    let mut parser = Parser::from_args(words);
    while let Some(argument) = parser.next()? {
        match argument {
            Arg::Long("node") => arguments.node = Some(parser.value()?.string()?),
            Arg::Long("run-dir") => arguments.run_directory = Some(parser.value()?.into()),
            Arg::Long("node-file") => arguments.node_file = Some(parser.value()?.into()),
            Arg::Long("api-server") => arguments.api_server = Some(parser.value()?.string()?),
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Print(HELP.to_owned())),
            Arg::Long("version") => {
                return Ok(Command::Print(format!("podshim-agent {}", control_api::release())));
            }
            other => return Err(other.unexpected()),
        }
    }
    arguments.node = arguments.node.or_else(|| std::env::var("NODE_NAME").ok()).filter(|it| !it.is_empty());
    if arguments.node.is_none() {
        return Err("--node or NODE_NAME is missing: the node's name".into());
    }
    Ok(Command::Run(Box::new(arguments)))
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let mut config = match arguments.api_server {
        Some(url) => Config::new(url.parse()?),
        None => Config::infer().await?,
    };
    // `cluster` owns what is sent again: by then another state may be the newest.
    config.default_retry = false;
    // An API server ends a watch of kube's after 290 s. A connection that was cut without a word is found by it.
    config.read_timeout = Some(READ_TIMEOUT);
    let settings = Settings {
        node: arguments.node.unwrap_or_default(),
        run_directory: arguments.run_directory.unwrap_or_else(|| STATE_ROOT.into()),
        node_file: node_file(&arguments.node_file.unwrap_or_else(|| NODE_FILE.into()))?,
    };
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        ended = agent::run(settings, Client::try_from(config)?) => Ok(ended?),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    }
}

/// Without the file a node has the defaults.
fn node_file(path: &Path) -> Result<NodeFile, Box<dyn std::error::Error>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(NodeFile::parse(&text).map_err(|error| format!("{}: {error}", path.display()))?),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(NodeFile::default()),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}
