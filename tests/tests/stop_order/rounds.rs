//! A stopped pod that starts again in its sandbox (T14), and one in a new sandbox (S7).

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Event, Pod, Program, Runtime, wait};

use crate::support::{AMPLE, SOON, milliseconds, seconds, wait_started};

fn pod_of(name: &str, init: Program, sidecar: Program) -> Pod {
    Pod::new(name)
        .annotate("plan", "i1=init, s1=sidecar, app=main")
        .container(init)
        .container(sidecar)
        .container(Program::new("app"))
}

fn pod_with_an_init() -> Pod {
    let sidecar = Program::new("s1").ready_file("/tmp/ready", milliseconds(800));
    pod_of("round", Program::new("i1").exits(0), sidecar)
        .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms")
}

/// Its init still runs when the others exist: under Always its exit is hidden then (I5).
fn pod_with_a_slow_init() -> Pod {
    pod_of("round-slow", Program::new("i1").runs_for(seconds(1)).exits(0), Program::new("s1"))
}

/// T14: the caller stops and recreates app and s1, the main first. The main is held until s1 is ready again, and the
/// completed init does not run again (I4).
#[tokio::test]
async fn t14_a_stopped_pod_starts_again_in_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = pod_with_an_init().run(&node, Runtime::Podshim).await?;
    pod.start("i1").await?;
    pod.wait_exited("i1", SOON).await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    tokio::try_join!(pod.stop("app", AMPLE), pod.stop("s1", AMPLE))?;
    pod.timeline()?.in_order(&[("app", Exiting), ("s1", Term), ("s1", Exiting)])?;

    pod.start("app").await?;
    wait::quiet_time(seconds(1)).await;
    ensure!(pod.timeline()?.count("app", Starting) == 1, "app is not held in\n{}", pod.timeline()?);
    pod.start("s1").await?;
    let timeline = pod.wait_for("app", Event::Started, 2, SOON).await?;
    let start_of =
        |name| Ok::<_, anyhow::Error>(timeline.of(name, Starting).nth(1).context("no second run")?.at);
    // The timeline has whole milliseconds, so a distance can be one short.
    let waited = start_of("app")?.saturating_sub(start_of("s1")?) + milliseconds(1);
    ensure!(waited >= milliseconds(800), "app waited only {waited:?} in\n{timeline}");
    timeline.has_not_restarted("i1")?;

    // The second round ends as the first did.
    tokio::try_join!(pod.stop("s1", AMPLE), pod.stop("app", AMPLE))?;
    let timeline = pod.timeline()?;
    let (end, term) = (timeline.of("app", Exiting).nth(1), timeline.of("s1", Term).nth(1));
    ensure!(end.context("no second end")?.at <= term.context("no second Term")?.at, "{timeline}");
    pod.remove().await
}

/// T18: as a kubelet's RestartAllContainers rule (KEP-5532) does, the caller stops and removes all containers, without a
/// grace, and makes them again in the same sandbox: the init runs again before what waits for it.
#[tokio::test]
async fn t18_a_pod_that_is_emptied_begins_again() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = pod_with_a_slow_init().run(&node, Runtime::Podshim).await?;
    pod.start_all(&["i1", "s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    for name in ["i1", "s1", "app"] {
        pod.stop(name, seconds(0)).await?;
        node.cri()?.remove_container(pod.id(name)?).await?;
    }
    let sandbox = pod.sandbox().to_owned();
    pod.start_all(&["app", "s1", "i1"]).await?;
    let timeline = pod.wait_for("app", Event::Started, 2, SOON).await?;
    let counts = ["i1", "s1", "app"].map(|name| timeline.count(name, Starting));
    ensure!(counts == [2, 2, 2] && pod.sandbox() == sandbox, "{counts:?}\n{timeline}");
    let second =
        |name, event| Ok::<_, anyhow::Error>(timeline.of(name, event).nth(1).context("no second run")?.at);
    ensure!(second("i1", Exiting)? <= second("s1", Starting)?, "{timeline}");
    ensure!(second("s1", Starting)? <= second("app", Starting)?, "{timeline}");
    pod.remove().await
}

