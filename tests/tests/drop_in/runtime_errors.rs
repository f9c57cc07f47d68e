//! The user gets the OCI runtime's error text unchanged (CONTRACT §8, trap 24): the same requests through containerd's
//! own shim and through podshim, with runc and with crun, give the same text and the same exit code.

use anyhow::{Result, ensure};
use e2e::durations::SOON;
use e2e::{Containerd, Footprint, Runtime, wait};

const IMAGE: &str = "podshim.test/busybox:1";
const OCI_RUNTIMES: [&str; 2] = ["runc", "crun"];

/// The arguments that make `ctr run` use an OCI runtime. It takes the binary's name only for containerd's own shim.
fn with_oci_runtime(node: &Containerd, runtime: Runtime, name: &str) -> Result<[String; 4]> {
    let (flag, value) = match runtime {
        Runtime::Runc => ("--runc-binary", name.to_owned()),
        Runtime::Podshim => {
            let path = node.directory().join(format!("errors-{name}-{}.toml", std::process::id()));
            std::fs::write(&path, format!("BinaryName = \"{name}\"\n"))?;
            ("--runtime-config-path", path.to_string_lossy().into_owned())
        }
    };
    Ok(["--runtime".to_owned(), runtime.runtime_type().to_owned(), flag.to_owned(), value])
}

/// An answer without the container's id, which differs from run to run.
async fn answer(node: &Containerd, id: &str, words: &[&str]) -> Result<(Option<i32>, String)> {
    let output = node.ctr().output(words).await?;
    Ok((output.exit_code, output.stderr.replace(id, "ID")))
}

/// Runs a container that cannot be created, on both shims. The error of each OCI runtime must contain its entry of
/// `fragments`.
async fn refused_alike(name: &str, flags: &[&str], program: &[&str], fragments: [&str; 2]) -> Result<()> {
    let node = Containerd::connect().await?;
    for (oci_runtime, fragment) in OCI_RUNTIMES.into_iter().zip(fragments) {
        let mut answers = Vec::new();
        for runtime in [Runtime::Runc, Runtime::Podshim] {
            let id = format!("{name}-{}-{}", runtime.handler(), std::process::id());
            let selection = with_oci_runtime(&node, runtime, oci_runtime)?;
            let words: Vec<&str> = ["run", "--rm"]
                .into_iter()
                .chain(selection.iter().map(String::as_str))
                .chain(flags.iter().copied())
                .chain([IMAGE, &id])
                .chain(program.iter().copied())
                .collect();
            answers.push(answer(&node, &id, &words).await?);
            Footprint::of_containers(&[&id]).wait_gone(&node, SOON).await?;
        }
        ensure!(answers[0] == answers[1], "{oci_runtime}: {answers:#?}");
        let (code, text) = &answers[1];
        ensure!(*code == Some(1) && text.contains("OCI runtime create failed: "), "{oci_runtime}: {text}");
        ensure!(text.contains(fragment), "{oci_runtime}: no {fragment:?} in {text}");
    }
    Ok(())
}

#[tokio::test]
async fn a_missing_program() -> Result<()> {
    refused_alike("program", &[], &["/no-such"], ["/no-such: no such file", "`/no-such` not found"]).await
}

#[tokio::test]
async fn a_directory_as_program() -> Result<()> {
    refused_alike("directory", &[], &["/etc"], ["\"/etc\": ", ": Operation not permitted"]).await
}

#[tokio::test]
async fn a_working_directory_that_cannot_be() -> Result<()> {
    let words = ["mkdir /proc/nope: no such file", "`/proc/nope`: No such file"];
    refused_alike("cwd", &["--cwd", "/proc/nope"], &["true"], words).await
}

#[tokio::test]
async fn a_missing_bind_source() -> Result<()> {
    let mount = ["--mount", "type=bind,src=/no-such,dst=/x,options=rbind"];
    refused_alike("mount", &mount, &["true"], [" /no-such: no such file", "`/no-such`: No such file"]).await
}

#[tokio::test]
async fn a_cgroup_that_cannot_be_made() -> Result<()> {
    // A path below a file instead of a directory, in the cgroup file systems of both versions.
    let cgroup = ["--cgroup", "/cgroup.procs/x"];
    refused_alike("cgroup", &cgroup, &["true"], ["ot a directory"; 2]).await
}

#[tokio::test]
async fn an_exec_of_a_missing_program() -> Result<()> {
    let node = Containerd::connect().await?;
    for oci_runtime in OCI_RUNTIMES {
        let mut answers = Vec::new();
        for runtime in [Runtime::Runc, Runtime::Podshim] {
            let id = format!("exec-{oci_runtime}-{}-{}", runtime.handler(), std::process::id());
            run_detached(&node, runtime, oci_runtime, &id, &["sleep", "1000"]).await?;
            let words = ["task", "exec", "--exec-id", "e", &id, "/no-such"];
            answers.push(answer(&node, &id, &words).await?);
            remove(&node, &id).await?;
        }
        ensure!(answers[0] == answers[1], "{oci_runtime}: {answers:#?}");
        let text = &answers[1].1;
        ensure!(
            text.contains("OCI runtime exec failed: ") && text.contains("/no-such"),
            "{oci_runtime}: {text}"
        );
    }
    Ok(())
}

/// CONTRACT §9, trap 24: the answer is NotFound, which CRI ignores, with either runtime. podshim's text names the
/// container too.
#[tokio::test]
async fn a_kill_after_the_exit() -> Result<()> {
    let node = Containerd::connect().await?;
    for oci_runtime in OCI_RUNTIMES {
        for runtime in [Runtime::Runc, Runtime::Podshim] {
            let id = format!("kill-{oci_runtime}-{}-{}", runtime.handler(), std::process::id());
            run_detached(&node, runtime, oci_runtime, &id, &["true"]).await?;
            wait::until("the task to stop", SOON, async || {
                let list = node.ctr().run(&["task", "ls"]).await?;
                let stopped = |line: &str| line.starts_with(&id) && line.contains("STOPPED");
                Ok(list.lines().any(stopped).then_some(()))
            })
            .await?;
            let (code, text) = answer(&node, &id, &["task", "kill", "-s", "KILL", &id]).await?;
            ensure!(code == Some(1), "{runtime:?}, {oci_runtime}: {text}");
            ensure!(text.contains("process already finished"), "{runtime:?}, {oci_runtime}: {text}");
            remove(&node, &id).await?;
        }
    }
    Ok(())
}

async fn run_detached(
    node: &Containerd,
    runtime: Runtime,
    oci_runtime: &str,
    id: &str,
    program: &[&str],
) -> Result<()> {
    let selection = with_oci_runtime(node, runtime, oci_runtime)?;
    let words: Vec<&str> = ["run", "--detach"]
        .into_iter()
        .chain(selection.iter().map(String::as_str))
        .chain([IMAGE, id])
        .chain(program.iter().copied())
        .collect();
    node.ctr().run(&words).await.map(drop)
}

async fn remove(node: &Containerd, id: &str) -> Result<()> {
    node.ctr().run(&["task", "rm", "-f", id]).await?;
    node.ctr().run(&["container", "rm", id]).await?;
    Footprint::of_containers(&[id]).wait_gone(node, SOON).await
}
