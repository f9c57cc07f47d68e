//! What one shim may cost a node. Checks figures that do not depend on time; they hold for the release build, which
//! `hack/test` runs.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::durations::SOON;
use e2e::{Containerd, FaultyRuntime, Pod, Program, Runtime, wait};

/// Bytes of the binary: 2.5 MiB.
const BINARY: u64 = 5 << 19;
/// Bytes of the `podshim` command, with the pages of its reference and that of `podshim web`: 3 MiB. It is in no pod.
const COMMAND: u64 = 3 << 20;
/// Resident memory in kB, for a pod of pause and three containers. Most of it is code that the shims of a node share.
const RESIDENT: u64 = 3_000;
/// The same where hack/build had no musl: the pages of the C library are added.
const RESIDENT_WITH_SHARED_LIBRARIES: u64 = 4_500;
/// Memory in kB that the shim shares with no other: what one more pod costs.
const PRIVATE_DIRTY: u64 = 480;
/// Threads when idle.
const THREADS: u64 = 2;
/// Open files of the head for a pod of pause and three containers, without those of their groups: 36 were seen. The pipes and fifos are the
/// hand's, which has a table of its own.
const OPEN_FILES: usize = 45;
/// Files of its groups that a container with a program takes besides, on cgroup v1 and v2.
const GROUP_FILES: [usize; 2] = [7, 9];

#[tokio::test]
async fn the_command_stays_within_its_size() -> Result<()> {
    let node = Containerd::connect().await?;
    let programs = fs::read_to_string(node.directory().join("bin"))?;
    let size = fs::metadata(PathBuf::from(programs.trim()).join("podshim"))?.len();
    ensure!(size <= COMMAND, "the command has {size} bytes, more than {COMMAND}; is it a release build?");
    documented(include_str!("../../../docs/daemonset.md"), "the command has ", size)
}

/// A page says so many MB, to a tenth.
fn documented(page: &str, before: &str, size: u64) -> Result<()> {
    let number = page.split(before).nth(1).and_then(|rest| rest.split(' ').next()).context("no size")?;
    let (number, size): (f64, f64) = (number.parse()?, f64::from(u32::try_from(size)?) / 1e6);
    ensure!((number - size).abs() < 0.1, "the page says {before:?} {number} MB, and it has {size:.2}");
    Ok(())
}

#[tokio::test]
async fn a_shim_of_three_containers_stays_within_its_budgets() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("budgets")
        .annotate("plan", "proxy=sidecar, app=main, worker=main")
        .container(Program::new("proxy"))
        .container(Program::new("app"))
        .container(Program::new("worker"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "worker", "proxy"]).await?;
    for name in ["proxy", "app", "worker"] {
        pod.wait_for(name, e2e::Event::Started, 1, Duration::from_secs(10)).await?;
    }
    let shim = shim_of(pod.sandbox())?;
    let size = fs::metadata(shim.join("exe"))?.len();
    ensure!(size <= BINARY, "the binary has {size} bytes, more than {BINARY}; is it a release build?");
    documented(include_str!("../../../docs/performance.md"), "The binary has ", size)?;

    // No event shows that the last helpers of a start have ended, so the test retries. A cause that wakes an idle shim
    // would do so again and again, and no try would pass.
    wait::until("2 s in which the idle shim does not wake up", 2 * SOON, async || {
        let before = number(&shim, "status", "voluntary_ctxt_switches:")?;
        wait::quiet_time(Duration::from_secs(2)).await;
        Ok((number(&shim, "status", "voluntary_ctxt_switches:")? == before).then_some(()))
    })
    .await?;

    let is_static = !fs::read_to_string(shim.join("maps"))?.contains(".so");
    for (file, key, limit) in [
        ("status", "VmRSS:", if is_static { RESIDENT } else { RESIDENT_WITH_SHARED_LIBRARIES }),
        ("smaps_rollup", "Private_Dirty:", PRIVATE_DIRTY),
        ("status", "Threads:", THREADS),
    ] {
        let value = number(&shim, file, key)?;
        println!("{key} {value}");
        ensure!(value <= limit, "{key} {value}, more than {limit}");
    }
    let open_files = fs::read_dir(shim.join("fd"))?.count();
    let is_v2 = fs::exists("/sys/fs/cgroup/cgroup.controllers")?;
    let programs = if node.makes_own_sandboxes() { 3 } else { 4 };
    let most = OPEN_FILES + programs * GROUP_FILES[usize::from(is_v2)];
    ensure!(open_files <= most, "{open_files} open files, more than {most}");
    pod.remove().await
}

/// A started process costs more than anything else that a shim does: signals, states, statistics and exits need none.
#[tokio::test]
async fn no_operation_starts_the_runtime_more_often_than_it_must() -> Result<()> {
    let (oci_runtime, node) = FaultyRuntime::of_a_node().await?;
    let mut pod = Pod::new("processes")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy").runs_for_each(&[Duration::from_millis(300), 1000 * SOON]))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "proxy"]).await?;
    pod.wait_for("proxy", e2e::Event::Started, 2, SOON).await?;
    pod.exec("app", &["/bin/true"]).await?;
    node.cri()?.container_stats(pod.id("app")?).await?;
    pod.stop_all_at_once(SOON).await?;
    pod.remove().await?;
    let calls = oci_runtime.calls()?;
    // The sandbox, unless podshim makes it; the sidecar, the main; and the sidecar's restart in place (R6). The shim's
    // `delete` action, which containerd runs when it finds the connection to the pod's shim closed (CONTRACT §1.8), finds
    // nothing to do.
    let containers = if node.makes_own_sandboxes() { 3 } else { 4 };
    for (command, times) in
        [("create", containers), ("start", containers), ("delete", containers), ("exec", 1)]
    {
        let found = calls.iter().filter(|call| *call == command).count();
        ensure!(found == times, "{command}: {found} times, not {times}: {calls:?}");
    }
    let others: Vec<_> =
        calls.iter().filter(|call| !["create", "start", "delete", "exec"].contains(&call.as_str())).collect();
    ensure!(others.is_empty(), "{others:?}");
    Ok(())
}

/// The `/proc` directory of a pod's shim.
fn shim_of(sandbox: &str) -> Result<PathBuf> {
    let processes = fs::read_dir("/proc")?.filter_map(|entry| Some(entry.ok()?.path()));
    let is_shim = |path: &PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains("containerd-shim-podshim-v2") && line.split('\0').any(|argument| argument == sandbox)
    };
    processes.into_iter().find(is_shim).with_context(|| format!("no shim of sandbox {sandbox}"))
}

fn number(process: &std::path::Path, file: &str, key: &str) -> Result<u64> {
    let text = fs::read_to_string(process.join(file))?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key))
        .with_context(|| format!("no {key} in {file}"))?;
    line.split_whitespace()
        .next()
        .and_then(|word| word.parse().ok())
        .with_context(|| format!("{key} is no number"))
}
