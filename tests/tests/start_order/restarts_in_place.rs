//! What a restart in place keeps and what it replaces (R6, R10): callers see the same container, with a new process.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting};
use e2e::instance::{CgroupDriver, signal};
use e2e::pod::PidNamespace;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};

use crate::support::{SOON, are_running, seconds, task, wait_started};

const MIB: i64 = 1 << 20;

/// Kills the sidecar's program from outside and waits until it has started again; `run` counts from 1.
async fn crash(node: &Containerd, pod: &RunningPod<'_>, run: usize) -> Result<()> {
    signal(task(node, pod.id("s1")?).await?.pid, libc::SIGKILL)?;
    pod.wait_for("s1", Started, run, SOON).await?;
    Ok(())
}

/// R6, R8: the root file system with its writes, the log and the container stay; the process is new, and callers see
/// its pid.
#[tokio::test]
async fn r6_files_and_output_outlast_the_process() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r6")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").prints("one run"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.exec("s1", &["sh", "-c", "echo kept > /root/file"]).await?;
    let (id, before) = (pod.id("s1")?.to_owned(), pod.status("s1").await?);
    let first = task(&node, &id).await?;
    crash(&node, &pod, 2).await?;
    let second = task(&node, &id).await?;
    ensure!(second.status == "RUNNING" && second.pid != first.pid, "{first:?}, then {second:?}");
    ensure!(e2e::instance::is_alive(second.pid), "{second:?}");
    let kept = pod.exec("s1", &["cat", "/root/file"]).await?;
    ensure!(kept.stdout == "kept\n", "{kept:?}");
    let output = wait::until("both runs in one log", SOON, async || {
        let output = pod.output("s1")?;
        Ok((output.matches("one run").count() == 2).then_some(output))
    })
    .await?;
    ensure!(output.matches(" s1 Starting ").count() == 2, "{output}");
    // No TaskExit: nothing of the status has changed.
    ensure!(pod.status("s1").await? == before, "{before:?}, then {:?}", pod.status("s1").await?);
    pod.timeline()?.has_not_restarted("app")?;
    pod.remove().await
}

/// R6: processes that the old one leaves in a shared pid namespace are gone before the new one runs.
#[tokio::test]
async fn r6_a_child_left_in_a_shared_pid_namespace_goes_first() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r6-child")
        .pid_namespace(PidNamespace::Pod)
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").leaves_child())
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let processes = async || {
        let list = pod.exec("app", &["ps", "-o", "pid,args"]).await?.stdout;
        let of_sidecar = list.lines().filter(|line| line.contains("--name s1"));
        anyhow::Ok(
            of_sidecar.filter_map(|line| line.split_whitespace().next()?.parse::<u32>().ok()).collect(),
        )
    };
    let first: Vec<u32> = processes().await?;
    ensure!(first.len() == 2, "{first:?}");
    crash(&node, &pod, 2).await?;
    let second: Vec<u32> = processes().await?;
    ensure!(second.len() == 2 && second.iter().all(|pid| !first.contains(pid)), "{first:?}, {second:?}");
    pod.remove().await
}

/// The file of a controller in the group of a process.
fn group_file(pid: libc::pid_t, controller: &str, v1: &str, v2: &str) -> Result<PathBuf> {
    let top = Path::new("/sys/fs/cgroup");
    let membership = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    if top.join("cgroup.controllers").exists() {
        let path = membership.lines().find_map(|line| line.strip_prefix("0::/"));
        return Ok(top.join(path.context("no group")?).join(v2));
    }
    let found = membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_it = controllers.split(',').any(|one| one == controller);
        is_it.then(|| top.join(controllers).join(path.trim_start_matches('/')).join(v1))
    });
    found.context("no group")
}

/// The processor time of a container as `ctr` shows it, in the unit of its cgroup version.
async fn processor_time(node: &Containerd, id: &str) -> Result<u64> {
    let metrics = node.ctr().run(&["-n", "k8s.io", "task", "metrics", id]).await?;
    let line =
        metrics.lines().find(|line| line.contains("cpuacct.usage ") || line.contains("cpu.usage_usec"));
    let number = line.and_then(|line| line.split_whitespace().last()?.parse().ok());
    number.with_context(|| metrics.clone())
}

