//! Locks of the kernel that a container holds: without a privilege or an annotation it keeps the reader of its output waiting.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::Started;
use e2e::durations::SOON;
use e2e::instance::{is_alive, signal};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};

use crate::support::{EndsWithTest, PROMPT, podshim};

/// More than the time for which an operation waits for a thread that does not answer, before another one takes its place.
const WITHIN: Duration = Duration::from_secs(8);

async fn held_by_one<'node>(node: &'node Containerd, name: &str) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new(name)
        .container(Program::new("holder").holds_stdout())
        .container(Program::new("other"))
        .run(node, Runtime::Podshim)
        .await?;
    // One after the other: what waits for the hand while it is away fails with the reason.
    pod.start("other").await?;
    pod.start("holder").await?;
    wait_held(&pod).await?;
    Ok(pod)
}

/// Waits for a thread of the shim that waits for the lock.
async fn wait_held(pod: &RunningPod<'_>) -> Result<()> {
    let shim = pod.shim_pid()?;
    wait::until("a thread of the shim that waits for the lock", SOON, async || {
        Ok((waiting_threads(shim)? > 0).then_some(()))
    })
    .await
}

/// How many of its threads are in uninterruptible sleep, twice within a moment.
fn waiting_threads(process: libc::pid_t) -> Result<usize> {
    let waiting = || -> Result<Vec<PathBuf>> {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"))?.flatten().map(|task| task.path());
        let waits = |task: &PathBuf| {
            let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('D'))
        };
        Ok(tasks.filter(waits).collect())
    };
    let before = waiting()?;
    if before.is_empty() {
        return Ok(0);
    }
    std::thread::sleep(Duration::from_millis(100));
    Ok(waiting()?.iter().filter(|task| before.contains(task)).count())
}

/// H1: until podshim read streams on a thread of their own, no exec, stop or removal of the whole pod ended any more.
#[tokio::test]
async fn h1_a_container_that_holds_its_pipes_lock_stops_no_other_and_can_be_stopped() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = held_by_one(&node, "holder").await?;
    for container in ["other", "holder"] {
        let exec = pod.exec(container, &["echo", "served"]);
        let output = wait::at_most(WITHIN, "an exec beside a held lock", exec).await?;
        ensure!(output.stdout == "served\n", "{container}: {output:?}");
    }
    // containerd waits for the end of a container's output; that of another one comes when the lock is free.
    wait::at_most(PROMPT, "a stop of the holder", pod.stop("holder", Duration::from_secs(1))).await?;
    wait::at_most(PROMPT, "a stop of another container", pod.stop("other", Duration::from_secs(1))).await?;
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await
}

/// Counts ten times a second.
const COUNTER: &str = "i=0; while true; do i=$((i+1)); echo counted-$i; sleep 0.1; done &";
/// How long one container's act may delay another one's output, with what a busy machine adds.
const DELAY: Duration = Duration::from_millis(1800);

/// The numbers that have come.
fn counted(pod: &RunningPod<'_>) -> Result<Vec<usize>> {
    let output = pod.output("counter")?;
    Ok(output.lines().filter_map(|line| line.rsplit_once("counted-")?.1.parse().ok()).collect())
}

async fn counts_on(pod: &RunningPod<'_>) -> Result<()> {
    let before = counted(pod)?.len();
    let goes_on = async || Ok((counted(pod)?.len() > before).then_some(()));
    wait::until("another container's output", DELAY, goes_on).await
}

/// For how long a thread of the pod's streams has been away now, and the longest time for which one was.
async fn streams_away(node: &Containerd, pod: &RunningPod<'_>) -> Result<[u64; 2]> {
    let inspected = podshim(node, &["inspect", "--json", pod.sandbox()]).await?;
    let inspected: serde_json::Value = serde_json::from_str(&inspected)?;
    let of = |key: &str| inspected[key].as_u64().with_context(|| format!("no {key}: {inspected}"));
    Ok([of("streams_away_ms")?, of("streams_longest_away_ms")?])
}

