//! Leases on the files of a container's own control groups, which it sees through its read-only mount of them: without a privilege it
//! keeps for 45 s (`fs.lease-break-time`) whatever opens them and waits.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};

use crate::support::{EndsWithTest, PROMPT, ensure_serving};

/// Another container with each, as both are served by one shim.
pub async fn with_leases<'node>(node: &'node Containerd, name: &str) -> Result<RunningPod<'node>> {
    let lessee = Program::new("lessee").begins_with_script("adversary leases &\nsleep 0.5");
    let mut pod =
        Pod::new(name).container(lessee).container(Program::new("other")).run(node, Runtime::Podshim).await?;
    pod.start_all(&["other", "lessee"]).await?;
    let output = pod.wait_for_output("lessee", "leases: ").await?;
    let count = output.lines().find_map(|line| line.rsplit_once("leases: ")?.1.parse::<usize>().ok());
    ensure!(count.is_some_and(|count| count > 20), "no leases: {output}");
    Ok(pod)
}

/// Until podshim opened such files without waiting, one Stats kept it for 45 s a file, and no request to the pod was answered.
#[tokio::test]
async fn a_container_with_leases_on_its_groups_files_delays_no_request() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = with_leases(&node, "lessee").await?;
    let _ends = EndsWithTest::of(&pod)?;
    let cri = node.cri()?;
    for container in ["lessee", "other"] {
        let stats =
            wait::at_most(PROMPT, "figures of a container", cri.container_stats(pod.id(container)?)).await?;
        let memory =
            stats.memory.context("no figures of memory")?.working_set_bytes.map_or(0, |bytes| bytes.value);
        let time = stats
            .cpu
            .context("no figures of the processor")?
            .usage_core_nano_seconds
            .map_or(0, |used| used.value);
        ensure!(memory > 0 && time > 0, "{container}: {memory} bytes, {time} ns");
    }
    ensure_serving(&pod, "other").await?;
    wait::at_most(PROMPT, "a stop of the lessee", pod.stop("lessee", Duration::from_secs(1))).await?;
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await
}
