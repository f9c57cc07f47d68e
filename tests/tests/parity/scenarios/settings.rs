//! The runtime's options and the shim's own process: its cgroup, what it inherits, its socket's mode.

use anyhow::Result;
use containerd_shim_protos::shim::oci::Options;
use protobuf::Message;
use protobuf::well_known_types::any::Any;

use crate::run::{Exec, Run};
use e2e::direct::bundle::Bundle;
use e2e::direct::streams::Streams;

/// Each option of the runc shim, by its effect in the container.
pub async fn options(run: &mut Run) -> Result<()> {
    let shown = "stat -c '%u %g' /proc/self/fd/1 2>/dev/null; ls -ln /proc/self/fd/ | wc -l; cat /proc/self/cgroup | wc -l; exit 2";
    let all = [
        ("none", Options::default()),
        ("nopivot", Options { no_pivot_root: true, ..Options::default() }),
        ("nokeyring", Options { no_new_keyring: true, ..Options::default() }),
        ("owner", Options { io_uid: 1000, io_gid: 1001, ..Options::default() }),
        (
            "root",
            Options {
                root: run.directory().join("runc-root").to_string_lossy().into_owned(),
                ..Options::default()
            },
        ),
        ("crun", Options { binary_name: "crun".to_owned(), ..Options::default() }),
    ];
    for (id, options) in all {
        run.bundle(id, Bundle::shell(shown).streams(Streams::All).options(&options)?).await?;
        run.create(id).await;
        run.state(id).await;
        run.start(id).await;
        run.wait(id).await;
        run.output(id).await?;
        run.files(id);
        run.delete(id).await;
    }
    Ok(())
}

/// A cgroup path that the systemd driver cannot take.
pub async fn the_systemd_driver(run: &mut Run) -> Result<()> {
    let options = Options { systemd_cgroup: true, ..Options::default() };
    run.bundle("c", Bundle::shell("exit 0").options(&options)?).await?;
    run.create("c").await;
    run.state("c").await;
    run.files("c");
    Ok(())
}

/// The owner of the pipes that a process without root gets, also in an exec.
pub async fn the_owner_of_pipes(run: &mut Run) -> Result<()> {
    let options = Options { io_uid: 1000, io_gid: 1001, ..Options::default() };
    let script = "echo again >/dev/stdout && echo err >/dev/stderr; echo $?";
    let bundle = Bundle::shell(&format!("{script}; sleep 1000")).options(&options)?.spec(|spec| {
        spec["process"]["user"] = serde_json::json!({"uid": 1000, "gid": 1001});
        spec["process"]["args"][2] =
            format!("ls -lnL /proc/self/fd/1 | tr -s ' ' | grep -o '1000 1001'; {script}; sleep 1000").into();
    });
    run.container("c", bundle).await?;
    for _ in 0..3 {
        run.line("c").await;
    }
    run.exec_to_end(
        "c/e",
        Exec::shell(script).process(|process| {
            process["user"] = serde_json::json!({"uid": 1000, "gid": 1001});
        }),
    )
    .await?;
    Ok(())
}

/// The owner of streams that are no fifos: a file, a logging program's pipe, a terminal.
pub async fn the_owner_of_other_streams(run: &mut Run) -> Result<()> {
    let log = run.directory().join("log");
    let lines = "while read -r line <&3; do echo \"$line\"; done";
    let program = run.executable("logger", &format!("exec >>{}; exec 5>&-; {lines}", log.display()))?;
    let options = Options { io_uid: 1000, io_gid: 1001, ..Options::default() };
    let script = "stat -L -c '%u %g' /proc/self/fd/1; echo again >/dev/stdout; echo $?";
    let all = [("file", Streams::File), ("program", Streams::Null), ("terminal", Streams::Terminal)];
    for (id, streams) in all {
        let bundle = Bundle::shell(script).streams(streams).options(&options)?.spec(|spec| {
            spec["process"]["user"] = serde_json::json!({"uid": 1000, "gid": 1001});
        });
        run.bundle(id, bundle).await?;
        run.create_with(id, |request| {
            if id == "program" {
                request.stdout = format!("binary://{program}");
                request.stderr.clone_from(&request.stdout);
            }
        })
        .await;
        run.start(id).await;
        run.wait(id).await;
        run.event("exit", id).await;
        match id {
            "program" => run.lines_of_file(&log, 3).await?,
            _ => run.output(id).await?,
        }
        run.delete(id).await;
    }
    Ok(())
}