/// H1: another container's output goes on within a second, on a thread that takes the stuck one's place, and none of it is lost or comes
/// twice, also when that comes back. The absence is in `podshim inspect` and in the metrics.
#[tokio::test]
async fn h1_another_containers_output_goes_on_within_a_second() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("holder-counter")
        .container(Program::new("holder").holds_stdout())
        .container(Program::new("counter").begins_with_script(COUNTER))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("counter").await?;
    wait::until("the first line", SOON, async || Ok((!counted(&pod)?.is_empty()).then_some(()))).await?;
    pod.start("holder").await?;
    wait_held(&pod).await?;
    for _ in 0..4 {
        counts_on(&pod).await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let [away, longest] = streams_away(&node, &pod).await?;
    ensure!(away >= 1000 && longest >= away, "away for {away} ms, at the longest {longest} ms");
    let metrics = podshim(&node, &["metrics"]).await?;
    let name = format!("pod=\"{}\"", pod.name());
    let sample = metrics
        .lines()
        .find(|line| line.starts_with("podshim_shim_streams_away_seconds{") && line.contains(&name));
    ensure!(sample.is_some_and(|line| !line.ends_with(" 0")), "{sample:?}");
    wait::at_most(PROMPT, "a stop of the holder", pod.stop("holder", Duration::from_secs(1))).await?;
    wait::until("the thread's return", SOON, async || {
        Ok((streams_away(&node, &pod).await?[0] == 0).then_some(()))
    })
    .await?;
    counts_on(&pod).await?;
    let counted = counted(&pod)?;
    ensure!(counted.iter().copied().eq(1..=counted.len()), "{counted:?}");
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await
}

/// Containers of a pod that hold their locks.
const MANY: usize = 8;
/// The head, a hand that moves, and one that is there while processes are released.
const OTHER_THREADS: usize = 3;

/// H1: each container that holds a lock delays one thread of the shim and no more, and another one's output goes on. Until podshim
/// bounded that, a thread that was delayed in another one's place was not counted, and beyond four of them all output waited.
#[tokio::test]
async fn h1_many_containers_that_hold_their_locks_delay_a_thread_each_and_no_other_output() -> Result<()> {
    let node = Containerd::connect().await?;
    let names: Vec<String> = (0..MANY).map(|number| format!("holder{number}")).collect();
    let mut pod = Pod::new("holders").container(Program::new("counter").begins_with_script(COUNTER));
    for name in &names {
        pod = pod.container(Program::new(name).holds_stdout());
    }
    let mut pod = pod.run(&node, Runtime::Podshim).await?;
    let _end = EndsWithTest::of(&pod)?;
    pod.start("counter").await?;
    let shim = pod.shim_pid()?;
    for (number, name) in names.iter().enumerate() {
        pod.start(name).await?;
        wait::until("one more thread of the shim that waits", PROMPT, async || {
            Ok((waiting_threads(shim)? > number).then_some(()))
        })
        .await?;
        counts_on(&pod).await?;
    }
    let threads = std::fs::read_dir(format!("/proc/{shim}/task"))?.count();
    println!("{threads} threads");
    ensure!(threads <= MANY + OTHER_THREADS, "{threads} threads");
    let exec = pod.exec("holder0", &["echo", "served"]);
    let output = wait::at_most(WITHIN, "an exec beside held locks", exec).await?;
    ensure!(output.stdout == "served\n", "{output:?}");
    counts_on(&pod).await?;
    wait::at_most(WITHIN, "the pod's stop", pod.stop_all_at_once(Duration::from_secs(1))).await?;
    let counted = counted(&pod)?;
    ensure!(counted.iter().copied().eq(1..=counted.len()), "{counted:?}");
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await
}

