//! A shim that gets no more descriptors or processes: it reports that, still ends containers on request, and works as
//! before when the limit is lifted.

use std::collections::BTreeSet;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::task::{NAMESPACE, Task, shell, unique};
use e2e::{Containerd, wait};

/// Requests that need a new descriptor or process fail with the system's error; State and a kill still work.
async fn ensure_refused(task: &Task<'_>, words: &str) -> Result<()> {
    for output in [task.exec(&[], &["true"]).await?, task.task(&["pause"]).await?] {
        ensure!(output.exit_code == Some(1) && output.stderr.contains(words), "{output:?}");
    }
    task.wait_status("RUNNING").await.map(drop)
}

async fn ensure_usable(task: &Task<'_>) -> Result<()> {
    let output = task.exec(&[], &["true"]).await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    Ok(())
}

async fn ensure_killable(task: &Task<'_>) -> Result<()> {
    let output = task.task(&["kill", "-s", "KILL"]).await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    task.wait_status("STOPPED").await.map(drop)
}

/// The ticks of processor time that a process has used.
fn ticks(pid: libc::pid_t) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

#[tokio::test]
async fn without_descriptors_a_shim_says_so_and_ends_its_container() -> Result<()> {
    let node = Containerd::connect().await?;
    let task = Task::run(&node, "nofile", &[], &["sleep", "600"]).await?;
    let shim = task.shim()?;
    let limit = async |number: u32| shell(&node, &format!("prlimit --pid {shim} --nofile={number}:")).await;
    let open: BTreeSet<u32> = std::fs::read_dir(format!("/proc/{shim}/fd"))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let before = shell(&node, &format!("prlimit --pid {shim} --nofile --noheadings --output SOFT")).await?;
    // All lower numbers are in use, so the shim gets no further descriptor.
    limit((0..).find(|number| !open.contains(number)).context("no number is free")?).await?;
    // EMFILE, for which each C library has another text.
    ensure_refused(&task, "(os error 24)").await?;

    // Clients that connect, more than the shim has kept descriptors for, do not make it spin on its listening socket.
    let socket = node.shim_socket(NAMESPACE, task.id())?;
    let connect = |_| UnixStream::connect(&socket);
    let _clients = (0..6).map(connect).collect::<Result<Vec<_>, _>>()?;
    let used = ticks(shim)?;
    wait::quiet_time(Duration::from_secs(1)).await;
    let used = ticks(shim)? - used;
    ensure!(used < 30, "{used} ticks in a second");

    limit(before.trim().parse()?).await?;
    ensure_usable(&task).await?;
    limit((0..).find(|number| !open.contains(number)).context("no number is free")?).await?;
    ensure_killable(&task).await?;
    limit(before.trim().parse()?).await?;
    task.remove().await
}

/// A shim has the name of its group as `-id`; the group's containers come and go.
fn shim_of_group(node: &Containerd, group: &str) -> Result<libc::pid_t> {
    let is_it = |pid: &libc::pid_t| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == group.as_bytes())
    };
    node.processes()?.into_iter().find(is_it).context("the group has no shim")
}

/// D9: containerd makes a connection for each container, and the shim has no descriptor for it. The caller gets the reason all the
/// same, not the end of its own patience; of many at once, those beyond the reserve get an error.
#[tokio::test]
async fn d9_without_descriptors_a_new_container_fails_at_once() -> Result<()> {
    let node = Containerd::connect().await?;
    let group = unique("nofile-group");
    let first = Task::run_in_group(&node, "nofile", &group, &[], &["sleep", "600"]).await?;
    let shim = shim_of_group(&node, &group)?;
    let limit = async |number: &str| shell(&node, &format!("prlimit --pid {shim} --nofile={number}:")).await;
    let before = shell(&node, &format!("prlimit --pid {shim} --nofile --noheadings --output SOFT")).await?;
    let open: BTreeSet<u32> = std::fs::read_dir(format!("/proc/{shim}/fd"))?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    let lowest = (0..).find(|number| !open.contains(number)).context("no number is free")?;
    limit(&lowest.to_string()).await?;
    let annotation = format!("io.containerd.runc.v2.group={group}");
    let another = async |number: u32| {
        let task = Task::named(&node, &format!("nofile-{number}"));
        let options = ["--annotation", &annotation];
        let attempt = task.attempt(&options, &["sleep", "600"]);
        let output = tokio::time::timeout(Duration::from_secs(20), attempt).await.context("it hangs")??;
        ensure!(output.exit_code == Some(1), "{output:?}");
        node.ctr().run(&["container", "rm", task.id()]).await?;
        Ok(output.stderr)
    };
    for number in 0..3 {
        let error = another(number).await?;
        ensure!(error.contains("(os error 24)"), "{error}");
    }
    tokio::try_join!(another(10), another(11), another(12), another(13), another(14))?;
    limit(before.trim()).await?;
    Task::run_in_group(&node, "nofile-after", &group, &[], &["true"]).await?.remove().await?;
    first.remove().await
}

#[tokio::test]
async fn without_processes_a_shim_says_so_and_ends_its_container() -> Result<()> {
    let node = Containerd::connect().await?;
    let task = Task::run(&node, "pids", &[], &["sleep", "600"]).await?;
    let shim = task.shim()?;
    let v1 = Path::new("/sys/fs/cgroup/pids");
    let root = if v1.is_dir() { v1 } else { Path::new("/sys/fs/cgroup") };
    let directory = root.join(unique("podshim-pids"));
    std::fs::create_dir(&directory)?;
    let write = |file: &str, text: String| {
        std::fs::write(directory.join(file), text).with_context(|| file.to_owned())
    };
    write("cgroup.procs", shim.to_string())?;
    let now = std::fs::read_to_string(directory.join("pids.current"))?;
    write("pids.max", now)?;
    ensure_refused(&task, "Resource temporarily unavailable").await?;
    ensure_killable(&task).await?;
    write("pids.max", "max".to_owned())?;
    task.remove().await?;
    std::fs::remove_dir(&directory).context("the shim's group")
}
