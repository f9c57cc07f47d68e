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

    // A client that connects must wait, and the shim must not spin on its listening socket.
    let socket = node.shim_socket(NAMESPACE, task.id())?;
    let _waiting = UnixStream::connect(&socket)?;
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