/// R6, D2: a kubelet that subtracts two readings gets a number near 2^64 where a counter falls, and an agent that has written a
/// quota, or a kubelet's set of processors, hears of no restart. Where systemd makes the group it goes with its last process.
#[tokio::test]
async fn r6_d2_counters_do_not_fall_and_what_was_written_past_the_shim_stays() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r6-group")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").memory_limit(256 * MIB))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let id = pod.id("s1")?.to_owned();
    let pid = task(&node, &id).await?.pid;
    let files = [
        (group_file(pid, "cpu", "cpu.cfs_quota_us", "cpu.max")?, "33000"),
        (group_file(pid, "cpu", "cpu.shares", "cpu.weight")?, "77"),
        (group_file(pid, "cpuset", "cpuset.cpus", "cpuset.cpus")?, "0"),
        (group_file(pid, "pids", "pids.max", "pids.max")?, "777"),
    ];
    // Of cgroup v2 a group has the controllers that its spec asks for, and CRI asks for no processors here.
    let files = files
        .into_iter()
        .filter(|(file, _)| !file.ends_with("cpuset.cpus") || file.exists())
        .collect::<Vec<_>>();
    ensure!(files.len() >= 3, "{files:?}");
    for (file, value) in &files {
        std::fs::write(file, value).with_context(|| file.display().to_string())?;
    }
    let mut before = 0;
    for run in 2..5 {
        pod.exec("s1", &["sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"]).await?;
        let now = processor_time(&node, &id).await?;
        ensure!(now > before, "{before}, then {now}");
        before = now;
        crash(&node, &pod, run).await?;
        let after = processor_time(&node, &id).await?;
        ensure!(after >= before, "run {run}: {before}, then {after}");
        if node.cgroup_driver()? == CgroupDriver::Cgroupfs {
            for (file, value) in &files {
                let found = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
                ensure!(found.starts_with(value), "{}: {found} for {value}", file.display());
            }
        }
    }
    pod.remove().await
}

/// R6: limits that were changed since the start apply to the new process too.
#[tokio::test]
async fn r6_changed_limits_hold_for_the_next_process() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r6-limits")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").memory_limit(256 * MIB))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    let limit = async || {
        let files = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null";
        let output = pod.exec("s1", &["sh", "-c", files]).await?;
        Ok::<i64, anyhow::Error>(output.stdout.trim().parse()?)
    };
    ensure!(limit().await? == 256 * MIB, "{}", limit().await?);
    node.cri()?.update_memory_limit(pod.id("s1")?, 128 * MIB).await?;
    ensure!(limit().await? == 128 * MIB, "{}", limit().await?);
    crash(&node, &pod, 2).await?;
    // The limit applies before the program runs.
    ensure!(limit().await? == 128 * MIB, "{}", limit().await?);
    pod.remove().await
}

/// R6, F11, F13: while a sidecar waits for its restart it is RUNNING, has the sandbox's pid, and still has statistics.
#[tokio::test]
async fn r6_a_sidecar_in_backoff_answers() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r6-backoff")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart.s1", "always;first=5m;max=5m")
        .container(Program::new("s1").runs_for(seconds(1)).exits(1))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    pod.wait_for("s1", Exiting, 1, SOON).await?;
    let (id, sandbox) = (pod.id("s1")?.to_owned(), task(&node, pod.sandbox()).await?);
    wait::until("the backoff", SOON, async || {
        let shown = task(&node, &id).await?;
        ensure!(shown.status == "RUNNING", "{shown:?}");
        Ok((shown == sandbox).then_some(()))
    })
    .await?;
    are_running(&pod, &["s1"]).await?;
    let stats = node.cri()?.container_stats(&id).await?;
    ensure!(stats.cpu.is_some() && stats.memory.is_some(), "{stats:?}");
    ensure!(pod.timeline()?.count("s1", Starting) == 1, "the backoff is over:\n{}", pod.timeline()?);
    pod.remove().await
}

