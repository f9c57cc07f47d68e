//! What a container that shares the pid namespace can do to a sandbox that podshim makes (`sandbox = "own"`). The test uses a
//! containerd of its own, whose node's file says so.

use std::path::Path;

use anyhow::{Result, ensure};
use e2e::Event::Started;
use e2e::durations::SOON;
use e2e::pod::PidNamespace;
use e2e::{Containerd, Pod, Program, Runtime, wait};

/// What the container tries, each with a word if it succeeds. It is root there, as the sandbox's program is.
const ATTEMPTS: &str = "
    [ -z \"$(ls -A /proc/1/root 2>/dev/null)\" ] || echo root
    ! readlink /proc/1/fd/0 2>/dev/null || echo fd
    [ -z \"$(ls -A /proc/1/cwd 2>/dev/null)\" ] || echo cwd
    ! head -c 1 /proc/1/mem 2>/dev/null || echo mem
    ! head -c 1 /proc/1/environ 2>/dev/null || echo environ
    ! readlink /proc/1/exe 2>/dev/null || echo exe
    ! cat /proc/1/maps 2>/dev/null | grep . || echo maps
    tracer 1
    kill -9 1; kill -STOP 1; kill -HUP 1; kill -SEGV 1
    sleep 0.2
    kill -0 1 || echo gone
    grep -E '^(Name|State|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/1/status";

#[tokio::test]
async fn a_container_reaches_nothing_through_the_sandbox_of_its_pod() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("sandbox = \"own\"").await?;
    let mut pod = Pod::new("own-processes")
        .pid_namespace(PidNamespace::Pod)
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("app").await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let output = pod.exec("app", &["sh", "-c", ATTEMPTS]).await?;
    let words: Vec<_> = output.stdout.split_whitespace().collect();
    // It may trace its own child.
    let expected = "child: attached 1: Operation not permitted \
                    Name: pause State: S (sleeping) CapEff: 0000000000000000 CapBnd: 0000000000000000 NoNewPrivs: 1 Seccomp: 2";
    ensure!(words.join(" ") == expected, "{output:?}");
    ensure!(
        node.ctr()
            .output(&["--run", "sh", "-c", "ls /run/containerd/runc/k8s.io | wc -l"])
            .await?
            .stdout
            .trim()
            == "1"
    );
    pod.stop_sandbox().await?;
    pod.remove().await
}

/// docs/trust.md: with SIGTERM a container that shares the pid namespace ends its own pod, as with the OCI runtime's pause.
#[tokio::test]
async fn a_container_can_end_its_own_pod_by_its_process_1() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("sandbox = \"own\"").await?;
    let mut pod = Pod::new("ends-itself")
        .pid_namespace(PidNamespace::Pod)
        // AppArmor's usual profile lets no signal out of it.
        .container(Program::new("app").unconfined())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("app").await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let (process_1, app) = (pod.sandbox_pid().await?, node.cri()?.container_pid(pod.id("app")?).await?);
    // The kernel kills the command too, with all of the namespace.
    let _ = pod.exec("app", &["kill", "-TERM", "1"]).await;
    wait::until("the end of the pod's processes", SOON, async || {
        let lives = |pid: libc::pid_t| Path::new(&format!("/proc/{pid}")).exists();
        Ok((!lives(process_1) && !lives(app)).then_some(()))
    })
    .await?;
    pod.stop_sandbox().await?;
    pod.remove().await
}
