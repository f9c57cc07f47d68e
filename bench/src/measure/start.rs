//! The shim's `start` action by itself: containerd runs it once for each container.

use anyhow::Result;
use e2e::direct::bundle::Bundle;

use super::own_shim::{Addresses, OwnShim, Terminal};
use crate::contender::{Contender, SHIMS};
use crate::figures::Figures;
use crate::rounds::Bench;

/// The annotation by which both shims know a container's group.
const GROUP: &str = "io.kubernetes.cri.sandbox-id";

pub async fn measure(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let rounds = bench.choose(20, 6);
    bench
        .alternate("start", rounds, &SHIMS, figures, async |contender, figures| {
            start(bench, contender, figures).await
        })
        .await
}

async fn start(bench: &Bench, contender: Contender, figures: &mut Figures) -> Result<()> {
    let Some(runtime) = contender.handler() else { return Ok(()) };
    OwnShim::with(bench.node, runtime, async |shim| {
        let member = |kind: &str| {
            Bundle::program(&["sleep", "1000"]).spec(|spec| {
                spec["annotations"][GROUP] = "pod".into();
                spec["annotations"]["io.kubernetes.cri.container-type"] = kind.into();
            })
        };
        let first = shim.start_action("pod", &member("sandbox")).await?;
        shim.create("pod", &Addresses::default(), Terminal::No).await?;
        shim.start("pod", "").await?;
        let second = shim.start_action("app", &member("container")).await?;
        figures.add_time("for the first container of a pod", contender, first);
        figures.add_time("for a second container", contender, second);
        shim.kill("pod", libc::SIGKILL).await?;
        shim.wait("pod", "").await?;
        shim.delete("pod", "").await?;
        Ok(())
    })
    .await
}
