//! Probes whose work the container chooses: packet filters, mazes of links, addresses without number.
//!
//! The container pays for it: each test fails when it is done outside of the pod's cgroup.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::processor_time::{processor_time, time_inside};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support::{EndsWithTest, PROMPT, ensure_serving};

const WINDOW: Duration = Duration::from_secs(8);
/// What the shim may use in a window: its questions and what its helpers do before they are in the container.
const MOST: Duration = Duration::from_millis(500);
/// What helpers may use in a window that are killed in the middle of an attempt: one attempt, and a fifth of a processor.
const MOST_OF_KILLED: Duration = Duration::from_millis(1100 + 8000 / 5);

/// A pod whose sidecar `s1` has this gate, which stays closed.
fn gated(gate: &str, program: Program) -> Pod {
    Pod::new("asked")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", &format!("{gate};period=100ms;fail=100000"))
        .container(program)
        .container(Program::new("app"))
}

/// Runs a program in the network namespace of the pod, as a process of the container with CAP_NET_ADMIN could.
async fn configure(pod: &RunningPod<'_>, program: &[&str], input: &str) -> Result<()> {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/proc/{}/ns/net", pod.pid("s1").await?)).args(program).stdin(Stdio::piped());
    let mut child = command.spawn()?;
    child.stdin.take().context("no stdin")?.write_all(input.as_bytes()).await?;
    ensure!(child.wait().await?.success(), "{program:?}");
    Ok(())
}

/// What a window has cost.
struct Costs {
    own: Duration,
    called: Duration,
    inside: Duration,
}

async fn window(node: &Containerd, pod: &RunningPod<'_>) -> Result<Costs> {
    let shim = pod.shim_pid()?;
    let (before, inside) = (processor_time(shim)?, time_inside(node, pod)?);
    wait::quiet_time(WINDOW).await;
    let (now, inside) = (processor_time(shim)?, time_inside(node, pod)?.saturating_sub(inside));
    let (own, called) = (now.own - before.own, now.called - before.called);
    println!(
        "in {WINDOW:?}: {own:?} of the shim, {called:?} of processes that have ended, {inside:?} in the pod"
    );
    // It may just have been replaced.
    let one = async || Ok((helpers_inside(pod, shim)? == 1).then_some(()));
    wait::until("a process that asks, in the container's cgroup", PROMPT, one).await?;
    Ok(Costs { own, called, inside })
}

/// How many processes ask the container: one at the most, and that is in its cgroup.
fn helpers_inside(pod: &RunningPod<'_>, shim: libc::pid_t) -> Result<usize> {
    let (id, mut found) = (pod.id("s1")?, 0);
    for thread in std::fs::read_dir(format!("/proc/{shim}/task"))?.flatten() {
        let children = std::fs::read_to_string(thread.path().join("children"))?;
        for child in children.split_whitespace() {
            let read = |file| std::fs::read_to_string(format!("/proc/{child}/{file}")).unwrap_or_default();
            if read("comm") != "podshim-probe\n" {
                continue;
            }
            found += 1;
            let groups = read("cgroup");
            let is_charged = |line: &&str| line.contains(":cpu") || line.starts_with("0::");
            let charged: Vec<_> = groups.lines().filter(is_charged).collect();
            ensure!(charged.iter().any(|line| line.contains(id)), "{groups}");
        }
    }
    ensure!(found <= 1, "{found} processes ask one container");
    Ok(found)
}

/// A pod whose packet filters have some seventeen million rules for a connection of its gate: 0.2 s of a processor.
pub async fn filtered(node: &Containerd) -> Result<RunningPod<'_>> {
    const CHAINS: usize = 12;
    let mut pod = gated("tcp::8080", Program::new("s1")).run(node, Runtime::Podshim).await?;
    pod.start("s1").await?;
    let mut rules = "*filter\n".to_owned();
    (0..=CHAINS).for_each(|number| rules += &format!(":C{number} - [0:0]\n"));
    rules += "-A OUTPUT -p tcp --dport 8080 -j C0\n";
    for number in 0..CHAINS {
        rules += &format!("-A C{number} -j C{}\n", number + 1).repeat(4);
    }
    rules += "-A C12 -s 192.0.2.1 -j ACCEPT\nCOMMIT\n";
    configure(&pod, &["ip", "link", "set", "lo", "up"], "").await?;
    configure(&pod, &["iptables-restore"], &rules).await?;
    Ok(pod)
}

/// H4: each connection was 0.2 s of the shim's thread.
#[tokio::test]
async fn h4_a_connection_through_the_containers_filters_costs_the_container() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = filtered(&node).await?;
    let _end = EndsWithTest::of(&pod)?;
    let costs = window(&node, &pod).await?;
    ensure!(costs.own <= MOST && costs.called.saturating_sub(costs.inside) <= MOST, "it is done outside");
    ensure!(costs.inside >= Duration::from_millis(400), "{:?}: nothing was asked", costs.inside);
    ensure_serving(&pod, "s1").await?;
    pod.remove().await
}

/// A pod with 20,000 addresses, all of which an attempt of its gate lists, as it has no host.
pub async fn addressed(node: &Containerd) -> Result<RunningPod<'_>> {
    let mut pod = gated("tcp::8080", Program::new("s1")).run(node, Runtime::Podshim).await?;
    pod.start("s1").await?;
    let add = |number: u32| format!("addr add 10.{}.{}.1/32 dev lo\n", number / 200, number % 200);
    configure(&pod, &["ip", "-batch", "-"], &(0..20_000).map(add).collect::<String>()).await?;
    Ok(pod)
}

/// H6: each attempt listed them on the shim's thread.
#[tokio::test]
async fn h6_addresses_without_number_cost_the_container() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = addressed(&node).await?;
    let _end = EndsWithTest::of(&pod)?;
    let costs = window(&node, &pod).await?;
    ensure!(costs.own <= MOST && costs.called.saturating_sub(costs.inside) <= MOST, "it is done outside");
    ensure!(costs.inside >= Duration::from_millis(300), "{:?}: nothing was asked", costs.inside);
    ensure_serving(&pod, "s1").await?;
    pod.remove().await
}

/// A path of forty links, each through seven hundred directories, while something is renamed all the time: the kernel gives up
/// such a look, and podshim looks again.
pub fn maze() -> Pod {
    let script = "cd /tmp; mkdir d; touch x; p=$(for i in $(seq 700); do printf d/../; done); ln -s /tmp/none l0; \
                  for i in $(seq 37); do ln -s \"${p}l$((i-1))\" l$i; done; \
                  (while :; do mv x y; mv y x; done) &";
    gated("file:/tmp/l37", Program::new("s1").begins_with_script(script))
}

/// H6: each look took its whole timeout of a processor.
#[tokio::test]
async fn h6_a_path_through_a_maze_costs_the_container() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = maze().run(&node, Runtime::Podshim).await?;
    let _end = EndsWithTest::of(&pod)?;
    pod.start("s1").await?;
    let costs = window(&node, &pod).await?;
    ensure!(costs.own <= MOST, "{:?} of the shim", costs.own);
    ensure!(costs.called <= MOST_OF_KILLED, "{:?}: looks are not paced", costs.called);
    ensure_serving(&pod, "s1").await?;
    pod.remove().await
}
