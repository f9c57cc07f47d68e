//! The kubelet's own probes and postStart hooks. The kubelet takes a held container for running, so it probes and kills
//! it.

use std::fs::File;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::{TOLERANCE, seconds};
use e2e::{ContainerState, Kubelet, Manifest, PodStatus, Program, Runtime, StaticPod, wait};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{SOON, last, on_both, probe, started};

/// A liveness probe that fails from when [`wedge`] is called until [`heal`].
fn wedges() -> Value {
    json!({ "livenessProbe": probe(&["test", "!", "-e", "/pod/wedged"], 1) })
}

fn wedge(pod: &StaticPod<'_>) -> Result<()> {
    Ok(File::create(pod.directory().join("wedged")).map(drop)?)
}

fn heal(pod: &StaticPod<'_>) -> Result<()> {
    Ok(std::fs::remove_file(pod.directory().join("wedged"))?)
}

/// T12, S6, J5: a wedged main. The kubelet kills only the main and recreates it. The sidecar is not affected, and
/// podshim does not probe its gate again.
#[tokio::test]
async fn t12_s6_a_liveness_kill_of_a_main() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let manifest = Manifest::new("wedged-main")
            .annotate("plan", "proxy=sidecar, app=main")
            .container(Program::new("proxy"))
            .container_with(Program::new("app"), wedges());
        let pod = started(kubelet, manifest, &["proxy", "app"]).await?;
        wedge(&pod)?;
        pod.wait_for("app", Term, 1, SOON).await?;
        heal(&pod)?;
        let again = pod.wait_for("app", Started, 2, SOON).await?;
        let status =
            pod.wait_status("a restart", SOON, |status| status.of("app").is_ok_and(|it| it.restarts == 1));
        let status = status.await?;
        pod.wait_seen(SOON).await?;
        pod.delete()?;
        Ok((again, status, pod.wait_ended(SOON).await?))
    });
    let lives = lives.await?;
    for (again, status, timeline) in [&lives.stock, &lives.podshim] {
        ensure!(again.count("proxy", Term) == 0, "the sidecar was stopped\n{again}");
        ensure!(status.of("proxy")?.restarts == 0, "{status:#?}");
        timeline.has_not_restarted("proxy")?;
    }
    let (.., timeline) = &lives.podshim;
    let (app, proxy) = (last(timeline, "app", Exiting)?, last(timeline, "proxy", Term)?);
    ensure!(app <= proxy, "the sidecar was stopped first\n{timeline}");
    Ok(())
}

/// T16: a wedged sidecar. The kubelet stops only the sidecar. podshim sees that no other stop follows, so this is not
/// the start of the pod's stop, and the sidecar gets its signal soon, whatever its grace. Then the kubelet recreates
/// it; the main lives on.
#[tokio::test]
async fn t16_a_liveness_kill_of_a_sidecar_is_fast() -> Result<()> {
    let grace = seconds(20);
    let lives = on_both(async |kubelet: &Kubelet| {
        let manifest = Manifest::new("wedged-sidecar")
            .grace(grace)
            .annotate("plan", "proxy=sidecar, app=main")
            .container_with(Program::new("proxy"), wedges())
            .container(Program::new("app"));
        let pod = started(kubelet, manifest, &["proxy", "app"]).await?;
        wedge(&pod)?;
        let begin = Instant::now();
        pod.wait_for("proxy", Term, 1, SOON).await?;
        let took = begin.elapsed();
        heal(&pod)?;
        pod.wait_for("proxy", Started, 2, SOON).await?;
        let status =
            pod.wait_status("a restart", SOON, |status| status.of("proxy").is_ok_and(|it| it.restarts == 1));
        let status = status.await?;
        pod.wait_seen(SOON).await?;
        pod.delete()?;
        Ok((took, status, pod.wait_ended(SOON).await?))
    });
    let lives = lives.await?;
    let (took, ..) = lives.stock;
    ensure!(took < grace, "its signal came after {took:?}");

    let (took, status, timeline) = lives.podshim;
    // The window, which is doubled on a late machine, and the period of the kubelet's probe.
    let window = seconds(2);
    ensure!(took >= window && took < window * 2 + seconds(3) + TOLERANCE, "its signal came after {took:?}");
    ensure!(status.of("app")?.restarts == 0, "{status:#?}");
    timeline.has_not_restarted("app")?;
    let (app, proxy) = (last(&timeline, "app", Exiting)?, last(&timeline, "proxy", Term)?);
    ensure!(app <= proxy, "the sidecar was stopped first\n{timeline}");
    Ok(())
}

