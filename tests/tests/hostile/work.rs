//! Work that a pod causes outside of its cgroup.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::Starting;
use e2e::durations::pace;
use e2e::instance::status_number;
use e2e::processor_time::{processor_time, time_inside};
use e2e::timeline::Timeline;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};
use tokio::time::Instant;

use crate::support::{EndsWithTest, ensure_serving};

/// On an idle machine a pod has used up its initial credit of processor time after this.
const SETTLED: Duration = Duration::from_secs(12);
const WINDOW: Duration = Duration::from_secs(10);
/// The initial credit, and four calls that are under way at the end. On a busy machine each call takes more, and the
/// credit lasts longer than `SETTLED`.
const AT_ONCE: Duration = Duration::from_millis(2000 + 1200);
/// Beyond the credit a pod may use one part in so many of a processor.
const SHARE: u32 = 5;
/// So many restarts are under way at both ends of a window. What one of them takes depends on what else the machine does.
const UNDER_WAY: u32 = 4;
/// What the shim's own process may use in a window: unoptimised, with all its log lines.
const MOST_OF_ITS_OWN: Duration = Duration::from_millis(1500);

fn sidecars(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("s{number}")).collect()
}

pub fn restarting(count: usize) -> Pod {
    let names = sidecars(count);
    let mut pod = Pod::new("restarts").annotate("plan", &(names.join("+") + "=sidecar, app=main"));
    for name in names {
        pod = pod
            .annotate(&format!("restart.{name}"), "always;base=100ms;max=100ms")
            .annotate(&format!("ready.{name}"), "none")
            .container(Program::new(&name).exits(0));
    }
    pod.container(Program::new("app"))
}

pub fn probing(count: usize) -> Pod {
    let names = sidecars(count);
    let mut pod = Pod::new("probes").annotate("plan", &(names.join("+") + "=sidecar, app=main"));
    for name in names {
        pod = pod
            .annotate(&format!("ready.{name}"), "exec:false;period=100ms;fail=100000")
            .container(Program::new(&name));
    }
    pod.container(Program::new("app"))
}

pub async fn start(pod: &mut RunningPod<'_>, count: usize) -> Result<()> {
    for number in 1..=count {
        pod.start(&format!("s{number}")).await?;
    }
    pod.start("app").await
}

/// Checks the processor time since `begun`, when the shim did not exist yet.
async fn ensure_bounded(node: &Containerd, pod: &RunningPod<'_>, begun: Instant) -> Result<()> {
    let shim = pod.shim_pid()?;
    wait::quiet_time(SETTLED).await;
    let (before, inside_before) = (processor_time(shim)?, time_inside(node, pod)?);
    wait::quiet_time(WINDOW).await;
    let (now, inside) = (processor_time(shim)?, time_inside(node, pod)?.saturating_sub(inside_before));
    let (own, called) = (now.own - before.own, (now.called - before.called).saturating_sub(inside));
    let (since_then, all) = (begun.elapsed(), now.called.saturating_sub(time_inside(node, pod)?));
    println!(
        "of a processor in {WINDOW:?}: {called:?} by what the shim has called, {own:?} by itself, {inside:?} in the pod"
    );
    println!("since its beginning: {all:?} in {since_then:?}");
    ensure!(all <= AT_ONCE + since_then / SHARE, "{all:?} in {since_then:?}");
    ensure!(own <= MOST_OF_ITS_OWN * pace(), "{own:?} of its own in {WINDOW:?}");
    ensure!(called + own >= Duration::from_millis(200), "{called:?} and {own:?}: nothing was done at all");
    Ok(())
}

/// A stop does not wait until restarts and probes may run again: it takes less than such a wait could. CRI kills one
/// container after another, so that twelve take a while on a busy machine.
async fn stop(pod: RunningPod<'_>) -> Result<()> {
    let begun = Instant::now();
    wait::at_most(
        Duration::from_secs(50) * pace(),
        "the stop waits for restarts or probes",
        pod.stop_sandbox(),
    )
    .await?;
    println!("stopped in {:?}", begun.elapsed());
    pod.remove().await
}

/// Issue 18: ten containers that end at once and are restarted every 100 ms took two thirds of a processor.
#[tokio::test]
async fn r4_restarts_take_a_part_of_a_processor() -> Result<()> {
    let node = Containerd::connect().await?;
    let begun = Instant::now();
    let mut pod = restarting(10).run(&node, Runtime::Podshim).await?;
    let _end = EndsWithTest::of(&pod)?;
    start(&mut pod, 10).await?;
    ensure_bounded(&node, &pod, begun).await?;
    ensure_serving(&pod, "app").await?;
    stop(pod).await
}

