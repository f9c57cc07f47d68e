//! Terminals, pipes, files and no streams: where a process's bytes go, and when its streams end.

use anyhow::Result;
use containerd_shim_protos::shim::shim::CreateTaskRequest;

use crate::run::{Exec, Run};
use e2e::direct::bundle::Bundle;
use e2e::direct::streams::Streams;

/// A container with a terminal: its size, input, echo and end.
pub async fn a_terminal(run: &mut Run) -> Result<()> {
    let script = "tty; stty size; echo ready; read line; stty size; echo \"<$line>\"; echo err >&2; exit 3";
    run.bundle("c", Bundle::shell(script).streams(Streams::Terminal)).await?;
    run.create("c").await;
    run.state("c").await;
    run.resize("c", 100, 40).await;
    run.start("c").await;
    for _ in 0..3 {
        run.line("c").await;
    }
    run.resize("c", 123, 45).await;
    run.write("c", "hello\n");
    run.wait("c").await;
    run.event("exit", "c").await;
    run.output("c").await?;
    run.state("c").await;
    run.resize("c", 1, 1).await;
    run.delete("c").await;
    Ok(())
}

/// An exec with a terminal in a container without one.
pub async fn an_exec_with_a_terminal(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.line("c").await;
    let script = "tty; stty size; echo ready; read line; stty size; echo \"<$line>\"; exit 3";
    run.exec(
        "c/e",
        Exec::shell(script).streams(Streams::Terminal).process(|process| {
            process["terminal"] = true.into();
            process["consoleSize"] = serde_json::json!({"height": 33, "width": 99});
        }),
    )
    .await?;
    run.resize("c/e", 90, 30).await;
    run.start("c/e").await;
    for _ in 0..3 {
        run.line("c/e").await;
    }
    run.state("c/e").await;
    run.resize("c/e", 70, 20).await;
    run.write("c/e", "hello\n");
    run.wait("c/e").await;
    run.event("exit", "c/e").await;
    run.output("c/e").await?;
    run.delete("c/e").await;
    // The request's `terminal` counts, whatever the OCI process has.
    run.exec("c/mixed", Exec::shell("tty").process(|process| process["terminal"] = true.into())).await?;
    run.start("c/mixed").await;
    run.wait("c/mixed").await;
    run.output("c/mixed").await?;
    run.exec("c/other", Exec::shell("tty >/dev/null && echo a terminal").streams(Streams::Terminal)).await?;
    run.start("c/other").await;
    run.wait("c/other").await;
    run.output("c/other").await?;
    Ok(())
}

/// The terminal's hang-up and end of file.
pub async fn the_end_of_a_terminals_input(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; cat; echo end").streams(Streams::Terminal)).await?;
    run.line("c").await;
    run.write("c", "typed\n\u{4}");
    run.wait("c").await;
    run.output("c").await?;
    run.delete("c").await;
    Ok(())
}

/// Input ends when the caller closes it.
pub async fn standard_input(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; cat; echo end").streams(Streams::All)).await?;
    run.line("c").await;
    run.state("c").await;
    run.write("c", "one\ntwo\n");
    run.line("c").await;
    run.line("c").await;
    run.exec("c/e", Exec::shell("cat; echo done").streams(Streams::All)).await?;
    run.start("c/e").await;
    run.write("c/e", "three\n");
    run.line("c/e").await;
    run.close_input("c/e");
    run.close_io("c/e").await;
    run.wait("c/e").await;
    run.output("c/e").await?;
    run.close_input("c");
    run.close_io("c").await;
    run.close_io("c").await;
    run.wait("c").await;
    run.output("c").await?;
    run.close_io("c").await;
    run.delete("c").await;
    Ok(())
}

/// All bytes arrive, on the stream they were written to.
pub async fn much_output(run: &mut Run) -> Result<()> {
    let script = "seq 1 20000; seq 1 20000 >&2; printf 'no newline'";
    run.container("c", Bundle::shell(script)).await?;
    run.wait("c").await;
    run.output("c").await?;
    run.container("quick", Bundle::program(&["echo", "short"])).await?;
    run.wait("quick").await;
    run.delete("quick").await;
    run.output("quick").await?;
    Ok(())
}

