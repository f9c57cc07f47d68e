//! Init containers that a webhook injects (S8): no plan names them, and their kubelet creates nothing else before their end.

use anyhow::{Result, ensure};
use e2e::Event::Starting;
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{SOON, are_running, exit_with, lines_of_podshim, milliseconds, wait_started};

/// S8, S4: in a pod whose mains have no names, an init of a well-known name and one of which its user says so are the kubelet's own.
/// They are not held, and a job's end does not wait for them.
#[tokio::test]
async fn s8_found_k1_an_injected_init_runs_at_once() -> Result<()> {
    let node = Containerd::connect().await?;
    let init = |name| Program::new(name).runs_for(milliseconds(300)).exits(0);
    let mut pod = Pod::new("injected")
        .annotate("plan", "proxy=sidecar, *=main")
        .annotate("role.our-init", "none")
        .container(init("istio-init"))
        .container(init("our-init"))
        .container(Program::new("proxy"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    // As its kubelet: the next one only when this one has ended.
    for name in ["istio-init", "our-init"] {
        pod.start(name).await?;
        exit_with(&pod, &[(name, 0)]).await?;
    }
    pod.start("app").await?;
    are_running(&pod, &["app"]).await?;
    pod.timeline()?.doesnt_start("app")?;
    pod.start("proxy").await?;
    let timeline = wait_started(&pod, &["proxy", "app"]).await?;
    timeline.completes_before("istio-init", "our-init")?;
    timeline.before(("proxy", Starting), ("app", Starting))?;
    pod.remove().await
}

/// S8, U13: one of another name is held as a main. Its log says after 10 s which annotation ends the deadlock, and that one does.
#[tokio::test]
async fn s8_u13_found_k1_a_held_init_says_what_to_write() -> Result<()> {
    let node = Containerd::connect().await?;
    let injected = |pod: Pod| {
        let pod = pod.annotate("plan", "proxy=sidecar, *=main").container(Program::new("proxy"));
        pod.container(Program::new("our-init").exits(0))
    };
    let mut held = injected(Pod::new("held-init")).run(&node, Runtime::Podshim).await?;
    held.start("our-init").await?;
    let advice = wait::until("the advice", SOON, async || {
        let log = held.output("our-init")?;
        Ok(lines_of_podshim(&log)
            .iter()
            .find_map(|line| Some(line.split_once("write podshim.io/")?.1.to_owned())))
    });
    let advice = advice.await?;
    let (key, value) = advice.split_once(": ").unwrap_or_default();
    ensure!((key, value) == ("role.our-init", "none"), "{advice:?}");
    held.timeline()?.doesnt_start("our-init")?;
    held.remove().await?;

    let mut mended =
        injected(Pod::new("mended-init").annotate(key, value)).run(&node, Runtime::Podshim).await?;
    mended.start("our-init").await?;
    exit_with(&mended, &[("our-init", 0)]).await?;
    mended.start("proxy").await?;
    wait_started(&mended, &["proxy"]).await?;
    mended.remove().await
}