/// A main whose probes fail before its program runs, behind a gate that opens with [`open`].
fn behind_a_gate(name: &str, probes: Value) -> Manifest {
    Manifest::new(name)
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "exec:test -e /pod/open;period=100ms;fail=10000")
        .container(Program::new("proxy"))
        .container_with(Program::new("app").ready_file("/tmp/ready", seconds(0)), probes)
}

fn open(pod: &StaticPod<'_>) -> Result<()> {
    Ok(File::create(pod.directory().join("open")).map(drop)?)
}

/// U9, K3, S6: a liveness probe alone, and a gate that takes longer. The kubelet kills and recreates the held main a
/// few times, and then waits ten seconds and more. The main starts only after that back-off, however early the gate
/// opens. With containerd's own shim there is no gate.
#[tokio::test]
async fn u9_k3_a_liveness_probe_during_a_hold() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let alive = json!({ "livenessProbe": probe(&["test", "-e", "/tmp/ready"], 2) });
        let pod = behind_a_gate("u9", alive).run(kubelet)?;
        if kubelet.runtime() == Runtime::Runc {
            pod.wait_for("app", Started, 1, SOON).await?;
            pod.wait_seen(SOON).await?;
            pod.delete()?;
            return pod.wait_ended(SOON).await;
        }
        let backs_off = |status: &PodStatus| {
            status.of("app").is_ok_and(|app| {
                matches!(&app.state, ContainerState::Waiting { reason } if reason == "CrashLoopBackOff")
            })
        };
        let status = pod.wait_status("that it backs off", SOON, backs_off).await?;
        ensure!(status.of("app")?.restarts > 0, "{status:#?}");
        pod.timeline()?.doesnt_start("app")?;
        open(&pod)?;
        let begin = Instant::now();
        pod.wait_for("app", Started, 1, SOON).await?;
        let took = begin.elapsed();
        ensure!(took > seconds(4), "it started {took:?} after its gate had opened");
        pod.wait_seen(SOON).await?;
        pod.delete()?;
        pod.wait_ended(SOON).await
    });
    let lives = lives.await?;
    lives.stock.has_not_restarted("app")?;
    let timeline = lives.podshim;
    timeline.has_not_restarted("app")?;
    timeline.has_not_restarted("proxy")?;
    timeline.in_order(&[("app", Exiting), ("proxy", Term)])
}

/// U9, H7: with a startupProbe the kubelet runs only that probe until the program is there, and the other probes after
/// it. The main starts when its gate opens, and is not ready before.
#[tokio::test]
async fn u9_h7_a_startup_probe_during_a_hold() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let ready = ["test", "-e", "/tmp/ready"];
        let probes = json!({
            "startupProbe": probe(&ready, 600),
            "livenessProbe": probe(&ready, 1),
            "readinessProbe": probe(&ready, 1),
        });
        let pod = behind_a_gate("u9-startup", probes).run(kubelet)?;
        let runs = |status: &PodStatus| status.of("app").is_ok_and(|app| app.state.is_running());
        pod.wait_status("that its main runs", SOON, runs).await?;
        // More than enough for a kubelet that probes once a second to kill the container.
        wait::quiet_time(seconds(5)).await;
        let (held, before) = (pod.timeline()?, pod.status().await?);
        open(&pod)?;
        let status =
            pod.wait_status("ready", SOON, |status| status.of("app").is_ok_and(|app| app.ready)).await?;
        pod.wait_seen(SOON).await?;
        pod.delete()?;
        Ok((held, before, status, pod.wait_ended(SOON).await?))
    });
    let lives = lives.await?;
    let (held, ..) = lives.stock;
    ensure!(held.count("app", Started) == 1, "the app waited for its proxy\n{held}");

    let (held, before, status, timeline) = lives.podshim;
    held.doesnt_start("app")?;
    let app = before.of("app")?;
    ensure!(app.state.is_running() && !app.ready, "{before:#?}");
    ensure!(status.of("app")?.restarts == 0, "{status:#?}");
    timeline.has_not_restarted("app")
}

