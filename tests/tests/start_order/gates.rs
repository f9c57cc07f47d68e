//! When a sidecar's gate lets the next container start (U1 to U6, U11): by its exec, by a probe, at once, or never.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::instance::signal;
use e2e::pod::PidNamespace;
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{
    REMAKING, SOON, TOLERANCE, are_running, at_most, exit_with, lines_of_podshim, milliseconds, near,
    ready_in_run, seconds, wait_started,
};

/// U1 (kubernetes#137954): a sidecar without a probe opens its gate by its exec; five pods, one after another. Each
/// container records at its very start what runs in the pod. A sidecar's own first line proves nothing: it may come
/// later than the next program's, because the sidecar needs a processor to write it.
async fn five_pods_keep_two_sidecars_in_order(node: &Containerd) -> Result<()> {
    let noting = |name| Program::new(name).begins_with_script(&format!("ps -o args > /pod/seen-by-{name}"));
    for _ in 0..5 {
        let mut pod = Pod::new("u1")
            .pid_namespace(PidNamespace::Pod)
            .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
            .container(Program::new("s1"))
            .container(noting("s2"))
            .container(noting("app"))
            .run(node, Runtime::Podshim)
            .await?;
        pod.start_all(&["app", "s2", "s1"]).await?;
        wait_started(&pod, &["s1", "s2", "app"]).await?;
        for (earlier, later) in [("s1", "s2"), ("s1", "app"), ("s2", "app")] {
            let seen = pod.exec("app", &["cat", &format!("/pod/seen-by-{later}")]).await?.stdout;
            // In the middle of its exec a process already has its new name, but no arguments yet.
            let is_named = |line: &str| {
                let line = line.trim();
                line.contains(&format!("--name {earlier} ")) || line == "[sh]" || line == "[pod-member]"
            };
            ensure!(seen.lines().any(is_named), "{earlier} does not run yet:\n{seen}");
        }
        pod.remove().await?;
    }
    Ok(())
}

/// U1: in twenty runs, some side by side, without one violation.
#[tokio::test]
async fn u1_sidecars_without_probes_start_in_order() -> Result<()> {
    let node = Containerd::connect().await?;
    let five = || five_pods_keep_two_sidecars_in_order(&node);
    tokio::try_join!(five(), five(), five(), five())?;
    Ok(())
}

/// ks-J1, U2: each container starts at the first success of the probe before it, never earlier, and at most a period
/// later.
#[tokio::test]
async fn u2_ks_j1_sidecars_start_serially_by_their_probes() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j1")
        .annotate("plan", "s1=sidecar, s2=sidecar, regular=main")
        .annotate("ready.s1", "tcp::8081;period=200ms")
        .annotate("ready.s2", "exec:test -e /tmp/ready;period=200ms")
        .container(Program::new("s1").start_delay(seconds(2)).listens(8081, seconds(2)))
        .container(Program::new("s2").start_delay(seconds(2)).ready_file("/tmp/ready", seconds(2)))
        .container(Program::new("regular"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["regular", "s2", "s1"]).await?;
    let timeline = wait_started(&pod, &["regular"]).await?;
    for (sidecar, next) in [("s1", "s2"), ("s2", "regular")] {
        timeline.starts_before(sidecar, next)?;
        // Never before the sidecar is ready; later by at most a period and the time that a probe takes here.
        timeline.distance((sidecar, Starting), (next, Starting), seconds(3), TOLERANCE)?;
        timeline.has_not_restarted(sidecar)?;
    }
    pod.remove().await
}

/// U2: `delay` before the first probe, and `ok` successes, a `period` apart.
#[tokio::test]
async fn u2_delay_and_successes_are_waited_for() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("ready.s1", "exec:true;delay=2s")
        .annotate("ready.s2", "exec:true;ok=3;period=1s")
        .container(Program::new("s1"))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    for (sidecar, next) in [("s1", "s2"), ("s2", "app")] {
        // 2 s after its exec, which is a moment before its first line, and the time that three probes take here.
        timeline.distance((sidecar, Starting), (next, Starting), milliseconds(2900), TOLERANCE)?;
    }
    pod.remove().await
}

/// U2: a probe that does not answer within `timeout` has failed, and leaves no process behind.
#[tokio::test]
async fn u2_a_probe_that_hangs_has_failed() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-hangs")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "exec:sh -c 'test -e /tmp/ready || exec sleep 77';period=200ms;timeout=1s")
        .container(Program::new("s1").ready_file("/tmp/ready", seconds(2)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    let timeline = wait_started(&pod, &["app"]).await?;
    // Ready after 2 s; a probe that began earlier runs for its timeout of a second.
    timeline.distance(("s1", Starting), ("app", Starting), milliseconds(3500), milliseconds(1600))?;
    wait::until("the probes' processes to be gone", SOON, async || {
        Ok((!pod.exec("s1", &["ps"]).await?.stdout.contains("sleep 77")).then_some(()))
    })
    .await?;
    pod.remove().await
}

/// U2, DESIGN §6: a probe runs as the container's user, sees the container's files, and reaches only the container's
/// network.
#[tokio::test]
async fn u2_a_tcp_gate_reaches_the_pods_network_only() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u2-tcp")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "tcp:192.0.2.1:80;period=200ms;fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    // The hold's line comes a second after app's start and names the open wait: by then that is the gate.
    pod.start("s1").await?;
    wait_started(&pod, &["s1"]).await?;
    pod.start("app").await?;
    let held = wait::until("the hold's line", SOON, async || {
        let output = pod.output("app")?;
        Ok(lines_of_podshim(&output).first().map(|line| (*line).to_owned()))
    })
    .await?;
    ensure!(held.contains("192.0.2.1:80") && held.contains("not an address of the container"), "{held}");
    pod.timeline()?.doesnt_start("app")?;
    pod.remove().await
}

