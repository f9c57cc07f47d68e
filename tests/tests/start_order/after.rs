//! `after.<c>` instead of the list (S2, 11.3): which container waits for which, and the reverse order of the ends (T1).

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Pod, Program, Runtime};

use crate::support::{
    AMPLE, SOON, are_running, exit_with, milliseconds, ready_in_run, seconds, wait_started,
};

/// S2, T1: `c` and `b` start side by side when `a` is ready, though the list has `b` before `c`; the main waits for the
/// whole list. In the stop `b` and `c` end side by side, then `a`.
#[tokio::test]
async fn s2_t1_after_lets_two_sidecars_start_and_stop_side_by_side() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("after")
        .annotate("plan", "a=sidecar, b=sidecar, c=sidecar, app=main")
        .annotate("ready.a", &ready_in_run("a", 1, "period=100ms"))
        .annotate("ready.b", "exec:test -e /tmp/ready;period=100ms;fail=1000")
        .annotate("after.c", "a=ready")
        .container(Program::new("a"))
        .container(Program::new("b").ready_file("/tmp/ready", seconds(4)).term_delay(seconds(2)))
        .container(Program::new("c").term_delay(seconds(2)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "c", "b", "a"]).await?;
    let timeline = wait_started(&pod, &["app", "c"]).await?;
    timeline.in_order(&[("a", Starting), ("b", Starting), ("app", Starting)])?;
    timeline.in_order(&[("a", Starting), ("c", Starting), ("app", Starting)])?;
    // With the list's order `c` would wait 4 s for the gate of `b`.
    timeline.within(seconds(2), ("b", Starting), ("c", Starting))?;
    pod.stop_all_at_once(AMPLE).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("b", Term), ("c", Exiting), ("a", Term)])?;
    timeline.in_order(&[("app", Exiting), ("c", Term), ("b", Exiting), ("a", Term)])?;
    pod.remove().await
}

/// S2, J5: a main that waits for the success of another main and for the gate of a third. The first one fails, and its
/// caller recreates it, as a kubelet does under OnFailure. Only after that success the waiting main starts.
#[tokio::test]
async fn s2_a_main_waits_for_the_success_of_another() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("after-done")
        .annotate("plan", "seed=main, db=main, web=main")
        .annotate("restart-policy", "OnFailure")
        .annotate("ready.db", "exec:test -e /tmp/ready;period=100ms")
        .annotate("after.web", "seed=done, db=ready")
        .container(Program::new("seed").runs_for(milliseconds(500)).exits_each(&[1, 0]))
        .container(Program::new("db").ready_file("/tmp/ready", seconds(1)))
        .container(Program::new("web"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["web", "db", "seed"]).await?;
    exit_with(&pod, &[("seed", 1)]).await?;
    pod.wait_for("db", e2e::Event::Started, 1, SOON).await?;
    pod.timeline()?.doesnt_start("web")?;
    pod.start("seed").await?;
    exit_with(&pod, &[("seed", 0)]).await?;
    let timeline = wait_started(&pod, &["web"]).await?;
    let last = timeline.of("seed", Exiting).last().map(|entry| entry.at);
    ensure!(last <= timeline.of("web", Starting).next().map(|entry| entry.at), "{timeline}");
    are_running(&pod, &["db", "web"]).await?;
    pod.remove().await
}

/// J9, J1: under Never no caller repeats a failed main. What had to come after its success ends with 125 and says why,
/// and the pod ends with it.
#[tokio::test]
async fn j9_j1_nothing_comes_after_a_failed_main_under_never() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("after-never")
        .annotate("plan", "proxy=sidecar, seed=main, web=main")
        .annotate("restart-policy", "Never")
        .annotate("after.web", "seed=done")
        .container(Program::new("proxy"))
        .container(Program::new("seed").runs_for(milliseconds(500)).exits(3))
        .container(Program::new("web"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "web", "seed"]).await?;
    exit_with(&pod, &[("seed", 3), ("web", 125), ("proxy", 0)]).await?;
    pod.timeline()?.doesnt_start("web")?;
    pod.wait_for_output("web", "podshim: not started: main \"seed\" failed with 3\n").await?;
    pod.remove().await
}

/// T1: a sidecar may start after a main. The main does not wait for it, and the sidecar still outlives the main.
#[tokio::test]
async fn t1_a_sidecar_after_a_main_outlives_it() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("after-main")
        .annotate("plan", "early=sidecar, late=sidecar, app=main")
        .annotate("ready.app", &ready_in_run("app", 1, "period=100ms"))
        .annotate("after.late", "app=ready")
        .container(Program::new("early"))
        .container(Program::new("late"))
        .container(Program::new("app").term_delay(seconds(1)))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["late", "early", "app"]).await?;
    wait_started(&pod, &["late"]).await?.before(("app", Starting), ("late", Starting))?;
    pod.stop_all_at_once(AMPLE).await?;
    pod.timeline()?.in_order(&[("app", Exiting), ("late", Term), ("late", Exiting), ("early", Term)])?;
    pod.remove().await
}
