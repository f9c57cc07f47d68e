//! Init containers that a webhook injects (S8): no plan names them, and their kubelet creates nothing else before their end.

use anyhow::{Context, Result, ensure};
use control_api::client::ClientError;
use control_api::container::{Role, State};
use control_api::waiting::WaitingClient;
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

/// S15: an agent that knows the pod's object says so over the control API: the one that is held starts, the next one is not held.
#[tokio::test]
async fn s15_a_held_init_is_let_go_when_an_agent_names_it() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("named-init")
        .annotate("plan", "proxy=sidecar, *=main")
        .container(Program::new("proxy"))
        .container(Program::new("our-init").runs_for(milliseconds(300)).exits(0))
        .container(Program::new("next-init").exits(0))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start("our-init").await?;
    let shim = WaitingClient::connect(&node.shim_socket("k8s.io", pod.sandbox())?, SOON).await?;
    let shown = async |name: &str| -> Result<_> {
        let containers = shim.inspect().await?.containers;
        let shown = containers.into_iter().find(|shown| shown.name == name);
        let shown = shown.with_context(|| format!("no {name}"))?;
        Ok((shown.role.enum_value_or_default(), shown.state.enum_value_or_default()))
    };
    ensure!(shown("our-init").await? == (Role::MAIN, State::HELD));
    pod.timeline()?.doesnt_start("our-init")?;

    let refused = shim.kubelets_own(vec!["our init".to_owned()]).await;
    let is_refusal = |error: &ClientError| error.to_string().contains("\"our init\" is no container's name");
    ensure!(refused.as_ref().is_err_and(is_refusal), "{refused:?}");
    ensure!(shown("our-init").await? == (Role::MAIN, State::HELD));

    let names = vec!["our-init".to_owned(), "next-init".to_owned()];
    // A second agent gives the same.
    for _ in 0..2 {
        shim.kubelets_own(names.clone()).await?;
    }
    exit_with(&pod, &[("our-init", 0)]).await?;
    pod.start("next-init").await?;
    exit_with(&pod, &[("next-init", 0)]).await?;
    let own = shim.inspect().await?.kubelets_own.into_option().context("no names")?.names;
    ensure!(own == ["next-init", "our-init"], "{own:?}");

    // What the plan is about goes on in order.
    pod.start("app").await?;
    are_running(&pod, &["app"]).await?;
    pod.timeline()?.doesnt_start("app")?;
    pod.start("proxy").await?;
    let timeline = wait_started(&pod, &["proxy", "app"]).await?;
    timeline.completes_before("our-init", "next-init")?;
    timeline.before(("proxy", Starting), ("app", Starting))?;
    timeline.has_not_restarted("our-init")?;
    pod.remove().await
}