/// U3: an open gate stays open: neither a crash of the sidecar nor a probe that would fail now holds a late main or
/// stops the others.
#[tokio::test]
async fn u3_a_gate_stays_open() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u3")
        .annotate("plan", "s1=sidecar, app=main, late=main")
        .annotate("ready.s1", "exec:test ! -e /tmp/unready;period=100ms")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .container(Program::new("late"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["app"]).await?;
    pod.exec("s1", &["touch", "/tmp/unready"]).await?;
    signal(node.cri()?.container_pid(pod.id("s1")?).await?, libc::SIGKILL)?;
    pod.wait_for("s1", Started, 2, SOON).await?;
    pod.start("late").await?;
    let timeline = pod.wait_for("late", Started, 1, SOON).await?;
    timeline.has_not_restarted("app")?;
    are_running(&pod, &["s1", "app", "late"]).await?;
    pod.remove().await
}

/// U4 (kubernetes#132826), ks-M1: a sidecar that fails its start probe `fail` times is stopped and started again, and
/// the new process is probed too: the pod recovers.
#[tokio::test]
async fn u4_ks_m1_a_sidecar_that_does_not_get_ready_is_started_again() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u4")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .annotate("ready.s1", &ready_in_run("s1", 2, "period=500ms;fail=3"))
        .container(Program::new("s1"))
        .container(Program::new("app").exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    exit_with(&pod, &[("app", 0), ("s1", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("s1", Starting), ("s1", Term), ("s1", Exiting), ("app", Starting)])?;
    // Three failures: the first at once, two more a period apart.
    timeline.distance(("s1", Starting), ("s1", Term), milliseconds(1900), TOLERANCE)?;
    ensure!(timeline.count("s1", Starting) == 2, "{timeline}");
    pod.remove().await
}

/// U4, ks-J5: a sidecar that never gets ready is restarted again and again, and nothing after it ever starts. One that
/// ignores its stop signal is killed after its own grace (T8).
#[tokio::test]
async fn u4_ks_j5_nothing_starts_after_a_sidecar_that_never_gets_ready() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("j5")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        // A second until the stop: by then the program handles its signal.
        .annotate("ready.s1", "tcp::9;period=500ms;fail=3")
        .annotate("grace.s1", "1s")
        .container(Program::new("s1").ignores_term())
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    let timeline = pod.wait_for("s1", Starting, 3, SOON).await?;
    timeline.doesnt_start("s2")?;
    timeline.doesnt_start("app")?;
    ensure!(timeline.count("s1", Term) >= 2 && timeline.count("s1", Exiting) == 0, "{timeline}");
    let second = timeline.of("s1", Starting).nth(1).map(|entry| entry.at).unwrap_or_default();
    let killed_after = second.saturating_sub(timeline.time_of("s1", Term)?);
    // Never early; late by at most the time that creating the next process takes here.
    let late = killed_after.saturating_sub(seconds(1));
    ensure!(killed_after >= seconds(1) && at_most(late, REMAKING), "after {killed_after:?}:\n{timeline}");
    are_running(&pod, &["s1", "s2", "app"]).await?;
    pod.wait_for_output("s1", "podshim: did not get ready: tcp:9 refused").await?;
    pod.remove().await
}

/// U5: a sidecar that exits before its gate opens is restarted, also under Never; the pod recovers and succeeds.
#[tokio::test]
async fn u5_a_sidecar_that_exits_before_its_gate_is_started_again() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u5")
        .annotate("plan", "s1=sidecar, i1=init, app=main")
        .annotate("restart-policy", "Never")
        .annotate("ready.s1", &ready_in_run("s1", 3, "period=100ms"))
        .container(Program::new("s1").runs_for_each(&[milliseconds(400), milliseconds(400), SOON]).exits(1))
        .container(Program::new("i1").exits(0))
        .container(Program::new("app").exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "i1", "s1"]).await?;
    exit_with(&pod, &[("i1", 0), ("app", 0), ("s1", 0)]).await?;
    let timeline = pod.timeline()?;
    timeline.in_order(&[("s1", Exiting), ("i1", Starting), ("i1", Exiting), ("app", Starting)])?;
    ensure!(timeline.count("s1", Starting) == 3, "{timeline}");
    pod.remove().await
}

/// U6, J9: with `gate-timeout` a hold ends as a failure, with the reason in the held container's own log.
#[tokio::test]
async fn u6_a_hold_that_takes_too_long_is_a_failure() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u6")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("gate-timeout", "3s")
        .annotate("ready.s1", "tcp::15021;period=500ms;fail=1000")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    exit_with(&pod, &[("app", 125)]).await?;
    let status = pod.status("app").await?;
    let held = milliseconds(u64::try_from((status.finished_at - status.started_at) / 1_000_000)?);
    ensure!(near(held, seconds(3), TOLERANCE), "held for {held:?}: {status:?}");
    pod.wait_for_output("app", "podshim: held 3s for sidecar \"s1\": tcp:15021 refused\n").await?;
    pod.timeline()?.doesnt_start("app")?;
    are_running(&pod, &["s1"]).await?;
    pod.remove().await
}

/// U11: `ready.<c>=none` lets the next start at once, though the sidecar needs its time.
#[tokio::test]
async fn u11_a_sidecar_that_is_not_waited_for() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("u11")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "none")
        .container(Program::new("s1").start_delay(seconds(4)))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    let timeline = wait_started(&pod, &["app", "s1"]).await?;
    timeline.before(("app", Started), ("s1", Started))?;
    // Both are created: the rest of app's start takes milliseconds, much less than s1's 4 s.
    timeline.within(TOLERANCE, ("s1", Starting), ("app", Starting))?;
    pod.remove().await
}