/// No streams, and a file.
pub async fn no_pipes(run: &mut Run) -> Result<()> {
    let script = "readlink /proc/self/fd/0; echo out; cat; exit 2";
    run.container("null", Bundle::shell(script).streams(Streams::Null)).await?;
    run.wait("null").await;
    run.state("null").await;
    run.delete("null").await;
    run.container("file", Bundle::shell(script).streams(Streams::File)).await?;
    run.wait("file").await;
    run.delete("file").await;
    run.output("file").await?;
    run.container("errors", Bundle::shell("echo err >&2; sleep 1000").streams(Streams::File)).await?;
    run.exec("errors/e", Exec::shell("echo exec").streams(Streams::File)).await?;
    run.start("errors/e").await;
    run.wait("errors/e").await;
    run.delete("errors/e").await;
    run.output("errors/e").await?;
    run.kill("errors", 9).await;
    run.wait("errors").await;
    run.delete("errors").await;
    run.output("errors").await?;
    Ok(())
}

/// `binary://`: how a logging program is called, and what it gets. The moment of its end differs (CONTRACT §7), so its
/// output is read before.
pub async fn a_logging_program(run: &mut Run) -> Result<()> {
    let log = run.directory().join("log");
    let program = run.executable(
        "logger",
        &format!(
            "exec >>{}; echo \"$# <$1> <$2>\"; env | grep ^CONTAINER | sort; readlink /proc/self/fd/0; exec 5>&-; \
             (while read -r line <&3; do echo \"out $line\"; done) & (while read -r line <&4; do echo \"err $line\"; done) & wait",
            log.display()
        ),
    )?;
    let failing = run.executable("failing", "exit 3")?;
    let logged = |request: &mut CreateTaskRequest, program: &str| {
        request.stdout = format!("binary://{program}?key=a+value");
        request.stderr.clone_from(&request.stdout);
    };
    let script = "readlink /proc/self/fd/0; echo one; exec sleep 1000";
    run.bundle("c", Bundle::shell(script).streams(Streams::Null)).await?;
    run.create_with("c", |request| logged(request, &program)).await;
    run.state("c").await;
    run.start("c").await;
    run.lines_of_file(&log, 6).await?;
    run.kill("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.delete("c").await;
    for (id, program) in [("missing", "/no/such/program"), ("failing", &*failing)] {
        run.bundle(id, Bundle::shell("exit 2").streams(Streams::Null)).await?;
        run.create_with(id, |request| logged(request, program)).await;
        run.start(id).await;
        run.wait(id).await;
        run.state(id).await;
        run.delete(id).await;
    }
    Ok(())
}

/// Invalid stream addresses.
pub async fn wrong_addresses(run: &mut Run) -> Result<()> {
    run.bundle("c", Bundle::shell("exit 0").streams(Streams::Null)).await?;
    for address in ["gopher:///tmp/x", "://"] {
        run.create_with("c", |request| request.stdout = address.to_owned()).await;
        run.state("c").await;
    }
    Ok(())
}

/// Trap 11: a child that outlives its parent holds the streams; the exit does not wait for it.
pub async fn a_child_holds_the_output(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.line("c").await;
    run.exec("c/e", Exec::shell("sleep 1000 & echo parent; exit 4")).await?;
    run.start("c/e").await;
    run.wait("c/e").await;
    run.event("exit", "c/e").await;
    run.line("c/e").await;
    run.state("c/e").await;
    run.kill_all("c", 9).await;
    run.wait("c").await;
    run.output("c/e").await?;
    run.delete("c/e").await;
    run.delete("c").await;
    Ok(())
}

/// D4: the client's input has ended, and its reader is slower than the program, as in containerd's
/// TestContainerExecLargeOutputWithTTY. More is written than the client's pipe and a shim's read hold, and less than the terminal
/// holds besides, so the end of it is in the terminal when the process exits.
pub async fn d4_the_last_output_of_a_terminal_for_a_slow_client(run: &mut Run) -> Result<()> {
    let much = "stty raw; head -c 9000 /dev/zero | tr '\\0' x; echo; echo the end";
    run.container("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.line("c").await;
    run.exec("c/e", Exec::shell(much).streams(Streams::SlowTerminal)).await?;
    run.start("c/e").await;
    run.wait("c/e").await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    run.output("c/e").await?;
    run.delete("c/e").await;
    run.container("init", Bundle::shell(much).streams(Streams::SlowTerminal)).await?;
    run.wait("init").await;
    tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
    run.output("init").await?;
    run.delete("init").await;
    Ok(())
}

/// CloseIO of a terminal whose client has closed its input hangs it up.
pub async fn d4_a_terminal_hangs_up(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.line("c").await;
    let script = "trap 'exit 7' HUP; echo ready; while :; do sleep 0.1; done";
    run.exec("c/e", Exec::shell(script).streams(Streams::Terminal)).await?;
    run.start("c/e").await;
    run.line("c/e").await;
    run.close_input("c/e");
    run.close_io("c/e").await;
    run.wait_shortly("c/e").await;
    run.kill("c", 9).await;
    run.wait("c").await;
    run.delete("c/e").await;
    Ok(())
}
