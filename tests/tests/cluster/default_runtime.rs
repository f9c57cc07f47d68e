//! The cluster's default runtime: pods that name no RuntimeClass run on it.

use anyhow::{Result, ensure};
use e2e::{Cluster, Runtime, Workload};

use crate::support::{SOON, with_proxy};

/// The pods of the tests are on the shim that each of them is to show: with a class on another runtime than the default,
/// without one on the default.
#[tokio::test]
async fn a_pod_runs_on_the_shim_that_it_shows() -> Result<()> {
    let cluster = Cluster::connect()?;
    for (name, runtime) in [("on-podshim", Runtime::Podshim), ("on-runc", Runtime::Runc)] {
        let workload = Workload::pod(with_proxy(name)).on(runtime).run(&cluster).await?;
        let pods = workload.wait_ready(1, SOON).await?;
        let class = workload.object().await?["spec"]["runtimeClassName"].take();
        ensure!(class.is_null() == (runtime == cluster.default_runtime()?), "{name}: {class}");
        let shim = cluster.shim_of(&pods[0]).await?;
        ensure!(shim == runtime, "{name} runs on {shim:?}");
        workload.delete(SOON).await?;
    }
    Ok(())
}
