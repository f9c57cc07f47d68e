//! The head's side of streams against real fifos, pipes and a hand; the test plays containerd and a shell plays the container.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::Command;

use nix::fcntl::{SpliceFFlags, splice};
use processes::reaper::Child;
use test_support::{make_fifo, open_reader, read_available, read_to_end, run, until, within};

use super::*;

mod absent_page;
mod both_ends;
mod logging;
mod stuck;

fn output_to(path: &str) -> StdioPaths {
    StdioPaths { stdout: path.to_owned(), ..StdioPaths::default() }
}

async fn open(paths: &StdioPaths) -> Result<Streams, StdioError> {
    open_on(&Hands::new(Vec::new()), paths).await
}

async fn open_on(hands: &Hands, paths: &StdioPaths) -> Result<Streams, StdioError> {
    open_of(hands, Whose::Container(&paths.stdout), paths).await
}

async fn open_of(hands: &Hands, whose: Whose<'_>, paths: &StdioPaths) -> Result<Streams, StdioError> {
    Streams::open(hands, whose, paths, StreamOwner::default()).await
}

fn shell(stdio: crate::stdio::ChildStdio, script: &str) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]).stdin(stdio.stdin).stdout(stdio.stdout).stderr(stdio.stderr);
    command
}

/// Spawns a further incarnation.
async fn spawn(reaper: &Reaper, streams: &Streams, script: &str) -> Child {
    let Attempt { child, held_back } = streams.attempt().ready().await.unwrap();
    let child = reaper.spawn(&mut shell(child, script)).unwrap();
    streams.accept(held_back);
    child
}
