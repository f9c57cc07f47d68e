//! The trace of a caller of containerd: its id is in podshim's log (docs/metrics.md, "Traces").

use std::fs;

use anyhow::{Result, ensure};
use e2e::Event::Started;
use e2e::durations::SOON;
use e2e::{Containerd, Pod, Program, Runtime, wait};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
/// Nothing listens there, in the instance's own network: containerd traces all the same.
const COLLECTOR: &str = "http://127.0.0.1:9";

/// The lines of containerd's log that podshim has written for requests of a trace.
fn traced(node: &Containerd) -> Result<Vec<String>> {
    let log = fs::read_to_string(node.directory().join("containerd.log"))?;
    Ok(log.lines().filter(|line| line.contains("request of a trace")).map(str::to_owned).collect())
}

/// containerd 2.x passes the trace of a CRI call on to the shim; 1.6 and 1.7 pass on none.
#[tokio::test]
async fn the_trace_of_a_cri_call_is_in_podshims_log() -> Result<()> {
    let node = Containerd::start_traced(COLLECTOR).await?;
    let mut pod = Pod::new("operator-trace")
        .annotate("plan", "app=main")
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    let id = pod.create("app").await?;
    node.cri()?.start_container_of_trace(&id, &format!("00-{TRACE}-00f067aa0ba902b7-01")).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    if node.version()? < (2, 0) {
        pod.remove().await?;
        ensure!(traced(&node)?.is_empty(), "{:?}", traced(&node)?);
        return Ok(());
    }
    let line = wait::until("the line of the start", SOON, async || {
        let parts = [format!(" id={id}"), "request=start".to_owned()];
        Ok(traced(&node)?.into_iter().find(|line| parts.iter().all(|part| line.contains(part))))
    })
    .await?;
    ensure!(line.contains(&format!("trace_id={TRACE}")), "{line}");
    pod.remove().await
}
