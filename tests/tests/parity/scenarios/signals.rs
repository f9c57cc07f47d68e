//! Kill: every number, one process or all, in every state; exits by signals; shared pid namespaces.

use anyhow::Result;

use crate::run::{Exec, Run};
use e2e::direct::bundle::Bundle;

/// Signals that a program cannot catch: the kernel (9, 19) or libc (32, 33) does not let it.
const UNCATCHABLE: [u32; 4] = [9, 19, 32, 33];

/// The program gets each number as it was sent.
pub async fn every_signal_arrives(run: &mut Run) -> Result<()> {
    let script = "for s in $(seq 1 64); do [ $s = 17 ] || trap \"echo got $s\" $s 2>/dev/null; done; echo ready; \
                  while true; do sleep 1000 & wait $!; done";
    run.container("c", Bundle::shell(script)).await?;
    run.line("c").await;
    for signal in (1..=64).filter(|signal| !UNCATCHABLE.contains(signal)) {
        run.kill("c", signal).await;
        // SIGCHLD also comes from the program's own children.
        if signal != 17 {
            run.line("c").await;
        }
    }
    Ok(())
}

/// Invalid signal numbers, and those that no program can catch.
pub async fn odd_signals(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; sleep 1000 & wait")).await?;
    run.line("c").await;
    for signal in [0, 65, 128, 1000, u32::MAX] {
        run.kill("c", signal).await;
        run.kill_all("c", signal).await;
    }
    run.kill("c", 19).await;
    run.state("c").await;
    run.kill("c", 18).await;
    run.state("c").await;
    run.exec("c/e", Exec::shell("echo in; sleep 1000")).await?;
    run.start("c/e").await;
    run.line("c/e").await;
    for signal in [0, 65, 1000] {
        run.kill("c/e", signal).await;
        run.kill_all("c/e", signal).await;
    }
    run.kill_all("c/e", 9).await;
    run.wait("c/e").await;
    run.state("c").await;
    Ok(())
}

/// Kill with `all` reaches every process, whatever its parent is.
pub async fn kill_all_reaches_everybody(run: &mut Run) -> Result<()> {
    // The first process stays alive, because its end would end all others.
    let script = "exec 2>/dev/null; (trap 'echo child; exit' TERM; echo one; while true; do sleep 0.05; done) & \
                  trap : TERM; while true; do sleep 0.05; done";
    run.container("c", Bundle::shell(script)).await?;
    run.line("c").await;
    run.exec("c/e", Exec::shell("trap 'exit 6' TERM; echo in; while true; do sleep 0.05; done")).await?;
    run.start("c/e").await;
    run.line("c/e").await;
    run.kill_all("c", 15).await;
    if run.wait_shortly("c/e").await.is_some() {
        run.event("exit", "c/e").await;
        run.line("c").await;
    }
    run.state("c").await;
    run.kill_all("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.output("c").await?;
    Ok(())
}

/// Trap 21: a created container can be killed, and can be deleted without a start.
pub async fn a_created_container_ends(run: &mut Run) -> Result<()> {
    run.bundle("killed", Bundle::shell("exit 1")).await?;
    run.create("killed").await;
    run.kill("killed", 0).await;
    run.kill("killed", 9).await;
    run.wait("killed").await;
    run.event("exit", "killed").await;
    run.state("killed").await;
    run.start("killed").await;
    run.delete("killed").await;
    run.bundle("stopped", Bundle::shell("exit 1")).await?;
    run.create("stopped").await;
    run.kill_all("stopped", 15).await;
    run.wait("stopped").await;
    run.kill_all("stopped", 9).await;
    run.delete("stopped").await;
    Ok(())
}

/// A created container is deleted without a Kill before.
pub async fn a_created_container_is_deleted(run: &mut Run) -> Result<()> {
    run.bundle("c", Bundle::shell("exit 1")).await?;
    run.create("c").await;
    run.delete("c").await;
    run.state("c").await;
    run.files("c");
    Ok(())
}

/// How a program ended, as its caller sees it.
pub async fn ends_of_programs(run: &mut Run) -> Result<()> {
    for (id, script) in [
        ("zero", "exit 0"),
        ("three", "exit 3"),
        ("max", "exit 255"),
        ("over", "sh -c 'kill -SEGV $$'; exit $?"),
    ] {
        run.container(id, Bundle::shell(script)).await?;
        run.wait(id).await;
        run.event("exit", id).await;
        run.state(id).await;
        run.delete(id).await;
    }
    for signal in [1, 2, 6, 9, 11, 15] {
        let id = format!("signal{signal}");
        // In the host's pid namespace a signal's default action applies to the first process too.
        run.container(&id, Bundle::shell("echo ready; exec sleep 1000").host_pid_namespace()).await?;
        run.line(&id).await;
        run.kill(&id, signal).await;
        run.wait(&id).await;
        run.event("exit", &id).await;
        run.delete(&id).await;
    }
    Ok(())
}

/// Without a pid namespace of its own, the processes that a container's first one leaves behind are killed.
pub async fn children_in_the_hosts_pid_namespace(run: &mut Run) -> Result<()> {
    let script =
        "sh -c 'trap : TERM; sleep 1000 & echo child; while true; do wait; done' & read line; exit 3";
    let bundle = Bundle::shell(script).host_pid_namespace().streams(e2e::direct::streams::Streams::All);
    run.container("c", bundle).await?;
    run.line("c").await;
    run.exec("c/e", Exec::shell("sleep 1000 & echo in; wait")).await?;
    run.start("c/e").await;
    run.line("c/e").await;
    run.pids("c").await;
    run.write("c", "go\n");
    run.wait("c").await;
    run.event("exit", "c").await;
    run.wait("c/e").await;
    run.state("c/e").await;
    run.output("c").await?;
    run.delete("c").await;
    run.processes_left("c");
    Ok(())
}

/// A second container in the first one's pid namespace, as in a pod with a shared one.
pub async fn a_shared_pid_namespace(run: &mut Run) -> Result<()> {
    run.container("first", Bundle::shell("echo ready; sleep 1000 & wait")).await?;
    run.line("first").await;
    let Some(pid) = run.names.pid_of("init of first") else { return Ok(()) };
    let script = "sh -c 'echo child; sleep 1000' & read line; exit 3";
    let second = Bundle::shell(script).streams(e2e::direct::streams::Streams::All).spec(|spec| {
        spec["linux"]["namespaces"][0]["path"] = format!("/proc/{pid}/ns/pid").into();
    });
    run.container("second", second).await?;
    run.line("second").await;
    run.write("second", "go\n");
    run.wait("second").await;
    run.event("exit", "second").await;
    run.delete("second").await;
    run.processes_left("second");
    run.state("second").await;
    Ok(())
}
