//! Which processes the kernel kills first when memory is short (N8).

use anyhow::{Context, Result, ensure};
use e2e::Event::Started;
use e2e::instance::signal;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, wait};

use crate::support::{SOON, wait_started};

/// Waits until a container's processes, its program first, have these values. They may come late: the child may not
/// have been exec'd yet, and podshim corrects values after it has answered the create.
async fn wait_scores(pod: &RunningPod<'_>, name: &str, expected: &[i64]) -> Result<()> {
    let mut seen = Vec::new();
    let waited = wait::until("the scores", SOON, async || {
        seen = scores(pod, name).await?;
        Ok((seen == expected).then_some(()))
    })
    .await;
    waited.with_context(|| format!("{name} has {seen:?}, not {expected:?}"))
}

/// `oom_score_adj` of a container's program and of the child it has.
async fn scores(pod: &RunningPod<'_>, name: &str) -> Result<Vec<i64>> {
    let script = "for pid in 1 $(pidof sleep); do cat /proc/$pid/oom_score_adj; done";
    let seen = pod.exec(name, &["sh", "-c", script]).await?;
    Ok(seen.stdout.lines().map(str::parse).collect::<Result<_, _>>()?)
}

/// N8: a sidecar's processes, also its children, get the lowest score of the mains when a main is created, and a
/// restarted sidecar has it from the start. The mains keep theirs.
#[tokio::test]
async fn n8_a_sidecar_is_not_killed_before_its_mains() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("n8")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main, web=main")
        .container(Program::new("s1").oom_score(999).begins_with_script("sleep 1000 &"))
        .container(Program::new("s2").oom_score(500).begins_with_script("sleep 1000 &"))
        .container(Program::new("web").oom_score(950))
        .container(Program::new("app").oom_score(900))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2"]).await?;
    wait_started(&pod, &["s1", "s2"]).await?;
    wait_scores(&pod, "s1", &[999, 999]).await?;
    for (main, expected) in [("web", 950), ("app", 900)] {
        pod.start(main).await?;
        wait_scores(&pod, "s1", &[expected, expected]).await.with_context(|| format!("after {main}"))?;
    }
    // The program of an exec runs before its caller has the answer, and so before podshim has lowered it. crun leaves it its caller's.
    let lowered = "while [ $(cat /proc/self/oom_score_adj) -gt 900 ]; do sleep 0.1; done";
    let exec = pod.exec("s1", &["sh", "-c", lowered]).await.context("an exec in s1 is not lowered")?;
    ensure!(exec.exit_code == 0, "{exec:?}");
    wait_scores(&pod, "s2", &[500, 500]).await?;
    wait_scores(&pod, "web", &[950]).await?;
    wait_scores(&pod, "app", &[900]).await?;
    signal(node.cri()?.container_pid(pod.id("s1")?).await?, libc::SIGKILL)?;
    pod.wait_for("s1", Started, 2, SOON).await?;
    wait_scores(&pod, "s1", &[900, 900]).await.context("after its restart")?;
    pod.remove().await
}

/// N8: the pod can have the scores of its specs.
#[tokio::test]
async fn n8_with_own_the_scores_are_the_containers_own() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("n8-own")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("oom-score", "own")
        .container(Program::new("s1").oom_score(999).begins_with_script("sleep 1000 &"))
        .container(Program::new("app").oom_score(900))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    wait_scores(&pod, "s1", &[999, 999]).await?;
    pod.remove().await
}
