//! An OCI runtime that fails at each command that podshim calls and in every way (`Fault`): the user gets the reason,
//! nothing is left behind, no other container is affected, and the next try works.

use anyhow::{Context, Result, ensure};
use e2e::ctr::Output;
use e2e::durations::{SOON, pace, seconds};
use e2e::{Containerd, Fault, FaultyRuntime, Task, wait};

use crate::support::Group;

fn ensure_reported(output: &Output, command: &str, fault: Fault) -> Result<()> {
    ensure!(output.exit_code == Some(1), "{fault:?}: {output:?}");
    let expected = format!("OCI runtime {command} ");
    ensure!(
        output.stderr.contains(&expected) && output.stderr.contains(fault.words()),
        "{fault:?} is not reported: {output:?}"
    );
    Ok(())
}

/// Waits until the container has no process but its first one.
async fn wait_alone(task: &Task<'_>) -> Result<()> {
    wait::until("its first process to be alone", SOON, async || {
        let list = task.task(&["ps"]).await?;
        Ok((list.stdout.lines().count() == 2).then_some(()))
    })
    .await
}

async fn ensure_usable(task: &Task<'_>) -> Result<()> {
    let output = task.exec(&[], &["true"]).await?;
    ensure!(output.exit_code == Some(0), "{}: {output:?}", task.id());
    Ok(())
}

#[tokio::test]
async fn a_create_that_goes_wrong_leaves_nothing_and_can_be_tried_again() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = Group::new(&node, "create").await?;
    for fault in Fault::QUICK_IN_MAKING {
        group.runtime.break_command("create", fault)?;
        let (task, output) = group.attempt("create").await?;
        ensure_reported(&output, "create", fault)?;
        wait::until(&format!("nothing to be left after {fault:?}"), SOON, async || {
            Ok(task.leftovers()?.is_empty().then_some(()))
        })
        .await
        .with_context(|| format!("{:#?}", task.leftovers()))?;
        group.ensure_untouched().await?;
        group.runtime.mend("create")?;
        // The same container again, with the same id, cgroup and bundle.
        let output = task.task(&["start", "--detach", "--log-uri", "file:///dev/null"]).await?;
        ensure!(output.exit_code == Some(0), "after {fault:?}: {output:?}");
        task.remove().await?;
    }
    group.remove().await
}

/// A program whose start failed must not run: no caller would know of it or wait for it.
#[tokio::test]
async fn a_start_that_goes_wrong_leaves_no_program_running() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = Group::new(&node, "start").await?;
    for fault in Fault::QUICK {
        group.runtime.break_command("start", fault)?;
        let (task, output) = group.attempt("start").await?;
        ensure_reported(&output, "start", fault)?;
        // As with containerd's own shim, the task still exists until its caller deletes it.
        task.wait_status(if fault.works() { "STOPPED" } else { "CREATED" }).await?;
        group.ensure_untouched().await?;
        group.runtime.mend("start")?;
        task.remove().await?;
    }
    let metrics = node.ctr().output(&["--run", "podshim", "metrics"]).await?.stdout;
    let counter = r#"podshim_container_start_failures_total{namespace="",role="passthrough"} "#;
    let counted = metrics.lines().find_map(|line| line.strip_prefix(counter)).context("not counted")?;
    ensure!(counted.parse::<usize>()? >= Fault::QUICK.len(), "{metrics}");
    group.remove().await
}

#[tokio::test]
async fn an_exec_that_goes_wrong_leaves_no_process() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = Group::new(&node, "exec").await?;
    let task = group.run("exec").await?;
    for fault in Fault::QUICK_IN_MAKING {
        group.runtime.break_command("exec", fault)?;
        let output = task.exec(&[], &["sleep", "600"]).await?;
        ensure_reported(&output, "exec", fault)?;
        wait_alone(&task).await.with_context(|| format!("after {fault:?}"))?;
        group.runtime.mend("exec")?;
        ensure_usable(&task).await?;
    }
    task.remove().await?;
    group.remove().await
}

#[tokio::test]
async fn a_pause_that_goes_wrong_leaves_everybody_running() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = Group::new(&node, "pause").await?;
    let task = group.run("pause").await?;
    for fault in Fault::QUICK {
        group.runtime.break_command("pause", fault)?;
        let output = task.task(&["pause"]).await?;
        ensure_reported(&output, "pause", fault)?;
        task.wait_status("RUNNING").await?;
        group.runtime.mend("pause")?;
        ensure_usable(&task).await?;
    }
    task.remove().await?;
    group.remove().await
}

