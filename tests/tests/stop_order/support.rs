//! Helpers that the tests of this binary share: durations, and looking at tasks from outside the CRI. Knows no rule.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::cri::ContainerStatus;
pub(crate) use e2e::durations::{AMPLE, SOON, TOLERANCE, at_most, milliseconds, near, seconds};
use e2e::{Containerd, Event, Pod, RunningPod, Runtime, wait};

/// Waits until each of these containers has recorded that its program has started. Name each container that gets a
/// signal soon: a gate opens at the exec (U1), and the first process of a pid namespace loses a signal for which it has
/// no handler yet.
pub(crate) async fn wait_started(pod: &RunningPod<'_>, names: &[&str]) -> Result<()> {
    for name in names {
        pod.wait_for(name, Event::Started, 1, SOON).await?;
    }
    Ok(())
}

/// Runs a pod, starts these of its containers in this order, and waits until their programs have started.
pub(crate) async fn run_started<'node>(
    pod: Pod,
    node: &'node Containerd,
    names: &[&str],
) -> Result<RunningPod<'node>> {
    let mut pod = pod.run(node, Runtime::Podshim).await?;
    pod.start_all(names).await?;
    wait_started(&pod, names).await?;
    Ok(pod)
}

/// Makes a program end by itself, as far as podshim and the caller know.
pub(crate) async fn end_from_inside(pod: &RunningPod<'_>, name: &str) -> Result<()> {
    pod.exec(name, &["kill", "1"]).await?;
    Ok(())
}

/// A hook that records its start and end under a name of its own.
pub(crate) fn hook(name: &str, flags: &str) -> String {
    format!("exec:/bin/pod-member --name {name} --log /pod/timeline.log {flags}")
}

/// When a container ended, since the Unix epoch. From its status, because a killed container records nothing.
pub(crate) fn finished_at(status: &ContainerStatus) -> Result<Duration> {
    Ok(Duration::from_nanos(status.finished_at.try_into()?))
}

/// The exit code of each of these containers, all of which must have exited.
pub(crate) async fn exit_codes<const COUNT: usize>(
    pod: &RunningPod<'_>,
    names: [&str; COUNT],
) -> Result<[i32; COUNT]> {
    let mut codes = [0; COUNT];
    for (code, name) in codes.iter_mut().zip(names) {
        *code = pod.wait_exited(name, SOON).await?.exit_code;
    }
    Ok(codes)
}

/// Runs `ctr task kill` for a container of a CRI pod: a single Kill request.
pub(crate) async fn kill_task(node: &Containerd, id: &str, arguments: &[&str]) -> Result<()> {
    let words = ["-n", "k8s.io", "task", "kill"].into_iter().chain(arguments.iter().copied());
    node.ctr().run(&words.chain([id]).collect::<Vec<_>>()).await?;
    Ok(())
}

/// The pid of a task's init from `ctr task ls`; `None` if there is no such task or it has stopped.
pub(crate) async fn task_pid(node: &Containerd, namespace: &str, id: &str) -> Result<Option<libc::pid_t>> {
    let list = node.ctr().run(&["-n", namespace, "task", "ls"]).await?;
    let line = list.lines().find(|line| line.split_whitespace().next() == Some(id));
    let Some([_, pid, status]) = line
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .as_deref()
        .map(|words| <[&str; 3]>::try_from(words).unwrap_or([""; 3]))
    else {
        return Ok(None);
    };
    if status == "STOPPED" {
        return Ok(None);
    }
    Ok(Some(pid.parse().with_context(|| format!("no pid of {id} in {list}"))?))
}

/// Waits until a process is gone.
pub(crate) async fn wait_dead(pid: libc::pid_t, within: Duration) -> Result<()> {
    wait::until(&format!("process {pid} to be gone"), within, async || {
        Ok((!e2e::instance::is_alive(pid)).then_some(()))
    })
    .await
}

/// The real exit code that the shim logged for a container whose shown code it masked (J2), if it did.
pub(crate) fn logged_real_code(node: &Containerd, id: &str) -> Result<Option<i32>> {
    let log = std::fs::read_to_string(node.directory().join("containerd.log"))?;
    let line = log
        .lines()
        .find(|line| line.contains("callers see another exit code than the real one") && line.contains(id));
    let code = line.and_then(|line| line.split_once("real=")?.1.split_whitespace().next()?.parse().ok());
    Ok(code)
}
