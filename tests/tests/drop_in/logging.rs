//! Output that goes to a logging program or a file instead of a fifo (CONTRACT §7). The same bodies run on containerd's
//! own shim and on podshim.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use e2e::durations::SOON;
use e2e::instance::is_alive;
use e2e::{Containerd, FaultyRuntime, Footprint, Runtime, wait};

const IMAGE: &str = "podshim.test/busybox:1";

on_both_runtimes!(
    a_program_takes_both_streams_and_ends_with_its_container,
    an_execs_program_is_given_the_execs_id,
    a_program_that_cannot_be_run_fails_the_create,
    a_file_takes_both_streams,
    an_exec_writes_to_a_file,
);

/// Writes its pid, the namespace and id that it got, and both inputs. It ignores SIGTERM, which containerd's shim sends
/// at once, so that it ends only when its inputs do. No other process may keep descriptor 5.
const LOGGER: &str = "#!/bin/sh
trap '' TERM
[ \"$1\" = dir ] || exit 9
echo $$ >>\"$2/pids\"
echo \"$CONTAINER_NAMESPACE $CONTAINER_ID\" >\"$2/logged-by\"
cat <&3 5>&- >>\"$2/out\" &
cat <&4 5>&- >>\"$2/err\" &
exec 5>&- 3<&- 4<&-
wait
";

/// A container's id and the directory of its logs.
struct Logged<'node> {
    node: &'node Containerd,
    runtime: Runtime,
    id: String,
    directory: PathBuf,
}

impl<'node> Logged<'node> {
    fn new(node: &'node Containerd, runtime: Runtime, name: &str) -> Result<Self> {
        let id = format!("log-{name}-{}-{}", runtime.handler(), std::process::id());
        let directory = node.directory().join("pods").join(&id);
        fs::create_dir_all(&directory)?;
        let program = directory.join("logger");
        fs::write(&program, LOGGER)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        Ok(Self { node, runtime, id, directory })
    }

    fn program_uri(&self) -> String {
        let directory = self.directory.display();
        format!("binary://{directory}/logger?dir={directory}")
    }

