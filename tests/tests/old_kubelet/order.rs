//! Start and stop of a pod: which container is ready first, and which ends first.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::{TOLERANCE, milliseconds, seconds};
use e2e::instance::is_alive;
use e2e::{Kubelet, Manifest, Program, Timeline, wait};
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Both, SOON, on_both, started, whole_life};

/// How long after its start the proxy accepts connections: longer than a kubelet takes to start the next container.
const WARM_UP: Duration = seconds(6);

fn proxy() -> Program {
    Program::new("proxy").listens(8080, WARM_UP)
}

fn app() -> Program {
    Program::new("app").term_delay(seconds(2))
}

/// A pod whose proxy must be ready before the app starts, and outlive it.
fn with_proxy(name: &str) -> Manifest {
    Manifest::new(name)
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "tcp::8080;period=100ms;fail=600")
}

/// Checks that with containerd's own shim the app runs without its proxy at both ends of its life, and with podshim at
/// neither.
fn has_its_proxy_only_with_podshim(lives: &Both<Timeline>) -> Result<()> {
    let stock = &lives.stock;
    let ready = stock.time_of("proxy", Starting)? + WARM_UP;
    ensure!(stock.time_of("app", Started)? < ready, "the app waited for its proxy\n{stock}");
    stock.before(("proxy", Exiting), ("app", Exiting))?;

    let podshim = &lives.podshim;
    let ready = podshim.time_of("proxy", Starting)? + WARM_UP;
    ensure!(podshim.time_of("app", Starting)? >= ready, "the app did not wait for its proxy\n{podshim}");
    podshim.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    podshim.has_not_restarted("app")?;
    podshim.has_not_restarted("proxy")
}

/// S2, U2, T1, T3: the sidecar is listed before the main.
#[tokio::test]
async fn s2_u2_t1_t3_a_sidecar_listed_first() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        whole_life(kubelet, with_proxy("first").container(proxy()).container(app()), &["proxy", "app"]).await
    });
    has_its_proxy_only_with_podshim(&lives.await?)
}

/// U7, U2, T1, T3: the sidecar is listed after the main. The held main's start does not block the kubelet.
#[tokio::test]
async fn u7_t1_t3_a_sidecar_listed_last() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        whole_life(kubelet, with_proxy("last").container(app()).container(proxy()), &["proxy", "app"]).await
    });
    has_its_proxy_only_with_podshim(&lives.await?)
}

/// I5, S2, R8: an init that needs the proxy, and so is one of the kubelet's `containers`. podshim hides its end from
/// the kubelet, which under Always would restart it for ever.
#[tokio::test]
async fn i5_s2_r8_an_init_behind_a_sidecar_runs_once() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let pod = Manifest::new("mesh")
            .annotate("plan", "proxy=sidecar, fetch=init, app=main")
            .annotate("ready.proxy", "tcp::8080;period=100ms;fail=600")
            .container(Program::new("proxy").listens(8080, seconds(1)))
            .container(Program::new("fetch").runs_for(seconds(1)))
            .container(Program::new("app"))
            .run(kubelet)?;
        pod.wait_for("app", Started, 1, SOON).await?;
        pod.wait_for("fetch", Exiting, 1, SOON).await?;
        // Time for a kubelet that sees an exit to restart the container.
        wait::quiet_time(seconds(5)).await;
        let (timeline, status) = (pod.timeline()?, pod.status().await?);
        pod.delete()?;
        pod.wait_ended(SOON).await?;
        Ok((timeline, status))
    });
    let lives = lives.await?;
    let (timeline, status) = lives.stock;
    timeline.has_restarted("fetch")?;
    ensure!(status.of("fetch")?.restarts > 0, "{status:#?}");

    let (timeline, status) = lives.podshim;
    timeline.starts_before("proxy", "fetch")?;
    timeline.completes_before("fetch", "app")?;
    timeline.has_not_restarted("fetch")?;
    ensure!(status.ready, "{status:#?}");
    for container in &status.containers {
        ensure!(container.restarts == 0 && container.state.is_running(), "{container:?}");
    }
    Ok(())
}

/// S8: one of the kubelet's own `initContainers` runs before everything else, even before a proxy that it may need,
/// with podshim as without: it is not in the plan.
#[tokio::test]
async fn s8_an_init_of_the_kubelet_runs_before_every_sidecar() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let manifest = with_proxy("own-init").init_container(Program::new("fetch").runs_for(seconds(1)));
        whole_life(kubelet, manifest.container(proxy()).container(app()), &["proxy", "app"]).await
    });
    let lives = lives.await?;
    for timeline in [lives.stock, lives.podshim] {
        timeline.completes_before("fetch", "proxy")?;
        timeline.has_not_restarted("fetch")?;
    }
    Ok(())
}