/// H1: a neighbour that its caller stops ends at once, and its successor starts. Only its caller waits, for the end of its output, which
/// containerd sees when the thread closes it that the holder delays: docs/trust.md has the reason.
#[tokio::test]
async fn h1_a_neighbour_that_is_stopped_ends_at_once_and_its_caller_waits_for_its_outputs_end() -> Result<()>
{
    let node = Containerd::connect().await?;
    let mut pod = held_by_one(&node, "holder-stopped").await?;
    let _end = EndsWithTest::of(&pod)?;
    let (before, process) = (pod.id("other")?.to_owned(), pod.pid("other").await?);
    let cri = node.cri()?;
    let stop = tokio::spawn(async move { cri.stop_container(&before, Duration::from_secs(1)).await });
    wait::until("the end of the neighbour", PROMPT, async || Ok((!is_alive(process)).then_some(()))).await?;
    wait::at_most(PROMPT, "its successor's start", pod.start("other")).await?;
    let exec = pod.exec("other", &["echo", "served"]);
    let output = wait::at_most(WITHIN, "an exec in its successor", exec).await?;
    ensure!(output.stdout == "served\n", "{output:?}");
    ensure!(!stop.is_finished(), "containerd did not wait for the end of its output: {:?}", stop.await);
    wait::at_most(PROMPT, "a stop of the holder", pod.stop("holder", Duration::from_secs(1))).await?;
    wait::at_most(PROMPT, "the neighbour's stop, once the lock is free", async { stop.await? }).await?;
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await
}

/// H1: a neighbour is restarted in place while a deaf container holds its pipe's lock, and another one runs its hook in the pod's stop. Until
/// streams were opened once more for that, restarts failed, and so did hooks.
#[tokio::test]
async fn h1_a_neighbour_is_restarted_in_place_and_another_runs_its_hook_meanwhile() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("holder-restarts")
        .annotate("plan", "s1=sidecar, app=main, holder=main")
        .annotate("restart.s1", "always;base=100ms;max=100ms")
        .annotate("on-terminate.app", "exec:touch /pod/hook-ran")
        .kubelet_grace(Duration::from_secs(30))
        .container(Program::new("s1").begins_with_script("echo a line of s1"))
        .container(Program::new("app"))
        .container(Program::new("holder").holds_stdout().ignores_term())
        .run(&node, Runtime::Podshim)
        .await?;
    let _end = EndsWithTest::of(&pod)?;
    pod.start_all(&["s1", "app", "holder"]).await?;
    wait_held(&pod).await?;
    let lines = || -> Result<usize> { Ok(pod.output("s1")?.matches("a line of s1").count()) };
    for runs in 2..=3 {
        let ends = pod.exec("s1", &["kill", "-TERM", "1"]);
        wait::at_most(WITHIN, "the end of a neighbour's run", ends).await?;
        wait::until("one more run of a neighbour", PROMPT, async || {
            Ok((pod.timeline()?.count("s1", Started) >= runs && lines()? >= runs).then_some(()))
        })
        .await?;
    }
    let hook = pod.directory().join("hook-ran");
    let stop = async { wait::at_most(WITHIN * 2, "the pod's stop", pod.stop_all_at_once(WITHIN)).await };
    let ran = wait::until("another neighbour's hook", PROMPT, async || Ok(hook.exists().then_some(())));
    let (stopped, ran) = tokio::join!(stop, ran);
    ran?;
    stopped?;
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await
}

/// H1 for StopPodSandbox alone, and for a pod with a plan.
#[tokio::test]
async fn h1_a_pod_with_a_plan_ends_in_time_although_one_holds_its_pipes_lock() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("holding-main")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app").holds_stdout())
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_held(&pod).await?;
    wait::at_most(WITHIN, "the pod's stop", pod.stop_all_at_once(Duration::from_secs(5))).await?;
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await
}

/// H1, N3: a killed shim's thread that waits keeps neither its connections nor its lock, and its pod is ended.
#[tokio::test]
async fn h1_n3_a_shim_that_is_killed_meanwhile_is_seen_to_be_dead_and_its_pod_ends() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = held_by_one(&node, "holder-orphan").await?;
    let (shim, holder) = (pod.shim_pid()?, pod.pid("holder").await.context("the holder's pid")?);
    signal(shim, libc::SIGKILL)?;
    wait::until("the end of the dead shim's containers", PROMPT, async || {
        Ok((!is_alive(holder)).then_some(()))
    })
    .await?;
    // As a kubelet does: containerd 2.1 removes no container that it has not seen end.
    wait::at_most(PROMPT, "the pod's stop", pod.stop_sandbox()).await?;
    for name in ["holder", "other"] {
        pod.wait_exited(name, PROMPT).await?;
    }
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await?;
    wait::until("the end of the shim", PROMPT, async || Ok((!is_alive(shim)).then_some(()))).await
}
