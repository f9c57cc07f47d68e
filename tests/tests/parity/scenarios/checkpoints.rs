//! Checkpoint and restore: with a criu that fails, and with the machine's own, which may succeed or fail.

use anyhow::Result;
use containerd_shim_protos::shim::oci::{CheckpointOptions, Options};
use containerd_shim_protos::types::task::Status;
use protobuf::Message;
use protobuf::well_known_types::any::Any;

use crate::run::{Exec, Run};
use e2e::direct::bundle::Bundle;

/// USR1.
const ASKED: u32 = 10;

fn options(type_url: &str, value: Vec<u8>) -> Option<Any> {
    Some(Any { type_url: type_url.to_owned(), value, ..Any::default() })
}

/// Checkpoints that cannot be made: by a criu that fails, in the wrong state, to nowhere.
pub async fn checkpoints(run: &mut Run) -> Result<()> {
    run.executable_found_first("criu", "exit 1")?;
    run.bundle("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.checkpoint("c", "/no/such/image", None).await;
    run.create("c").await;
    run.checkpoint("c", "/no/such/image", None).await;
    run.start("c").await;
    run.line("c").await;
    let image = run.directory().join("image").to_string_lossy().into_owned();
    for options in [
        None,
        options("acme.Options", Vec::new()),
        options("containerd.runc.v1.CheckpointOptions", Vec::new()),
    ] {
        run.checkpoint("c", &image, options).await;
        run.state("c").await;
    }
    run.files("c");
    run.kill("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.checkpoint("c", &image, None).await;
    Ok(())
}

/// A program goes on from its checkpoint in another container, and then in a third. Where the machine's criu cannot do
/// that, both shims report the same error.
pub async fn a_restore(run: &mut Run) -> Result<()> {
    // A program that was started again, and not restored, would print "ready" once more.
    let script = "n=7; trap 'n=$((n + 1)); echo $n' USR1; trap 'exit 4' TERM; echo ready; while :; do sleep 0.05; done";
    let image = |run: &Run, name: &str| run.directory().join(name).to_string_lossy().into_owned();
    let (first, second) = (image(run, "first"), image(run, "second"));
    run.container("one", Bundle::shell(script)).await?;
    run.line("one").await;
    run.kill("one", ASKED).await;
    run.line("one").await;
    run.checkpoint("one", &first, None).await;
    run.state("one").await;
    run.kill("one", ASKED).await;
    run.line("one").await;
    run.kill("one", 9).await;
    run.wait("one").await;
    run.event("exit", "one").await;
    run.delete("one").await;

    // Without it podshim's work directory is removed after the work.
    let with_work_path = Options { criu_work_path: image(run, "work"), ..Options::default() };
    run.bundle("two", Bundle::shell(script).options(&with_work_path)?).await?;
    run.create_with("two", |request| request.checkpoint = first).await;
    run.state("two").await;
    run.pids("two").await;
    run.start("two").await;
    let state = run.state("two").await;
    if state.is_none_or(|state| state.status != Status::RUNNING.into()) {
        run.delete("two").await;
        return Ok(());
    }
    run.kill("two", ASKED).await;
    run.line("two").await;
    run.exec_to_end("two/e", Exec::shell("echo in it")).await?;
    let exit = CheckpointOptions { exit: true, ..CheckpointOptions::default() }.write_to_bytes()?;
    run.checkpoint("two", &second, options("containerd.runc.v1.CheckpointOptions", exit)).await;
    run.wait("two").await;
    run.event("exit", "two").await;
    run.delete("two").await;

    run.bundle("three", Bundle::shell(script).options(&with_work_path)?).await?;
    run.create_with("three", |request| request.checkpoint = second).await;
    run.start("three").await;
    run.kill("three", ASKED).await;
    run.line("three").await;
    run.pause("three").await;
    run.resume("three").await;
    run.kill("three", 15).await;
    run.wait("three").await;
    run.event("exit", "three").await;
    run.delete("three").await;
    Ok(())
}
