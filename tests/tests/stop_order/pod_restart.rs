//! `fatal.<c>=restart` (R14): all containers of a pod stop in order and start in order, in place and unseen by their caller.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::cri::ContainerState;
use e2e::durations::pace;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, Timeline};

use crate::support::{
    AMPLE, SOON, end_from_inside, exit_codes, hook, milliseconds, run_started, seconds, wait_started,
};

/// The time of a container's event in its second run.
fn second(timeline: &Timeline, name: &str, event: e2e::Event) -> Result<std::time::Duration> {
    let entry = timeline.of(name, event).nth(1);
    Ok(entry.ok_or_else(|| anyhow::anyhow!("no second {event:?} of {name} in\n{timeline}"))?.at)
}

async fn network_namespace(pod: &RunningPod<'_>, name: &str) -> Result<String> {
    Ok(pod.exec(name, &["readlink", "/proc/self/ns/net"]).await?.stdout)
}

/// Each container as its caller sees it: running, with the time at which its one and only run began.
async fn seen(pod: &RunningPod<'_>, names: &[&str]) -> Result<Vec<(bool, i64, u32)>> {
    let mut seen = Vec::new();
    for name in names {
        let status = pod.status(name).await?;
        let attempt = status.metadata.as_ref().map_or(0, |metadata| metadata.attempt);
        seen.push((status.state() == ContainerState::ContainerRunning, status.started_at, attempt));
    }
    Ok(seen)
}

/// R14, T1, S2, H1, H2: app fails. The other main and the sidecars end in order, with their hooks; then all start in order,
/// the init first. Sandbox, address, volumes and root file systems stay, and the caller sees all of them running.
#[tokio::test]
async fn r14_a_failure_restarts_the_pod_in_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let names = ["i1", "s1", "s2", "app", "other"];
    let pod = Pod::new("whole")
        .annotate("plan", "i1=init, s1=sidecar, s2=sidecar, app=main, other=main")
        .annotate("fatal.app", "restart")
        .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms")
        .annotate("on-terminate.s1", &hook("s1-term", "--run 0"))
        .annotate("pre-stop.s1", &hook("s1-stop", "--run 0"))
        .container(Program::new("i1").runs_for(seconds(1)).exits(0))
        .container(Program::new("s1").ready_file("/tmp/ready", milliseconds(200)))
        .container(Program::new("s2").term_delay(milliseconds(300)).term_exit_code(9))
        .container(Program::new("app").term_exit_code(3))
        .container(Program::new("other").term_delay(milliseconds(500) * pace()))
        .run(&node, Runtime::Podshim)
        .await?;
    let mut pod = pod;
    pod.start_all(&names).await?;
    wait_started(&pod, &names[1..]).await?;
    let (before, network) = (seen(&pod, &names).await?, network_namespace(&pod, "app").await?);
    ensure!(before.iter().all(|(running, ..)| *running), "{before:?}");
    let written = pod.exec("app", &["touch", "/tmp/of-the-root", "/pod/of-the-volume"]).await?;
    ensure!(written.exit_code == 0, "{written:?}");

    end_from_inside(&pod, "app").await?;
    let during = seen(&pod, &names).await?;
    let timeline = pod.wait_for("app", Started, 2, SOON).await?;
    let timeline = pod.wait_for("other", Started, 2, SOON).await.unwrap_or(timeline);
    timeline.in_order(&[
        ("app", Exiting),
        ("other", Term),
        ("other", Exiting),
        ("s2", Term),
        ("s2", Exiting),
        ("s1-stop", Starting),
        ("s1", Term),
        ("s1", Exiting),
    ])?;
    timeline.before(("s1-term", Starting), ("other", Exiting))?;
    ensure!(timeline.of("s1", Exiting).next().map(|it| it.at) <= Some(second(&timeline, "i1", Starting)?));
    ensure!(second(&timeline, "i1", Exiting)? <= second(&timeline, "s1", Starting)?, "{timeline}");
    ensure!(second(&timeline, "s1", Starting)? <= second(&timeline, "s2", Starting)?, "{timeline}");
    for main in ["app", "other"] {
        ensure!(second(&timeline, "s2", Starting)? <= second(&timeline, main, Starting)?, "{timeline}");
    }
    let counts = names.map(|name| timeline.count(name, Starting));
    ensure!(counts == [2; 5], "{counts:?}\n{timeline}");
    // F13, R6: no exit, no other start, no other container.
    ensure!(during == before && seen(&pod, &names).await? == before, "{during:?}\n{timeline}");
    ensure!(network_namespace(&pod, "app").await? == network, "another network namespace");
    let kept = pod.exec("app", &["ls", "/tmp/of-the-root", "/pod/of-the-volume"]).await?;
    ensure!(kept.exit_code == 0, "{kept:?}");
    pod.remove().await
}

/// R14, R9: after its limit the failure is shown, and the pod stops in order.
#[tokio::test]
async fn r14_r9_after_its_limit_the_failure_ends_the_pod() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("whole-limit")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("fatal.app", "restart;limit=2")
        .container(Program::new("s1"))
        .container(Program::new("app").runs_for(seconds(1)).exits_each(&[3, 4, 5]))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    ensure!(exit_codes(&pod, ["s1", "app"]).await? == [0, 5], "{}", pod.timeline()?);
    let timeline = pod.timeline()?;
    let counts = ["s1", "app"].map(|name| timeline.count(name, Starting));
    ensure!(counts == [3, 3], "{counts:?}\n{timeline}");
    // R4: at once, then after a second.
    let starts: Vec<_> = timeline.of("app", Starting).map(|entry| entry.at).collect();
    let ends: Vec<_> = timeline.of("app", Exiting).map(|entry| entry.at).collect();
    // The timeline has whole milliseconds, so a distance can be one short.
    ensure!(starts[2].saturating_sub(ends[1]) + milliseconds(1) >= seconds(1), "{timeline}");
    pod.remove().await
}

/// R14: a caller that stops the pod while it restarts wins: what is held ends, what runs ends in order, nothing starts.
#[tokio::test]
async fn r14_a_callers_stop_wins_over_a_restart() -> Result<()> {
    let node = Containerd::connect().await?;
    let names = ["s1", "app", "other"];
    let pod = Pod::new("whole-stopped")
        .annotate("plan", "s1=sidecar, app=main, other=main")
        .annotate("fatal.app", "restart")
        .container(Program::new("s1"))
        .container(Program::new("app").term_exit_code(3))
        .container(Program::new("other").term_delay(seconds(3)).term_exit_code(5));
    let pod = run_started(pod, &node, &names).await?;
    end_from_inside(&pod, "app").await?;
    pod.wait_for("other", Term, 1, SOON).await?;
    let inspected = node.ctr().output(&["--run", "podshim", "inspect", "--json", pod.sandbox()]).await?;
    let inspected: serde_json::Value = serde_json::from_str(&inspected.stdout)?;
    ensure!(inspected["state"] == "restarting", "{inspected:#}");
    pod.stop_all_at_once(AMPLE).await?;
    ensure!(exit_codes(&pod, names).await? == [0, 143, 5], "{}", pod.timeline()?);
    let timeline = pod.timeline()?;
    timeline.in_order(&[("app", Exiting), ("other", Term), ("other", Exiting), ("s1", Term)])?;
    for name in names {
        timeline.has_not_restarted(name)?;
    }
    pod.remove().await
}
