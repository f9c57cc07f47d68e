//! Execs: their states, what they inherit, how they fail, and how they end with the container.

use anyhow::Result;
use serde_json::json;

use crate::run::{Exec, Run};
use e2e::direct::bundle::Bundle;
use e2e::direct::streams::Streams;

/// A program that prints "ready" when all its processes exist, because Pids lists them.
const LIVES: &str = "sleep 1000 & echo ready; wait";

/// An exec in each of its states, with every request that is invalid in that state.
pub async fn the_life_of_an_exec(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell(LIVES)).await?;
    run.line("c").await;
    run.exec("c/e", Exec::shell("trap 'exit 9' TERM; sleep 1000 >/dev/null 2>&1 & echo in; wait")).await?;
    run.state("c/e").await;
    run.pids("c").await;
    run.kill("c/e", 15).await;
    run.exec("c/e", Exec::shell("true")).await?;
    run.resize("c/e", 80, 24).await;
    run.close_io("c/e").await;
    run.start("c/e").await;
    run.line("c/e").await;
    run.state("c/e").await;
    run.pids("c").await;
    run.delete("c/e").await;
    run.exec("c/e", Exec::shell("true")).await?;
    run.resize("c/e", 80, 24).await;
    run.kill("c/e", 15).await;
    run.wait("c/e").await;
    run.event("exit", "c/e").await;
    run.state("c/e").await;
    run.wait("c/e").await;
    run.kill("c/e", 9).await;
    run.start("c/e").await;
    run.resize("c/e", 80, 24).await;
    run.close_io("c/e").await;
    run.exec("c/e", Exec::shell("true")).await?;
    run.output("c/e").await?;
    run.delete("c/e").await;
    run.state("c/e").await;
    run.delete("c/e").await;
    run.wait("c/e").await;
    run.files("c");
    Ok(())
}

/// A running exec is started again. The Go shims of 1.7 and 2.1 then count it twice, and crash when the container ends.
pub async fn an_exec_is_started_twice(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell(LIVES)).await?;
    run.line("c").await;
    run.exec("c/e", Exec::shell("echo in; sleep 1000")).await?;
    run.start("c/e").await;
    run.line("c/e").await;
    run.start("c/e").await;
    run.state("c/e").await;
    run.kill("c/e", 9).await;
    run.wait("c/e").await;
    run.delete("c/e").await;
    Ok(())
}

/// An exec's id is free again after Delete; an exec that never ran can be deleted.
pub async fn exec_ids_are_used_again(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell(LIVES)).await?;
    run.line("c").await;
    for code in [0, 3, 255] {
        run.exec("c/e", Exec::shell(&format!("exit {code}")).streams(Streams::Null)).await?;
        run.start("c/e").await;
        run.wait("c/e").await;
        run.event("exit", "c/e").await;
        run.delete("c/e").await;
    }
    run.exec("c/e", Exec::shell("true").streams(Streams::Null)).await?;
    run.delete("c/e").await;
    run.state("c/e").await;
    run.exec("c/c", Exec::shell("exit 4")).await?;
    run.start("c/c").await;
    run.wait("c/c").await;
    run.delete("c/c").await;
    for id in ["c/", "c/with space", "c/a..b", "c/../up", "c/.hidden", "c/x_y-z.1"] {
        run.exec(id, Exec::shell("true").streams(Streams::Null)).await?;
    }
    Ok(())
}

/// User, groups, directory, environment, limits.
pub async fn what_an_exec_is_given(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell(LIVES)).await?;
    run.line("c").await;
    let shown = "id -u; id -g; id -G; pwd; env | grep -v SHLVL; echo $0; ulimit -c; umask; cat /proc/self/oom_score_adj";
    run.exec_to_end("c/plain", Exec::shell(shown)).await?;
    run.exec_to_end(
        "c/all",
        Exec::shell(shown).process(|process| {
            process["user"] = json!({"uid": 12, "gid": 34, "additionalGids": [5, 6, 7], "umask": 63});
            process["cwd"] = "/tmp".into();
            process["env"] = json!(["PATH=/bin", "A=1", "B=two words", "A=3"]);
            process["rlimits"] = json!([{"type": "RLIMIT_CORE", "hard": 2048, "soft": 1024}]);
            process["oomScoreAdj"] = 500.into();
        }),
    )
    .await?;
    run.exec_to_end(
        "c/capabilities",
        Exec::shell("grep -E 'Cap|NoNew' /proc/self/status").process(|process| {
            process["capabilities"] = json!({"bounding": ["CAP_KILL"], "permitted": ["CAP_KILL"]});
            process["noNewPrivileges"] = false.into();
        }),
    )
    .await?;
    run.exec_to_end("c/signalled", Exec::shell("kill -SEGV $$")).await?;
    run.exec_to_end("c/killed", Exec::shell("kill -KILL $$")).await?;
    run.exec_to_end("c/stderr", Exec::shell("echo out; echo err >&2; exit 5")).await?;
    Ok(())
}