/// T18, I4: an init that its caller stops alone, while the others live, is answered as done.
#[tokio::test]
async fn t18_i4_an_init_that_is_stopped_alone_does_not_run_again() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = pod_with_a_slow_init().run(&node, Runtime::Podshim).await?;
    pod.start_all(&["i1", "s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.stop("i1", AMPLE).await?;
    pod.start("i1").await?;
    pod.stop("app", AMPLE).await?;
    pod.start("app").await?;
    let timeline = pod.wait_for("app", Event::Started, 2, SOON).await?;
    timeline.has_not_restarted("i1")?;
    pod.remove().await
}

/// T14 after a failed init (I2): its caller recreates it, which cancels the failure, and then the others. The init has
/// not completed, so it runs again, in its place.
#[tokio::test]
async fn t14_a_failed_init_may_be_followed_by_another_round() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("round-init")
        .annotate("plan", "s1=sidecar, i1=init, app=main")
        .annotate("restart-policy", "Never")
        .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms")
        .container(Program::new("s1").ready_file("/tmp/ready", milliseconds(300)))
        .container(Program::new("i1").runs_for(milliseconds(300)).exits_each(&[1, 0]))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    for (round, codes) in [(1, [1, 0, 125]), (2, [0, 0, 0])] {
        pod.start_all(&["i1", "app", "s1"]).await?;
        if round == 2 {
            pod.wait_for("app", Event::Started, 1, SOON).await?;
            pod.stop_all_at_once(AMPLE).await?;
        }
        for (name, code) in ["i1", "s1", "app"].into_iter().zip(codes) {
            let status = pod.wait_exited(name, SOON).await?;
            ensure!(status.exit_code == code, "round {round}: {status:?}\n{}", pod.timeline()?);
        }
        let timeline = pod.timeline()?;
        let counts = ["i1", "s1", "app"].map(|name| timeline.count(name, Starting));
        ensure!(counts == [round, round, round - 1], "round {round}: {counts:?}\n{timeline}");
    }
    let timeline = pod.timeline()?;
    let last = |name, event| timeline.of(name, event).last().map(|entry| entry.at);
    ensure!(last("s1", Starting) < last("i1", Starting), "{timeline}");
    ensure!(last("i1", Exiting) <= last("app", Starting), "{timeline}");
    pod.remove().await
}

/// T14: after a completion the caller may recreate all containers: a new round, in the same order.
#[tokio::test]
async fn t14_completion_may_be_followed_by_another_round() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("round-job")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms")
        .container(Program::new("s1").ready_file("/tmp/ready", milliseconds(0)))
        .container(Program::new("app").exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    for round in 1..=2 {
        pod.start_all(&["app", "s1"]).await?;
        pod.wait_exited("app", SOON).await?;
        pod.wait_exited("s1", SOON).await?;
        let timeline = pod.timeline()?;
        for event in [Starting, Exiting] {
            ensure!(
                timeline.count("app", event) == round && timeline.count("s1", event) == round,
                "{timeline}"
            );
        }
        let last = |name, event| timeline.of(name, event).last().map(|entry| entry.at);
        ensure!(last("s1", Starting) <= last("app", Starting), "{timeline}");
        ensure!(last("app", Exiting) <= last("s1", Term), "{timeline}");
    }
    pod.remove().await
}

/// S7: a new sandbox of the same pod runs everything again, in the same order.
#[tokio::test]
async fn s7_a_new_sandbox_runs_everything_again() -> Result<()> {
    let node = Containerd::connect().await?;
    for _ in 0..2 {
        let mut pod =
            pod_with_an_init().annotate("restart-policy", "Never").run(&node, Runtime::Podshim).await?;
        pod.start_all(&["app", "s1", "i1"]).await?;
        wait_started(&pod, &["app"]).await?;
        pod.timeline()?.in_order(&[("i1", Exiting), ("s1", Starting), ("app", Starting)])?;
        pod.remove().await?;
    }
    Ok(())
}