/// A pod whose stop a deaf main makes last for a year, with sidecars that end at once and are restarted for it (R2).
pub fn stopping(count: usize) -> Pod {
    restarting(count)
        .annotate("grace", "8760h")
        .annotate("plan", &format!("{}=sidecar, app=main, deaf=main, x=main", sidecars(count).join("+")))
        .annotate("fatal.x", "exit")
        .container(Program::new("deaf").ignores_term())
        .container(Program::new("x").runs_for(Duration::from_secs(1)))
}

/// Starts it, and its stop has begun.
pub async fn begin_stop(pod: &mut RunningPod<'_>, count: usize) -> Result<()> {
    start(pod, count).await?;
    pod.start_all(&["deaf", "x"]).await?;
    pod.wait_exited("x", SETTLED * pace()).await?;
    Ok(())
}

/// H7: in a stop that an ill-willed main makes last for a year the sidecars are restarted for it (R2), and share the fifth too:
/// each took a call of the OCI runtime a second.
#[tokio::test]
async fn h7_r2_restarts_in_a_stop_take_a_part_of_a_processor() -> Result<()> {
    const COUNT: usize = 24;
    let node = Containerd::connect().await?;
    let mut pod = stopping(COUNT).run(&node, Runtime::Podshim).await?;
    let _end = EndsWithTest::of(&pod)?;
    begin_stop(&mut pod, COUNT).await?;
    let shim = pod.shim_pid()?;
    wait::quiet_time(SETTLED).await;
    let runs = |timeline: Timeline| -> usize {
        sidecars(COUNT).iter().map(|name| timeline.count(name, Starting)).sum()
    };
    // On a busy machine the restarts are so slow that the pod has not used what it may use at once (2 s) when the first window begins.
    for last in [false, false, true] {
        let (before, inside_before) = (processor_time(shim)?, time_inside(&node, &pod)?);
        let runs_before = runs(pod.timeline()?);
        wait::quiet_time(WINDOW).await;
        let inside = time_inside(&node, &pod)?.saturating_sub(inside_before);
        let called = (processor_time(shim)?.called - before.called).saturating_sub(inside);
        let restarts = u32::try_from(runs(pod.timeline()?) - runs_before)?;
        println!(
            "of a processor in {WINDOW:?} of a stop: {called:?} by what the shim has called for {restarts} restarts"
        );
        ensure!(restarts > 0, "no sidecar was restarted for a main that lives");
        let most = WINDOW / SHARE + called / restarts * UNDER_WAY;
        if called <= most {
            break;
        }
        ensure!(!last, "{called:?} in {WINDOW:?} for {restarts} restarts, {most:?} allowed");
    }
    ensure_serving(&pod, "deaf").await?;
    stop(pod).await
}

/// Issue 18: ten probes every 100 ms took half of a processor.
#[tokio::test]
async fn u2_probes_take_a_part_of_a_processor() -> Result<()> {
    let node = Containerd::connect().await?;
    let begun = Instant::now();
    let mut pod = probing(10).run(&node, Runtime::Podshim).await?;
    let _end = EndsWithTest::of(&pod)?;
    start(&mut pod, 10).await?;
    ensure_bounded(&node, &pod, begun).await?;
    ensure_serving(&pod, "s1").await?;
    stop(pod).await
}

/// A pattern `log:[bbb...a]{500}#`, with which the shim grew to 711 MB and needed minutes for a line.
pub fn large_pattern() -> String {
    format!("log:[{}a]{{500}}#;fail=1000", "b".repeat(60_000))
}

/// Issue 18.
#[tokio::test]
async fn u2_a_pattern_costs_what_it_means() -> Result<()> {
    let node = Containerd::connect().await?;
    let line = "while true; do head -c 16000 /dev/zero | tr '\\0' b; echo; done &";
    let mut pod = Pod::new("pattern")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", &large_pattern())
        .container(Program::new("s1").begins_with_script(line))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    let _end = EndsWithTest::of(&pod)?;
    pod.start_all(&["s1", "app"]).await?;
    let shim = pod.shim_pid()?;
    let before = processor_time(shim)?;
    wait::quiet_time(WINDOW).await;
    let used = processor_time(shim)?.own - before.own;
    println!("of a processor in {WINDOW:?}: {used:?}");
    // A look that is under way at either end of the window.
    let under_way = Duration::from_millis(100) * pace();
    ensure!(used <= WINDOW / SHARE + under_way, "{used:?} of a processor in {WINDOW:?}");
    ensure_serving(&pod, "s1").await?;
    let kilobytes = status_number(shim, "RssAnon")?;
    ensure!(kilobytes < 16_000, "the shim keeps {kilobytes} kB");
    pod.remove().await
}