/// K17: without a resume a frozen container could not even be killed.
#[tokio::test]
async fn k17_a_resume_works_whatever_the_runtime_does() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = Group::new(&node, "resume").await?;
    let task = group.run("resume").await?;
    for fault in Fault::QUICK {
        let output = task.task(&["pause"]).await?;
        ensure!(output.exit_code == Some(0), "{output:?}");
        group.runtime.break_command("resume", fault)?;
        let output = task.task(&["resume"]).await?;
        ensure!(output.exit_code == Some(0), "{fault:?}: {output:?}");
        task.wait_status("RUNNING").await?;
        ensure_usable(&task).await?;
        group.runtime.mend("resume")?;
    }
    // A frozen container can be killed without the runtime's resume.
    let output = task.task(&["pause"]).await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    group.runtime.break_command("resume", Fault::Fails)?;
    let output = task.task(&["kill", "-s", "KILL"]).await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    task.wait_status("STOPPED").await?;
    task.remove().await?;
    group.remove().await
}

#[tokio::test]
async fn a_delete_that_goes_wrong_can_be_tried_again() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = Group::new(&node, "delete").await?;
    for fault in Fault::QUICK {
        let task = group.run("delete").await?;
        group.runtime.break_command("delete", fault)?;
        let output = task.task(&["rm", "--force"]).await?;
        ensure_reported(&output, "delete", fault)?;
        task.wait_status("STOPPED").await?;
        group.ensure_untouched().await?;
        group.runtime.mend("delete")?;
        task.remove().await.with_context(|| format!("after {fault:?}"))?;
    }
    group.remove().await
}

/// Only faults before criu's work, because criu does not run on every kernel.
#[tokio::test]
async fn a_checkpoint_that_goes_wrong_leaves_the_program_running() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = Group::new(&node, "checkpoint").await?;
    let task = group.run("checkpoint").await?;
    for fault in Fault::QUICK.into_iter().filter(|fault| !fault.works()) {
        group.runtime.break_command("checkpoint", fault)?;
        let output = task.task(&["checkpoint"]).await?;
        ensure_reported(&output, "checkpoint", fault)?;
        task.wait_status("RUNNING").await?;
        ensure_usable(&task).await?;
    }
    task.remove().await?;
    group.remove().await
}

/// N3: the shim is dead, and the runtime fails or reports a failure: everything of the container is removed all the
/// same. Only the runtime's own record stays where its delete does not work.
#[tokio::test]
async fn n3_a_killed_shim_leaves_nothing_whatever_its_runtime_does() -> Result<()> {
    let node = Containerd::connect().await?;
    let faults = || Fault::QUICK.into_iter().chain([Fault::Hangs]);
    let hits =
        ["state", "delete"].into_iter().flat_map(|command| faults().map(move |fault| (command, fault)));
    for (command, fault) in hits {
        let runtime = FaultyRuntime::around("runc", node.directory())?;
        let config = runtime.config().display().to_string();
        let task = Task::run(&node, "n3", &["--runtime-config-path", &config], &["sleep", "600"]).await?;
        runtime.break_command(command, fault)?;
        e2e::instance::signal(task.shim()?, libc::SIGKILL)?;
        runtime.wait_broken(command).await.with_context(|| format!("{fault:?}"))?;
        let is_record = |line: &String| line.contains("/run/containerd/runc/") && command == "delete";
        wait::until(
            &format!("nothing to be left, with {command} {fault:?}"),
            seconds(10) * pace(),
            async || Ok(task.leftovers()?.iter().all(is_record).then_some(())),
        )
        .await
        .with_context(|| format!("{:#?}", task.leftovers()))?;
        for record in task.leftovers()? {
            std::fs::remove_dir_all(record.trim_start_matches("file: "))?;
        }
        task.remove().await?;
    }
    Ok(())
}

/// All commands at the same time, because each takes as long as its limit: two minutes where the runtime runs hooks and
/// makes processes, half a minute elsewhere.
#[tokio::test]
async fn a_runtime_that_hangs_is_killed_after_its_limit() -> Result<()> {
    let node = Containerd::connect().await?;
    let making = async |command: &'static str| {
        let group = Group::new(&node, "hang").await?;
        group.runtime.break_command(command, Fault::Hangs)?;
        let (task, output) = group.attempt("hang").await?;
        ensure_reported(&output, command, Fault::Hangs)?;
        group.runtime.mend(command)?;
        task.remove().await?;
        group.remove().await
    };
    let using = async |command: &'static str, words: &'static [&'static str]| {
        let group = Group::new(&node, "hang").await?;
        let task = group.run("hang").await?;
        group.runtime.break_command(command, Fault::Hangs)?;
        let output = match command {
            "exec" => task.exec(&[], &["true"]).await?,
            _ => task.task(words).await?,
        };
        ensure_reported(&output, command, Fault::Hangs)?;
        group.runtime.mend(command)?;
        if command != "delete" {
            ensure_usable(&task).await?;
            wait_alone(&task).await?;
        }
        task.remove().await?;
        group.remove().await
    };
    tokio::try_join!(
        making("create"),
        making("start"),
        using("exec", &[]),
        using("pause", &["pause"]),
        using("delete", &["rm", "--force"]),
    )
    .map(drop)
}