/// The user gets the OCI runtime's error.
pub async fn execs_that_cannot_start(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell(LIVES)).await?;
    run.line("c").await;
    let failing = [
        ("c/missing", Exec::program(&["/no/such/program"])),
        ("c/notinpath", Exec::program(&["nosuchprogram"])),
        ("c/directory", Exec::program(&["/tmp"])),
        ("c/noargs", Exec::program(&[])),
        ("c/cwd", Exec::shell("true").process(|process| process["cwd"] = "relative".into())),
        ("c/nocwd", Exec::shell("pwd").process(|process| process["cwd"] = "/made/up".into())),
        ("c/label", Exec::shell("true").process(|process| process["apparmorProfile"] = "no-such".into())),
        ("c/empty", Exec::shell("true").process(|process| *process = json!({}))),
    ];
    for (name, exec) in failing {
        run.exec(name, exec).await?;
        run.start(name).await;
        run.state(name).await;
        run.wait(name).await;
        run.kill(name, 9).await;
        run.delete(name).await;
        run.state(name).await;
    }
    run.state("c").await;
    run.exec_to_end("c/good", Exec::shell("echo still fine")).await?;
    Ok(())
}

/// Invalid OCI processes: containerd's shim decodes them when the exec is added, podshim leaves that to the runtime.
pub async fn execs_of_damaged_processes(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell(LIVES)).await?;
    run.line("c").await;
    let damaged = [
        ("c/user", Exec::shell("true").process(|process| process["user"] = json!({"uid": -1}))),
        ("c/notaprocess", Exec::shell("true").process(|process| *process = json!([1, 2]))),
        ("c/number", Exec::shell("true").process(|process| *process = json!(7))),
        ("c/wrongtype", Exec::shell("true").process(|process| process["args"] = "sh".into())),
    ];
    for (name, exec) in damaged {
        run.exec(name, exec).await?;
    }
    run.state("c").await;
    Ok(())
}

/// Trap 7: running execs end with the container, and their exits are published before its own.
pub async fn execs_and_the_end_of_their_container(run: &mut Run) -> Result<()> {
    run.container("c", Bundle::shell(LIVES)).await?;
    run.line("c").await;
    run.exec("c/runs", Exec::shell("echo in; sleep 1000")).await?;
    run.start("c/runs").await;
    run.line("c/runs").await;
    run.exec("c/waits", Exec::shell("true")).await?;
    run.kill("c", 9).await;
    run.wait("c").await;
    run.event("exit", "c").await;
    run.wait("c/runs").await;
    run.state("c/runs").await;
    run.state("c/waits").await;
    run.start("c/waits").await;
    run.kill("c/waits", 9).await;
    run.exec("c/new", Exec::shell("true")).await?;
    run.start("c/new").await;
    run.state("c/new").await;
    run.pids("c").await;
    run.delete("c/runs").await;
    run.delete("c/waits").await;
    run.delete("c").await;
    run.state("c/runs").await;
    Ok(())
}

/// A created container takes execs before its own program runs.
pub async fn an_exec_in_a_created_container(run: &mut Run) -> Result<()> {
    run.bundle("c", Bundle::shell(LIVES)).await?;
    run.create("c").await;
    run.exec_to_end("c/early", Exec::shell("echo early; exit 2")).await?;
    run.state("c").await;
    run.delete("c/early").await;
    run.start("c").await;
    run.line("c").await;
    Ok(())
}