    fn read(&self, name: &str) -> Result<String> {
        let path = self.directory.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// `ctr run -d` with more flags and a shell script.
    async fn run(&self, flags: &[&str], script: &str) -> Result<e2e::ctr::Output> {
        let words =
            ["run", "-d", "--runtime", self.runtime.runtime_type()].into_iter().chain(flags.iter().copied());
        self.node.ctr().output(&words.chain([IMAGE, &self.id, "sh", "-c", script]).collect::<Vec<_>>()).await
    }

    async fn exec(&self, uri: &str, script: &str) -> Result<String> {
        let words = ["task", "exec", "--log-uri", uri, "--exec-id", "look", &self.id, "sh", "-c", script];
        self.node.ctr().run(&words).await
    }

    async fn wait_stopped(&self) -> Result<()> {
        wait::until("the container to end", SOON, async || {
            let list = self.node.ctr().run(&["task", "ls"]).await?;
            let mut lines = list.lines();
            let line = lines.find(|line| line.split_whitespace().next() == Some(&self.id));
            Ok(line.is_some_and(|line| line.contains("STOPPED")).then_some(()))
        })
        .await
    }

    /// Deletes the container, and checks that nothing is left.
    async fn remove(self) -> Result<()> {
        self.node.ctr().output(&["task", "rm", "-f", &self.id]).await?;
        self.node.ctr().output(&["container", "rm", &self.id]).await?;
        if let Ok(pids) = self.read("pids") {
            for pid in pids.lines() {
                let pid = pid.parse()?;
                wait::until("the logging program to be gone", SOON, async || {
                    Ok((!is_alive(pid)).then_some(()))
                })
                .await?;
            }
        }
        Footprint::of_containers(&[&self.id]).wait_gone(self.node, SOON).await?;
        Ok(fs::remove_dir_all(&self.directory)?)
    }
}

async fn a_program_takes_both_streams_and_ends_with_its_container(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let logged = Logged::new(&node, runtime, "both")?;
    let output =
        logged.run(&["--log-uri", &logged.program_uri()], "echo to out; echo to err >&2; exit 3").await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    logged.wait_stopped().await?;
    node.ctr().output(&["task", "rm", &logged.id]).await?;
    ensure!(
        logged.read("logged-by")? == format!("default {}\n", logged.id),
        "{:?}",
        logged.read("logged-by")
    );
    wait::until("all output", SOON, async || {
        Ok((logged.read("out")? == "to out\n" && logged.read("err")? == "to err\n").then_some(()))
    })
    .await?;
    logged.remove().await
}

async fn an_execs_program_is_given_the_execs_id(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let logged = Logged::new(&node, runtime, "exec")?;
    let output = logged.run(&["--null-io"], "exec sleep 60").await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    logged.exec(&logged.program_uri(), "echo from the exec").await?;
    ensure!(logged.read("logged-by")? == "default look\n", "{:?}", logged.read("logged-by"));
    wait::until("its output", SOON, async || Ok((logged.read("out")? == "from the exec\n").then_some(())))
        .await?;
    logged.remove().await
}

async fn a_program_that_cannot_be_run_fails_the_create(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let logged = Logged::new(&node, runtime, "missing")?;
    let output = logged.run(&["--log-uri", "binary:///no/such/logger"], "exec sleep 60").await?;
    ensure!(output.exit_code != Some(0) && output.stderr.contains("/no/such/logger"), "{output:?}");
    logged.remove().await
}

async fn a_file_takes_both_streams(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let logged = Logged::new(&node, runtime, "file")?;
    let uri = format!("file://{}/made/log", logged.directory.display());
    fs::create_dir(logged.directory.join("made"))?;
    fs::write(logged.directory.join("made/log"), "before\n")?;
    // Now and then containerd 1.6's own shim loses the output of a program that ends at once.
    let ending = match runtime {
        Runtime::Runc => "exec sleep 60",
        Runtime::Podshim => "exit 0",
    };
    let output = logged.run(&["--log-uri", &uri], &format!("echo to out; echo to err >&2; {ending}")).await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    let log = wait::until("all output", SOON, async || {
        let log = logged.read("made/log")?;
        Ok((log.lines().count() == 3).then_some(log))
    })
    .await?;
    ensure!(log.starts_with("before\n") && log.contains("to out\n") && log.contains("to err\n"), "{log}");
    logged.remove().await
}

async fn an_exec_writes_to_a_file(runtime: Runtime) -> Result<()> {
    let node = Containerd::connect().await?;
    let logged = Logged::new(&node, runtime, "execfile")?;
    let output = logged.run(&["--null-io"], "exec sleep 60").await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    // The shim must make the directory.
    logged.exec(&format!("file://{}/new/log", logged.directory.display()), "echo from the exec").await?;
    wait::until(
        "its output",
        SOON,
        async || Ok((logged.read("new/log")? == "from the exec\n").then_some(())),
    )
    .await?;
    logged.remove().await
}

/// R6: restarts in place keep the logging program: one process gets the output of all runs.
#[tokio::test]
async fn r6_one_program_logs_every_run_of_a_sidecar() -> Result<()> {
    let node = Containerd::connect().await?;
    let logged = Logged::new(&node, Runtime::Podshim, "sidecar")?;
    let uri = logged.program_uri();
    let group = format!("io.kubernetes.cri.sandbox-id={}", logged.id);
    let flags = [
        "--log-uri",
        &uri,
        "--annotation",
        &group,
        "--annotation",
        "io.kubernetes.cri.container-name=s1",
        "--annotation",
        "podshim.io/plan=s1=sidecar, app=main",
    ];
    let output = logged.run(&flags, "echo a run; sleep 0.1").await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    wait::until("three runs", SOON, async || Ok((logged.read("out")?.lines().count() >= 3).then_some(())))
        .await?;
    ensure!(logged.read("pids")?.lines().count() == 1, "{}", logged.read("pids")?);
    logged.remove().await
}

/// R6: a sidecar's terminal keeps the size that its caller set, also after restarts in place. `script` provides the
/// caller's terminal.
#[tokio::test]
async fn r6_a_terminal_keeps_its_size() -> Result<()> {
    let node = Containerd::connect().await?;
    let id = format!("tty-{}", std::process::id());
    // ctr sets the size after the start, so the program reads it a little later.
    let run = format!(
        "stty rows 41 cols 97; ctr run -t --rm --runtime {} --annotation io.kubernetes.cri.sandbox-id={id} \
         --annotation io.kubernetes.cri.container-name=s1 --annotation 'podshim.io/plan=s1=sidecar, app=main' \
         {IMAGE} {id} sh -c 'sleep 0.7; stty size'",
        Runtime::Podshim.runtime_type()
    );
    let log = node.directory().join("pods").join(format!("{id}.tty"));
    fs::create_dir_all(log.parent().context("it has a parent")?)?;
    let script = format!(
        "timeout 30 script -qfec \"{}\" {log} </dev/null >/dev/null 2>&1 &
         for _ in $(seq 200); do
             [ \"$(grep -c '^41 97' {log})\" -ge 3 ] && break
             sleep 0.1
         done
         ctr task kill -s KILL {id}; wait",
        run.replace('"', "\\\""),
        log = log.display()
    );
    let output = node.ctr().output(&["--run", "timeout", "60", "sh", "-c", &script]).await?;
    let seen = fs::read_to_string(&log)?;
    ensure!(seen.matches("41 97").count() >= 3, "{seen}\n{output:?}");
    Footprint::of_containers(&[&id]).wait_gone(&node, SOON).await?;
    Ok(fs::remove_file(log)?)
}

/// R6: a size that the caller sets while the process is replaced applies to the next process.
#[tokio::test]
async fn r6_a_size_that_comes_during_a_restart_holds() -> Result<()> {
    let node = Containerd::connect().await?;
    let runtime = FaultyRuntime::around("runc", node.directory())?;
    let id = format!("tty-new-{}", std::process::id());
    let log = node.directory().join("pods").join(format!("{id}.tty"));
    fs::create_dir_all(log.parent().context("it has a parent")?)?;
    let run = format!(
        "stty rows 41 cols 97; tty >{log}.name; ctr run -t --rm --runtime {runtime} --runtime-config-path {config} \
         --annotation io.kubernetes.cri.sandbox-id={id} --annotation io.kubernetes.cri.container-name=s1 \
         --annotation 'podshim.io/plan=s1=sidecar, app=main' {IMAGE} {id} sh -c 'sleep 0.7; stty size; sleep 0.3'",
        runtime = Runtime::Podshim.runtime_type(),
        config = runtime.config().display(),
        log = log.display(),
    );
    let script = format!(
        "timeout 60 script -qfec \"{}\" {} </dev/null >/dev/null 2>&1",
        run.replace('"', "\\\""),
        log.display()
    );
    let shell = async |script: &str| node.ctr().output(&["--run", "timeout", "60", "sh", "-c", script]).await;
    let seen = |size: &str| {
        Ok::<_, anyhow::Error>(fs::read_to_string(&log).unwrap_or_default().matches(size).count())
    };
    let driven = async {
        let first = async || Ok((seen("41 97")? > 0).then_some(()));
        wait::until("the first run", SOON, first).await?;
        runtime.hold("create")?;
        runtime.wait_held("create").await?;
        let before = seen("41 97")?;
        shell(&format!("stty -F $(cat {}.name) rows 33 cols 88; sleep 1", log.display())).await?;
        runtime.release("create")?;
        wait::until("the next run", SOON, async || Ok((seen("33 88")? > 0).then_some(()))).await?;
        ensure!(seen("41 97")? == before, "{}", fs::read_to_string(&log)?);
        shell(&format!("ctr task kill -s KILL {id}")).await
    };
    let (output, driven) = tokio::join!(shell(&script), driven);
    driven.with_context(|| format!("{output:?}"))?;
    Footprint::of_containers(&[&id]).wait_gone(&node, SOON).await?;
    Ok(fs::remove_file(log)?)
}
