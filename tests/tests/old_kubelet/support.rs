//! Helpers that the tests share: both kubelets, a pod's whole life, and the last of several events.

use std::time::Duration;

use anyhow::{Context, Result};
use e2e::durations::seconds;
use e2e::{Event, Kubelet, Manifest, Runtime, StaticPod, Timeline};
use serde_json::{Value, json};

/// Limit of a wait for something for which a kubelet has no delay of its own. It looks at its containers once a second,
/// and creates those of a pod one after another.
pub(crate) const SOON: Duration = seconds(60);

/// The results of the same pod on both shims.
pub(crate) struct Both<T> {
    /// With containerd's own shim.
    pub(crate) stock: T,
    /// With podshim.
    pub(crate) podshim: T,
}

/// Runs `life` under both kubelets of the test run, at the same time.
pub(crate) async fn on_both<T>(life: impl AsyncFn(&Kubelet) -> Result<T>) -> Result<Both<T>> {
    let (stock, podshim) =
        (Kubelet::connect(Runtime::Runc).await?, Kubelet::connect(Runtime::Podshim).await?);
    live(&stock, &podshim, life).await
}

/// Runs `life` under two kubelets of the test's own, which it may kill.
pub(crate) async fn on_both_alone<T>(life: impl AsyncFn(&Kubelet) -> Result<T>) -> Result<Both<T>> {
    let (stock, podshim) = tokio::join!(Kubelet::start(Runtime::Runc), Kubelet::start(Runtime::Podshim));
    live(&stock?, &podshim?, life).await
}

async fn live<T>(
    stock: &Kubelet,
    podshim: &Kubelet,
    life: impl AsyncFn(&Kubelet) -> Result<T>,
) -> Result<Both<T>> {
    let (stock, podshim) = tokio::join!(life(stock), life(podshim));
    Ok(Both {
        stock: stock.context("with containerd's own shim")?,
        podshim: podshim.context("with podshim")?,
    })
}

/// Runs a pod, and waits until all of `up` have started and the kubelet has seen it.
pub(crate) async fn started<'kubelet>(
    kubelet: &'kubelet Kubelet,
    manifest: Manifest,
    up: &[&str],
) -> Result<StaticPod<'kubelet>> {
    let pod = manifest.run(kubelet)?;
    for name in up {
        pod.wait_for(name, Event::Started, 1, SOON).await?;
    }
    pod.wait_seen(SOON).await?;
    Ok(pod)
}

/// Runs a pod, deletes it once all of `up` have started, and waits until it has ended.
pub(crate) async fn whole_life(kubelet: &Kubelet, manifest: Manifest, up: &[&str]) -> Result<Timeline> {
    let pod = started(kubelet, manifest, up).await?;
    pod.delete()?;
    pod.wait_ended(SOON).await
}

/// When `event` of `container` happened for the last time.
pub(crate) fn last(timeline: &Timeline, container: &str, event: Event) -> Result<Duration> {
    let last = timeline.of(container, event).last();
    Ok(last.with_context(|| format!("{container} has no {event:?} in\n{timeline}"))?.at)
}

/// A probe that runs a command in its container each second, and on which the kubelet acts after `failures` failures.
pub(crate) fn probe(command: &[&str], failures: u32) -> Value {
    json!({ "exec": { "command": command }, "periodSeconds": 1, "failureThreshold": failures })
}
