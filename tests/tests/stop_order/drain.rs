//! Draining a node (N7, N11): class after class, all pods of one at the same time, each in its order, and no new
//! container meanwhile. Each test has a containerd of its own, because a drain ends all its pods.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Term};
use e2e::durations::pace;
use e2e::{Containerd, Pod, Program, RunningPod, Runtime};

use crate::support::{SOON, milliseconds, seconds, wait_started};

/// A pod whose stop takes a second and a half.
async fn pod_of_three<'node>(node: &'node Containerd, name: &str) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new(name).annotate("plan", "s1=sidecar, s2=sidecar, app=main");
    for program in ["s1", "s2", "app"] {
        pod = pod.container(Program::new(program).term_delay(milliseconds(500)));
    }
    let mut pod = pod.run(node, Runtime::Podshim).await?;
    pod.start_all(&["app", "s1", "s2"]).await?;
    wait_started(&pod, &["app"]).await?;
    Ok(pod)
}

/// A pod with a main that ignores SIGTERM, and ten minutes to end.
async fn stubborn_pod<'node>(node: &'node Containerd, name: &str) -> Result<RunningPod<'node>> {
    let mut pod = Pod::new(name)
        .annotate("plan", "s1=sidecar, app=main")
        .kubelet_grace(seconds(600))
        .container(Program::new("s1"))
        .container(Program::new("app").ignores_term())
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["app", "s1"]).await?;
    wait_started(&pod, &["app"]).await?;
    Ok(pod)
}

fn in_order(pod: &RunningPod<'_>) -> Result<()> {
    let order = ["app", "s2", "s1"].map(|container| [(container, Term), (container, Exiting)]);
    pod.timeline()?.in_order(&order.concat())
}

/// N7, T1: if the five pods were stopped one after the other, it would take more than seven seconds.
#[tokio::test]
async fn n7_t1_a_drain_ends_all_pods_at_once_each_in_its_order() -> Result<()> {
    let node = Containerd::start().await?;
    let mut pods = Vec::new();
    for number in 0..5 {
        pods.push(pod_of_three(&node, &format!("n7-{number}")).await?);
    }
    let begin = tokio::time::Instant::now();
    let printed = node.ctr().run(&["--run", "podshim", "drain", "--yes"]).await?;
    let took = begin.elapsed();
    ensure!(printed.contains("5 pods ended in time."), "{printed}");
    for pod in &pods {
        ensure!(printed.contains(&format!("e2e/{}: ended after", pod.name())), "{printed}");
        in_order(pod)?;
    }
    ensure!(took < seconds(5) * pace(), "it took {took:?}: {printed}");

    let refused = pod_of_three(&node, "n7-new").await.err().context("a pod was run on a node that drains")?;
    ensure!(format!("{refused:#}").contains("node is draining"), "{refused:#}");
    node.ctr().run(&["--run", "podshim", "drain", "--undo"]).await?;
    pod_of_three(&node, "n7-again").await?.remove().await
}

/// N7, T9: when a main does not end within the drain's time, the drain cuts the pod's stop short; its exit code and
/// output say so.
#[tokio::test]
async fn n7_t9_a_drain_has_its_own_limit() -> Result<()> {
    let node = Containerd::start().await?;
    let stubborn = stubborn_pod(&node, "n7-stubborn").await?;
    let drained = node.ctr().output(&["--run", "podshim", "drain", "--yes", "--timeout", "1s"]).await?;
    let printed = format!("{drained:?}");
    ensure!(
        printed.contains("its time cut short, after") && printed.contains("1 of 1 pod did not end in time"),
        "{printed}"
    );
    for container in ["app", "s1"] {
        stubborn.wait_exited(container, SOON).await?;
    }
    stubborn.timeline()?.before(("app", Term), ("s1", Term))?;
    Ok(())
}

/// When the pods ended, in milliseconds after the drain began, and how.
fn ends_of(report: &str) -> Result<BTreeMap<String, (u64, String)>> {
    let report: serde_json::Value = serde_json::from_str(report).with_context(|| report.to_owned())?;
    let pods = report["pods"].as_array().context("no pods")?;
    let of = |pod: &serde_json::Value| {
        let name = pod["pod"].as_str()?.strip_prefix("e2e/")?.to_owned();
        Some((name, (pod["after_ms"].as_u64()?, pod["end"].as_str()?.to_owned())))
    };
    pods.iter().map(|pod| of(pod).with_context(|| pod.to_string())).collect()
}

/// N11: the agent that others need ends last, also one without a plan; pods of one class end at the same time.
#[tokio::test]
async fn n11_agents_end_after_those_that_need_them() -> Result<()> {
    let node = Containerd::start().await?;
    let mut agent = Pod::new("n11-agent")
        .annotate("drain-priority", "1000")
        .container(Program::new("agent"))
        .run(&node, Runtime::Podshim)
        .await?;
    agent.start_all(&["agent"]).await?;
    let pods = [pod_of_three(&node, "n11-a").await?, pod_of_three(&node, "n11-b").await?];
    let ends = ends_of(&node.ctr().run(&["--run", "podshim", "drain", "--yes", "--json"]).await?)?;
    for pod in &pods {
        in_order(pod)?;
        // Each takes 1.5 s of its own; the agent ends at once.
        let (after, _) = ends[pod.name()];
        ensure!(after >= 1400 && ends[agent.name()].0 >= after, "{ends:?}");
    }
    Ok(())
}

/// N11, T9: a pod that does not end uses up the time of its own class only.
#[tokio::test]
async fn n11_t9_each_class_has_its_part_of_the_time() -> Result<()> {
    let node = Containerd::start().await?;
    let stubborn = stubborn_pod(&node, "n11-stubborn").await?;
    let mut agent = Pod::new("n11-last")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("drain-priority", "1000")
        .container(Program::new("s1"))
        .container(Program::new("app").term_delay(seconds(1)))
        .run(&node, Runtime::Podshim)
        .await?;
    agent.start_all(&["app", "s1"]).await?;
    wait_started(&agent, &["app"]).await?;
    let drained =
        node.ctr().output(&["--run", "podshim", "drain", "--yes", "--timeout", "20s", "--json"]).await?;
    let ends = ends_of(&drained.stdout)?;
    let ((cut, how), (last, end)) = (&ends[stubborn.name()], &ends[agent.name()]);
    ensure!(how == "cut-short" && (10_000..16_000).contains(cut), "{ends:?}");
    ensure!(end == "in-time" && *last >= cut + 1000, "{ends:?}");
    Ok(())
}
