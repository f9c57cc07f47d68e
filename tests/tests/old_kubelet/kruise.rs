//! What OpenKruise's controllers do to a pod on its node, replayed on a kubelet: the image of a sidecar is changed in place,
//! a hot pair is flipped, a container is recreated. The pod has Kruise's marks alone, and its node reads them (S12).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::{TOLERANCE, at_most, seconds};
use e2e::{Kubelet, Manifest, Program, Runtime, StaticPod, Timeline};

use crate::support::{SOON, last, on_both_alone, started};

const NEWER: &str = "podshim.test/newer:1";

/// Two SidecarSets, one of them with a hot pair, and an app that its author lists first.
fn injected(name: &str) -> Manifest {
    Manifest::new(name)
        .changeable()
        .annotate_with(
            "kruise.io/sidecarset-hash",
            r#"{"logs":{"sidecarSetName":"logs","sidecarList":["tail"]},"mesh":{"sidecarSetName":"mesh","sidecarList":["envoy"]}}"#,
        )
        .annotate_with("kruise.io/sidecarset-working-hotupgrade-container", r#"{"envoy":"envoy-1"}"#)
        .container(Program::new("app").term_delay(seconds(1)))
        .container(Program::new("tail").term_delay(seconds(1)))
        .container(Program::new("envoy-1").term_delay(seconds(1)))
        .container(Program::new("envoy-2"))
}

const ALL: [&str; 4] = ["app", "tail", "envoy-1", "envoy-2"];

/// Changes the image of a container, as Kruise's in-place update patches the pod's spec, and waits for the new one. Returns
/// how long that took beside the old program's own stop.
#[allow(clippy::disallowed_methods, reason = "a test measures on the clock of the containers' log")]
async fn update(pod: &StaticPod<'_>, manifest: &Manifest, name: &str) -> Result<Duration> {
    let starts = pod.timeline()?.count(name, Started);
    let changed = SystemTime::now().duration_since(UNIX_EPOCH)?;
    pod.change(manifest)?;
    let timeline = pod.wait_for(name, Started, starts + 1, SOON).await?;
    let took = last(&timeline, name, Started)?.saturating_sub(changed);
    let stop = last(&timeline, name, Exiting)?.saturating_sub(last(&timeline, name, Term)?);
    Ok(took.saturating_sub(stop))
}

fn only_restarted(timeline: &Timeline, starts: &[(&str, usize)]) -> Result<()> {
    for (name, count) in starts {
        ensure!(timeline.count(name, Starting) == *count, "{name} must start {count} times\n{timeline}");
    }
    Ok(())
}

/// S12, R11, T16: Kruise updates an image in place, then flips the hot pair. Each step takes podshim at most 3 s more than
/// containerd's own shim; no other container is touched; and the stop keeps its order afterwards.
#[tokio::test]
async fn s12_r11_t16_what_kruises_controllers_do_to_a_pod() -> Result<()> {
    let lives = on_both_alone(async |kubelet: &Kubelet| {
        if kubelet.runtime() == Runtime::Podshim {
            kubelet.node().write_node_file("read = [\"kruise\"]").await?;
        }
        let manifest = injected("kruise");
        let pod = started(kubelet, manifest.clone(), &ALL).await?;

        let manifest = manifest.with_image("tail", NEWER);
        let tail = update(&pod, &manifest, "tail").await.context("an image changed in place")?;
        only_restarted(&pod.timeline()?, &[("app", 1), ("tail", 2), ("envoy-1", 1), ("envoy-2", 1)])?;
        pod.wait_seen(SOON).await?;

        // The flip: the idle half gets the new image; once it is ready the other half gets the empty one.
        let manifest = manifest.with_image("envoy-2", NEWER);
        let new = update(&pod, &manifest, "envoy-2").await.context("the idle half")?;
        only_restarted(&pod.timeline()?, &[("app", 1), ("tail", 2), ("envoy-1", 1), ("envoy-2", 2)])?;
        pod.wait_seen(SOON).await?;
        let manifest = manifest.with_image("envoy-1", NEWER);
        let old = update(&pod, &manifest, "envoy-1").await.context("the half that worked")?;
        only_restarted(&pod.timeline()?, &[("app", 1), ("tail", 2), ("envoy-1", 2), ("envoy-2", 2)])?;
        pod.wait_seen(SOON).await?;

        // A CRR of Kruise: its daemon stops the container, and the kubelet recreates it.
        pod.stop_container("tail", seconds(30)).await?;
        let timeline = pod.wait_for("tail", Started, 3, SOON).await?;
        only_restarted(&timeline, &[("app", 1), ("envoy-1", 2), ("envoy-2", 2)])?;
        pod.wait_seen(SOON).await?;

        pod.delete()?;
        Ok(([tail, new, old], pod.wait_ended(SOON).await?))
    })
    .await?;
    let ((stock, _), (podshim, timeline)) = (lives.stock, lives.podshim);
    for (step, (stock, podshim)) in ["tail", "envoy-2", "envoy-1"].iter().zip(stock.iter().zip(&podshim)) {
        let more = podshim.saturating_sub(*stock);
        ensure!(at_most(more, seconds(3) + TOLERANCE), "{step}: {podshim:?}, and {stock:?} without podshim");
        eprintln!("{step}: {podshim:?}, and {stock:?} without podshim");
    }
    let end = |name, event| last(&timeline, name, event);
    for envoy in ["envoy-1", "envoy-2"] {
        ensure!(end(envoy, Term)? >= end("app", Exiting)?, "{envoy} ends before app\n{timeline}");
        ensure!(end("tail", Term)? >= end(envoy, Exiting)?, "tail ends before {envoy}\n{timeline}");
    }
    Ok(())
}