/// U8, U9: which mains a kubelet counts as ready while they are held: those without a probe, and those whose probes are
/// commands that succeed without the program. `podshim check` reports the same.
#[tokio::test]
async fn u8_u9_what_is_ready_while_it_is_held() -> Result<()> {
    let port = json!({ "tcpSocket": { "port": 7777 }, "periodSeconds": 1, "failureThreshold": 600 });
    let (succeeds, fails) = (probe(&["true"], 600), probe(&["test", "-e", "/tmp/ready"], 600));
    let mains = [
        ("none", true, json!({})),
        ("command", true, json!({ "readinessProbe": succeeds })),
        ("own-file", false, json!({ "readinessProbe": fails })),
        ("port", false, json!({ "readinessProbe": port })),
        ("start-command", true, json!({ "startupProbe": succeeds })),
        ("start-port", false, json!({ "startupProbe": port })),
        ("start-port-command", false, json!({ "startupProbe": port, "readinessProbe": succeeds })),
    ];
    let kubelet = Kubelet::connect(Runtime::Podshim).await?;
    let manifest = Manifest::new("u9-ready")
        .annotate("plan", "proxy=sidecar, *=main")
        .annotate("ready.proxy", "exec:test -e /pod/open;period=100ms;fail=10000")
        .container(Program::new("proxy"));
    let add = |manifest: Manifest, (name, _, probes): &(&str, bool, Value)| {
        manifest.container_with(Program::new(name).ready_file("/tmp/ready", seconds(0)), probes.clone())
    };
    let pod = mains.iter().fold(manifest, add).run(&kubelet)?;
    let expected = |status: &PodStatus| {
        let is = |(name, ready, _): &(&str, bool, Value)| {
            status.of(name).is_ok_and(|main| main.state.is_running() && main.ready == *ready)
        };
        mains.iter().all(is)
    };
    pod.wait_status("what is ready", SOON, expected).await?;
    // Several periods of each probe later.
    wait::quiet_time(seconds(3)).await;
    let status = pod.status().await?;
    ensure!(expected(&status), "{status:#?}");
    let timeline = pod.timeline()?;
    for (name, ..) in &mains {
        timeline.doesnt_start(name)?;
    }
    open(&pod)?;
    pod.wait_for("own-file", Started, 1, SOON).await?;
    pod.wait_status("own-file to be ready", SOON, |status| {
        status.of("own-file").is_ok_and(|main| main.ready)
    })
    .await?;
    pod.delete()?;
    pod.wait_ended(SOON).await.map(drop)
}

/// A main whose postStart hook waits for its own program.
fn with_hook(name: &str) -> Manifest {
    Manifest::new(name).annotate("plan", "proxy=sidecar, app=main")
}

fn hook() -> Value {
    let command = ["sh", "-c", "until test -e /tmp/ready; do sleep 0.2; done"];
    json!({ "lifecycle": { "postStart": { "exec": { "command": command } } } })
}

fn hooked() -> Program {
    Program::new("app").ready_file("/tmp/ready", seconds(0))
}

/// U12, T4: listed before its sidecar such a main blocks the kubelet, which creates no further container until the hook
/// ends. So neither of the two ever starts. The pod can still be deleted.
#[tokio::test]
async fn u12_a_post_start_hook_before_the_sidecar() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let pod = with_hook("hook-first")
            .grace(seconds(5))
            .container_with(hooked(), hook())
            .container(Program::new("proxy"))
            .run(kubelet)?;
        if kubelet.runtime() == Runtime::Runc {
            pod.wait_for("proxy", Started, 1, SOON).await?;
        } else {
            let made = |status: &PodStatus| status.of("app").is_ok_and(|app| app.state.is_running());
            // The kubelet reports it as running only after the hook; containerd already does.
            wait::until("app to be created", SOON, async || Ok(pod.pid("app").await.ok())).await?;
            wait::quiet_time(seconds(5)).await;
            ensure!(
                !made(&pod.status().await?),
                "the kubelet reports it as running: {:#?}",
                pod.status().await?
            );
        }
        let timeline = pod.timeline()?;
        pod.delete()?;
        pod.wait_ended(SOON).await?;
        Ok(timeline)
    });
    let lives = lives.await?;
    ensure!(lives.stock.count("app", Started) == 1, "{}", lives.stock);
    lives.podshim.doesnt_start("app")?;
    lives.podshim.doesnt_start("proxy")
}

/// U8, U12: listed after its sidecar such a main starts: the hook waits, and the program comes.
#[tokio::test]
async fn u8_u12_a_post_start_hook_after_the_sidecar() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let pod = with_hook("hook-last")
            .annotate("ready.proxy", "tcp::8080;period=100ms;fail=600")
            .container(Program::new("proxy").listens(8080, seconds(3)))
            .container_with(hooked(), hook())
            .run(kubelet)?;
        pod.wait_for("app", Started, 1, SOON).await?;
        let runs = |status: &PodStatus| status.of("app").is_ok_and(|app| app.state.is_running());
        let status = pod.wait_status("that it runs", SOON, runs).await?;
        ensure!(status.of("app")?.restarts == 0, "{status:#?}");
        pod.wait_seen(SOON).await?;
        pod.delete()?;
        pod.wait_ended(SOON).await
    });
    let lives = lives.await?;
    for timeline in [lives.stock, lives.podshim] {
        timeline.before(("proxy", Starting), ("app", Starting))?;
        timeline.has_not_restarted("app")?;
    }
    Ok(())
}
