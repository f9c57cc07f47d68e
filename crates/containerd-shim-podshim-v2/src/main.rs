//! The shim binary: containerd runs it to start, describe and clean up after a pod's shim, and it is the shim itself.
//!
//! Owns the process's interface: argument words in, bytes and exit codes out. Nothing below `main` prints. containerd
//! reads stdout and stderr of `start` as one text (trap 1), so a success writes nothing to stderr.

mod allocator;
mod args;
#[cfg(panic = "abort")]
mod backtrace;
mod delete;
mod history;
mod info;
mod lock;
mod logging;
mod paths;
mod placement;
mod server;
mod server_process;
mod start;
mod stdin;

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Context;
use containerd_shim::Flags;

use crate::allocator::ShimAllocator;
use crate::args::{Action, USAGE};

#[global_allocator]
static ALLOCATOR: ShimAllocator = ShimAllocator;

fn main() -> ExitCode {
    allocator::hold_still_for_forks();
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // containerd shows this text to users unchanged.
            eprintln!("{}", text(&error));
            ExitCode::FAILURE
        }
    }
}

/// An error and its causes, each once: the text of many an error ends with that of its cause.
fn text(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        outer if outer.ends_with(&cause) => text,
        outer => format!("{outer}: {cause}"),
    })
}

fn run() -> anyhow::Result<()> {
    let words: Vec<_> = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let (action, flags) = args::parse(&words)?;
    match action {
        Action::Help => answer(USAGE.as_bytes()),
        Action::Version => answer(version().as_bytes()),
        Action::Info => answer(&info::run()?),
        Action::Start => start(&flags),
        Action::Delete => delete(&flags),
        Action::Serve => Ok(server::run(&flags)?),
        Action::WriteHistory => Ok(history::write()?),
    }
}

fn start(flags: &Flags) -> anyhow::Result<()> {
    let started = start::run(flags)?;
    let answered = answer(started.address.to_string().as_bytes());
    if answered.is_err()
        && let Some(server) = started.server
    {
        // containerd did not get the address of this shim, so it would never ask it to end.
        server.take_back();
    }
    answered
}

fn delete(flags: &Flags) -> anyhow::Result<()> {
    let deleted = delete::run(flags)?;
    // For `delete`, containerd logs stderr and reads only stdout.
    for problem in &deleted.problems {
        eprintln!("{problem}");
    }
    answer(&deleted.answer)
}

fn version() -> String {
    let revision = info::REVISION.map(|commit| format!("  Revision: {commit}\n")).unwrap_or_default();
    format!(
        "containerd-shim-podshim-v2:\n  Runtime: {}\n  Version: {}\n{revision}",
        info::RUNTIME_NAME,
        info::VERSION
    )
}

fn answer(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes).and_then(|()| stdout.flush()).context("cannot write the answer to stdout")
}