/// R6 (`kubectl debug --target`): a debug container that shares the pid namespace of a sidecar joins that of the live
/// process, though its caller knows only the first one.
#[tokio::test]
async fn r6_a_debug_container_joins_the_live_process() -> Result<()> {
    let node = Containerd::connect().await?;
    // As `kubectl debug` names its containers.
    let debug = Program::new("debugger-x7k2p");
    let mut pod = Pod::new("r6-debug")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .container(debug.shares_pid_namespace_of("s1"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    crash(&node, &pod, 2).await?;
    pod.start("debugger-x7k2p").await?;
    wait_started(&pod, &["debugger-x7k2p"]).await?;
    let namespace = async |name| anyhow::Ok(pod.exec(name, &["readlink", "/proc/self/ns/pid"]).await?.stdout);
    let (target, joined) = (namespace("s1").await?, namespace("debugger-x7k2p").await?);
    ensure!(target == joined && target.starts_with("pid:"), "{target:?}, {joined:?}");
    pod.remove().await
}

/// R10 (kubernetes#111356): a sidecar killed for memory is restarted, and its caller gets no OOM event.
#[tokio::test]
async fn r10_a_sidecar_killed_for_memory_comes_back() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("r10")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1").memory_limit(20 * MIB).allocates_mib(64))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    let timeline = pod.wait_for("s1", Started, 3, SOON).await?;
    ensure!(timeline.count("s1", Exiting) == 0, "it was to be killed:\n{timeline}");
    let status = pod.status("s1").await?;
    are_running(&pod, &["s1", "app"]).await?;
    ensure!(status.reason.is_empty(), "{status:?}");
    pod.remove().await
}

/// D3, R6: a log has whole lines. What the program of before left unfinished is a line of its own, also where podshim or a hook goes
/// on in the same log.
#[tokio::test]
async fn d3_r6_an_unfinished_line_ends_before_the_next_run() -> Result<()> {
    let node = Containerd::connect().await?;
    let script = "if [ -e /again ]; then echo second; echo '{\"run\":2}' >&2
         else touch /again; printf half; printf '{\"run\":1}' >&2; exit 1; fi";
    let mut pod = Pod::new("d3")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("on-terminate.s1", "exec:printf hook")
        .container(Program::new("s1").begins_with_script(script))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    pod.wait_for_output("s1", "\"run\":2").await?;
    pod.stop_all_at_once(seconds(30)).await?;
    let log = pod.wait_for_output("s1", "s1 Exiting").await?;
    for line in
        ["stdout F half", "stdout F second", "stderr F {\"run\":1}", "stderr F {\"run\":2}", "stdout F hook"]
    {
        ensure!(log.lines().any(|of_log| of_log.ends_with(line)), "no line {line:?}:\n{log}");
    }
    pod.remove().await
}

/// D12, R6: a kubelet shows what is in the file when the container has ended, and the run that ends wrote nothing.
#[tokio::test]
async fn d12_r6_a_termination_message_is_its_own_runs() -> Result<()> {
    let node = Containerd::connect().await?;
    let message = tempfile::NamedTempFile::new_in(node.directory())?;
    let script = "[ -e /again ] && cat /dev/termination-log || { touch /again; echo it broke >/dev/termination-log; exit 1; }";
    let mut pod = Pod::new("d12")
        .annotate("plan", "s1=sidecar, app=main")
        .container(
            Program::new("s1").begins_with_script(script).mount(message.path(), "/dev/termination-log"),
        )
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    let log = pod.output("s1")?;
    ensure!(!log.contains("it broke"), "the second run sees it:\n{log}");
    pod.stop_all_at_once(seconds(30)).await?;
    let left = std::fs::read_to_string(message.path())?;
    ensure!(left.is_empty(), "a kubelet would show {left:?}");
    pod.remove().await
}