/// The four messages that can carry options (CONTRACT §1.7).
pub async fn kinds_of_options(run: &mut Run) -> Result<()> {
    let keyring = Options { no_new_keyring: true, ..Options::default() }.write_to_bytes()?;
    let all: [(&str, &str, &[u8]); 4] = [
        ("runc", "containerd.runc.v1.Options", &keyring),
        ("empty", "containerd.runc.v1.Options", b""),
        ("other1", "containerd.linux.runc.CreateOptions", b""),
        ("other2", "runtimeoptions.v1.Options", b""),
    ];
    for (id, type_url, value) in all {
        run.bundle(id, Bundle::shell("exit 2")).await?;
        let options = Any { type_url: type_url.to_owned(), value: value.to_vec(), ..Any::default() };
        run.create_with(id, |request| request.options = Some(options).into()).await;
        run.start(id).await;
        run.wait(id).await;
        run.delete(id).await;
    }
    Ok(())
}

/// The server process: independent of its parent, and with a slightly higher OOM score than containerd.
pub async fn the_server_process(run: &mut Run) -> Result<()> {
    run.bundle("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.connect("c").await;
    run.server_process()?;
    run.create("c").await;
    run.start("c").await;
    run.line("c").await;
    run.server_process()?;
    run.files("c");
    run.start_again("c").await?;
    run.state("c").await;
    Ok(())
}

/// Core scheduling, when containerd requests it in the environment.
pub async fn core_scheduling(run: &mut Run) -> Result<()> {
    run.environment("SCHED_CORE", "1");
    run.bundle("c", Bundle::shell("echo ready; sleep 1000")).await?;
    run.connect("c").await;
    run.core_scheduling()?;
    run.create("c").await;
    run.start("c").await;
    // On a kernel without core scheduling there is no shim to ask.
    if run.state("c").await.is_some() {
        run.line("c").await;
    }
    Ok(())
}

/// The shim in a cgroup of its own.
pub async fn the_shims_cgroup(run: &mut Run) -> Result<()> {
    let options = Options { shim_cgroup: run.make_cgroup("shim")?, ..Options::default() };
    run.bundle("c", Bundle::shell("echo ready; sleep 1000").options(&options)?).await?;
    run.connect("c").await;
    run.server_process()?;
    run.create("c").await;
    run.start("c").await;
    run.line("c").await;
    run.state("c").await;
    Ok(())
}

/// Two containers of one group have one shim, which lives until both are deleted.
pub async fn a_group(run: &mut Run) -> Result<()> {
    let member = || {
        Bundle::shell("sleep 1000 & echo ready; wait").spec(|spec| {
            spec["annotations"] = serde_json::json!({"io.containerd.runc.v2.group": "together"});
        })
    };
    run.container("one", member()).await?;
    run.container("two", member()).await?;
    run.line("one").await;
    run.line("two").await;
    run.connect("one").await;
    run.connect("two").await;
    run.shutdown("one").await;
    run.kill("one", 9).await;
    run.wait("one").await;
    run.event("exit", "one").await;
    run.delete("one").await;
    run.shutdown("one").await;
    run.delete_action("one").await?;
    run.state("one").await;
    run.state("two").await;
    run.pids("two").await;
    run.files("two");
    Ok(())
}

/// `delete` for a bundle whose container was never created, and for a running one: containerd's last resort.
pub async fn the_delete_action(run: &mut Run) -> Result<()> {
    run.bundle("never", Bundle::shell("exit 0")).await?;
    run.delete_action("never").await?;
    run.delete_action("never").await?;
    run.files("never");
    run.bundle("created", Bundle::shell("exit 0")).await?;
    run.create("created").await;
    run.files("created");
    run.container("ended", Bundle::shell("exit 5")).await?;
    run.wait("ended").await;
    run.event("exit", "ended").await;
    run.delete("ended").await;
    run.delete_action("ended").await?;
    run.files("ended");
    Ok(())
}
