//! Where a container's cgroup is when the caller and the node disagree about the cgroup driver (DESIGN §5).

use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::durations::SOON;
use e2e::instance::signal;
use e2e::{Containerd, Event, Pod, Program, RunningPod, Runtime};

const MIB: i64 = 1 << 20;

/// The paths of a process's cgroups that end with its container's.
fn groups_of(pid: libc::pid_t, id: &str) -> Result<Vec<String>> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    Ok(paths.filter(|path| path.ends_with(id)).map(str::to_owned).collect())
}

/// The memory limit of the cgroup that the process is in, as the kernel has it.
fn memory_limit(pid: libc::pid_t) -> Result<i64> {
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let path = |wanted: &str| {
        let mut lines = groups.lines().map(|line| line.splitn(3, ':'));
        lines.find_map(|mut fields| (fields.nth(1)? == wanted).then(|| fields.next())?)
    };
    let v1 = path("memory").map(|path| format!("/sys/fs/cgroup/memory{path}/memory.limit_in_bytes"));
    let v2 = path("").map(|path| format!("/sys/fs/cgroup{path}/memory.max"));
    let file = v1.or(v2).context("no memory controller")?;
    Ok(std::fs::read_to_string(file)?.trim().parse()?)
}

/// The pid of the current process: CRI knows that of the first one only.
async fn pid(node: &Containerd, pod: &RunningPod<'_>, name: &str) -> Result<libc::pid_t> {
    let (id, list) = (pod.id(name)?, node.ctr().run(&["-n", "k8s.io", "task", "ls"]).await?);
    let line =
        list.lines().find(|line| line.starts_with(id)).with_context(|| format!("no {id} in {list}"))?;
    Ok(line.split_whitespace().nth(1).context("no pid")?.parse()?)
}

/// critest sends a slice as the pod's cgroup whatever the node's init is. Where systemd does not run, podshim takes the
/// slice for a path, as runc does without `--systemd-cgroup`. Statistics, limits, restarts and the end of a pod work as
/// usual.
#[tokio::test]
async fn a_slice_is_a_path_where_systemd_does_not_run() -> Result<()> {
    if Path::new("/run/systemd/system").is_dir() {
        return Ok(());
    }
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("no-systemd")
        .cgroup_parent("/podshim-e2e.slice")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "exec:true;period=200ms")
        .container(Program::new("s1").leaves_child().memory_limit(256 * MIB))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    pod.wait_for("app", Event::Started, 1, SOON).await?;
    let id = pod.id("s1")?.to_owned();
    let groups = groups_of(pid(&node, &pod, "s1").await?, &id)?;
    let name = format!("podshim-e2e.slice:cri-containerd:{id}");
    ensure!(!groups.is_empty() && groups.iter().all(|path| path.ends_with(&name)), "{groups:?}");
    let stats = node.cri()?.container_stats(&id).await?;
    ensure!(stats.memory.is_some_and(|memory| memory.working_set_bytes.is_some()), "no numbers");
    node.cri()?.update_memory_limit(&id, 128 * MIB).await?;
    signal(pid(&node, &pod, "s1").await?, libc::SIGKILL)?;
    pod.wait_for("s1", Event::Started, 2, SOON).await?;
    let after = groups_of(pid(&node, &pod, "s1").await?, &id)?;
    ensure!(after == groups, "{groups:?}, then {after:?}");
    let limit = memory_limit(pid(&node, &pod, "s1").await?)?;
    ensure!(limit == 128 * MIB, "{limit}");
    pod.stop("app", SOON).await?;
    pod.stop("s1", SOON).await?;
    pod.remove().await?;
    for path in groups {
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup")?.flatten() {
            let left = hierarchy.path().join(path.trim_start_matches('/'));
            ensure!(!left.exists(), "{} is left", left.display());
        }
    }
    Ok(())
}
