//! Traps about streams: a process that holds one open must not delay an exit, a delete, or the end of the shim.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::pod::PidNamespace;
use e2e::{Containerd, Event, EventLog, Pod, Program, Runtime};

use e2e::durations::SOON;
use e2e::task::{Task, shell, shim_pid};

/// Trap 11: a process that an exec leaves behind holds the exec's stdout. The exec's exit is published at once, its
/// Delete ends the stream, and the container's end is not delayed either.
#[tokio::test]
async fn trap_11_a_background_child_holds_up_no_exit_and_no_delete() -> Result<()> {
    let node = Containerd::connect().await?;
    let log = EventLog::record(&node).await?;
    let task = Task::run(&node, "trap11", &[], &["sleep", "600"]).await?;
    let id = task.id();
    let exec = async {
        shell(
            &node,
            &format!("ctr task exec --exec-id holder {id} sh -c 'sleep 600 & echo said; sleep 0.5; exit 5'; echo $?"),
        )
        .await
    };
    let ended = async {
        let is_exit =
            |event: &e2e::TaskEvent| event.topic == "exit" && event.exec.as_deref() == Some("holder");
        let events = log.wait_for(id, SOON, is_exit).await?;
        ensure!(
            events.iter().filter(|event| is_exit(event)).all(|event| event.exit_status == 5),
            "{events:#?}"
        );
        // The holder lives on, as under containerd's own shim.
        let ps = task.run_script("ps").await?;
        ensure!(ps.stdout.contains("sleep 600"), "{ps:?}");
        let killed = task.task(&["kill", "-s", "KILL"]).await?;
        ensure!(killed.exit_code == Some(0), "{killed:?}");
        task.wait_status("STOPPED").await.map(drop)
    };
    let (printed, ()) = tokio::try_join!(exec, ended)?;
    ensure!(printed == "said\n5\n", "{printed:?}");
    task.remove().await
}

/// Trap 11 for a container: in a shared PID namespace its child outlives it and holds its stdout; CRI waits for the end
/// of that stream before it deletes.
#[tokio::test]
async fn trap_11_a_containers_child_does_not_keep_its_log_open() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("trap11")
        .pid_namespace(PidNamespace::Pod)
        .container(Program::new("app").leaves_child())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("app").await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    // SIGTERM ends only the container's program; the child ignores it.
    pod.stop("app", Duration::from_secs(60)).await?;
    ensure!(pod.status("app").await?.exit_code == 0, "{}", pod.timeline()?);
    pod.remove().await
}

/// Trap 19: containerd is away, so no process reads the shim's log, and its pipe fills up. The shim neither blocks nor
/// dies, and serves the next containerd.
#[tokio::test]
async fn trap_19_an_unread_log_stops_no_other() -> Result<()> {
    let node = Containerd::start().await?;
    // In the node's PID namespace the shim reaps and logs each orphan: 5000 lines are more than a pipe holds.
    let marks = node.directory().join("trap19");
    std::fs::create_dir(&marks)?;
    let storm = "until [ -e /marks/go ]; do sleep 0.1; done
         i=0; while [ $i -lt 5000 ]; do (true &); i=$((i + 1)); done";
    let mut pod = Pod::new("trap19")
        .pid_namespace(PidNamespace::Node)
        .container(Program::new("storm").begins_with_script(storm).mount(&marks, "/marks").term_exit_code(4))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("storm").await?;
    let shim = shim_pid(&pod.leftovers()?)?;
    node.kill().await?;
    std::fs::write(marks.join("go"), "")?;
    pod.wait_for("storm", Event::Started, 1, Duration::from_secs(100)).await?;
    ensure!(e2e::instance::is_alive(shim), "the shim is gone");
    node.start_again().await?;
    ensure!(shim_pid(&pod.leftovers()?)? == shim, "another shim");
    let output = pod.exec("storm", &["echo", "served"]).await?;
    ensure!(output.stdout == "served\n", "{output:?}");
    pod.stop("storm", Duration::from_secs(60)).await?;
    ensure!(pod.status("storm").await?.exit_code == 4, "{}", pod.timeline()?);
    pod.remove().await
}

/// Trap 20: a stdin that is open and never written to delays neither the container's end nor the shim's.
#[tokio::test]
async fn trap_20_a_silent_stdin_keeps_no_shim() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("trap20")
        .container(Program::new("ends").opens_stdin().runs_for(Duration::from_millis(300)).exits(4))
        .container(Program::new("killed").opens_stdin().ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["ends", "killed"]).await?;
    pod.wait_for("killed", Event::Started, 1, SOON).await?;
    ensure!(pod.wait_exited("ends", SOON).await?.exit_code == 4, "{}", pod.timeline()?);
    let shim = shim_pid(&pod.leftovers()?)?;
    // Also checks that the shim is gone.
    pod.remove().await?;
    ensure!(!e2e::instance::is_alive(shim), "the shim is left");
    Ok(())
}