/// S8: the inits that a webhook puts before the others run at once, though the plan takes each container that it does
/// not name for a main: one has a well-known name, the other an annotation. This kubelet does not say which of its lists
/// a container comes from.
#[tokio::test]
async fn s8_found_k1_injected_inits_run_beside_a_plan_for_all() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let manifest = with_proxy("injected")
            .annotate("plan", "proxy=sidecar, *=main")
            .annotate("role.our-init", "none")
            .init_container(Program::new("istio-init").runs_for(seconds(1)))
            .init_container(Program::new("our-init").runs_for(seconds(1)));
        whole_life(kubelet, manifest.container(proxy()).container(app()), &["proxy", "app"]).await
    });
    let lives = lives.await?;
    has_its_proxy_only_with_podshim(&lives)?;
    for timeline in [lives.stock, lives.podshim] {
        timeline.completes_before("istio-init", "our-init")?;
        timeline.completes_before("our-init", "proxy")?;
        timeline.has_not_restarted("istio-init")?;
        timeline.has_not_restarted("our-init")?;
    }
    Ok(())
}

/// T12, T3, H5: the main's preStop hook takes five seconds, and the sidecar has none, so that the kubelet stops the
/// sidecar first.
#[tokio::test]
async fn t12_t3_h5_a_pre_stop_hook_of_the_main_only() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let hook = ["/bin/pod-member", "--name", "hook", "--log", "/pod/timeline.log", "--run", "5"];
        let fields = json!({ "lifecycle": { "preStop": { "exec": { "command": hook } } } });
        let manifest = Manifest::new("pre-stop")
            .annotate("plan", "proxy=sidecar, app=main")
            .container(Program::new("proxy"))
            .container_with(app(), fields);
        whole_life(kubelet, manifest, &["proxy", "app"]).await
    });
    let lives = lives.await?;
    lives.stock.in_order(&[("proxy", Exiting), ("hook", Exiting), ("app", Term)])?;
    lives.podshim.in_order(&[
        ("hook", Starting),
        ("hook", Exiting),
        ("app", Term),
        ("app", Exiting),
        ("proxy", Term),
        ("proxy", Exiting),
    ])
}

/// T4, T11, I6: the manifest is removed while an init runs.
#[tokio::test]
async fn t4_t11_i6_a_manifest_removed_during_init() -> Result<()> {
    let grace = seconds(10);
    let lives = on_both(async |kubelet: &Kubelet| {
        let pod = Manifest::new("during-init")
            .grace(grace)
            .annotate("plan", "fetch=init, proxy=sidecar, app=main")
            .container(Program::new("app"))
            .container(Program::new("proxy"))
            .container(Program::new("fetch").term_delay(seconds(1)))
            .run(kubelet)?;
        pod.wait_for("fetch", Started, 1, SOON).await?;
        pod.wait_seen(SOON).await?;
        let begin = Instant::now();
        pod.delete()?;
        Ok((pod.wait_ended(SOON).await?, begin.elapsed()))
    });
    let lives = lives.await?;
    lives.stock.0.run_together("fetch", "app")?;

    let (timeline, took) = lives.podshim;
    timeline.before(("fetch", Term), ("fetch", Exiting))?;
    timeline.doesnt_start("app")?;
    timeline.doesnt_start("proxy")?;
    ensure!(took < grace, "it took {took:?}\n{timeline}");
    Ok(())
}

/// T5, T7, T19: the main ignores its stop signal. 2 s before the kubelet's SIGKILL, or a third of the grace, podshim ends it, and the
/// proxy has that time.
async fn a_deaf_main(grace: Duration) -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let manifest = Manifest::new("deaf")
            .grace(grace)
            .annotate("plan", "proxy=sidecar, app=main")
            .container(Program::new("app").ignores_term())
            .container(Program::new("proxy").term_delay(milliseconds(500)));
        let pod = started(kubelet, manifest, &["proxy", "app"]).await?;
        let processes = [pod.pid("app").await?, pod.pid("proxy").await?];
        pod.delete()?;
        pod.wait_for("app", Term, 1, SOON).await?;
        let begin = Instant::now();
        wait::until("all processes to be gone", grace + seconds(10), async || {
            Ok((!processes.iter().any(|pid| is_alive(*pid))).then_some(()))
        })
        .await
        .with_context(|| format!("{:?}", pod.timeline()))?;
        let took = begin.elapsed();
        Ok((pod.wait_ended(SOON).await?, took))
    });
    let lives = lives.await?;
    let (timeline, _) = lives.stock;
    timeline.within(TOLERANCE, ("app", Term), ("proxy", Term))?;

    let (timeline, took) = lives.podshim;
    let kept = seconds(2).min(grace / 3);
    timeline.distance(("app", Term), ("proxy", Term), grace - kept, TOLERANCE)?;
    timeline.before(("proxy", Term), ("proxy", Exiting))?;
    ensure!(took <= grace + TOLERANCE, "gone after {took:?}\n{timeline}");
    Ok(())
}

#[tokio::test]
async fn t5_t7_a_deaf_main_and_two_seconds() -> Result<()> {
    a_deaf_main(seconds(2)).await
}

#[tokio::test]
async fn t5_t7_a_deaf_main_and_five_seconds() -> Result<()> {
    a_deaf_main(seconds(5)).await
}

#[tokio::test]
async fn t5_t7_a_deaf_main_and_thirty_seconds() -> Result<()> {
    a_deaf_main(seconds(30)).await
}
