//! The node's configuration file (DESIGN §5, §6), in its place on a node: its defaults for pods, and what it refuses.
//! Uses a containerd of its own, whose `/etc` no other test uses.

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::{Containerd, Pod, Program, Runtime};

use crate::support::{
    SOON, TOLERANCE, at_most, exit_with, message, milliseconds, near, seconds, starts, wait_started,
};

/// DESIGN §5: `grace`, `gate-timeout`, `zero-grace`, `backoff-base` and `backoff-max` apply to a pod that does not set
/// them.
#[tokio::test]
async fn a_nodes_defaults_are_a_pods_that_does_not_say() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("grace = \"1s\"\ngate-timeout = \"2s\"\nzero-grace = \"order\"\nbackoff-base = \"3s\"\nbackoff-max = \"3s\"",
    )
    .await?;

    // grace (T5): the completion of a job is a stop of podshim's own.
    let mut pod = Pod::new("node-grace")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .container(Program::new("s1").ignores_term())
        .container(Program::new("app").runs_for(milliseconds(500)).exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    exit_with(&pod, &[("app", 0), ("s1", 0)]).await?;
    let ended = std::time::Duration::from_nanos(pod.status("s1").await?.finished_at.try_into()?);
    let lived = ended.saturating_sub(pod.timeline()?.time_of("s1", Term)?);
    // The grace, and the 2 s that follow it (T6).
    ensure!(near(lived, seconds(3), TOLERANCE), "s1 was killed after {lived:?}");
    pod.remove().await?;

    // gate-timeout (U6), and a pod that sets its own.
    for (own, code) in [(None, 125), (Some("0"), 0)] {
        let mut pod = Pod::new("node-gate")
            .annotate("plan", "s1=sidecar, app=main")
            .annotate("ready.s1", "exec:test -e /tmp/ready;period=200ms;fail=1000")
            .container(Program::new("s1").ready_file("/tmp/ready", seconds(6)))
            .container(Program::new("app").exits(0));
        if let Some(own) = own {
            pod = pod.annotate("gate-timeout", own);
        }
        let mut pod = pod.run(&node, Runtime::Podshim).await?;
        pod.start_all(&["s1", "app"]).await?;
        exit_with(&pod, &[("app", code)]).await?;
        if own.is_none() {
            pod.wait_for_output("app", "podshim: held 2s for sidecar \"s1\"").await?;
        }
        pod.remove().await?;
    }

    // zero-grace (K11), backoff-base and backoff-max (R4): none, 3 s, and 3 s again.
    let half = milliseconds(500);
    let mut pod = Pod::new("node-order")
        .annotate("plan", "s1=sidecar, s2=sidecar, app=main")
        .annotate("gate-timeout", "0")
        .container(Program::new("s1").runs_for_each(&[half, half, half, seconds(600)]).exits(1))
        .container(Program::new("s2"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "s2", "app"]).await?;
    wait_started(&pod, &["s2", "app"]).await?;
    let timeline = pod.wait_for("s1", Starting, 4, SOON).await?;
    let runs = starts(&timeline, "s1");
    for (pair, gap) in runs.windows(2).zip([0, 3, 3].map(seconds)) {
        let waited = pair[1].saturating_sub(pair[0]);
        ensure!(
            waited >= gap && at_most(waited.saturating_sub(gap), milliseconds(2500)),
            "{waited:?}, not {gap:?}:\n{timeline}"
        );
    }
    pod.wait_for("s1", e2e::Event::Started, 4, SOON).await?;
    pod.stop("app", seconds(0)).await?;
    exit_with(&pod, &[("app", 0), ("s2", 0), ("s1", 0)]).await?;
    pod.timeline()?.in_order(&[
        ("app", Term),
        ("app", Exiting),
        ("s2", Term),
        ("s2", Exiting),
        ("s1", Term),
    ])?;
    pod.remove().await
}

/// DESIGN §6: podshim refuses at Create what the node forbids, fixes or bounds, as it does any wrong annotation (S5); a
/// pod within these limits runs. With a mistake in the file only pods with annotations are refused.
#[tokio::test]
async fn s5_what_a_node_does_not_allow_is_refused() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file(
        "forbid = [\"http:\", \"fatal\"]\nfixed = [\"zero-grace\", \"gate-timeout\"]\nmax-grace = \"1m\"\n\
         max-containers = 2\nmin-period = \"1s\"",
    )
    .await?;
    for (keys, expected) in [
        (&[("ready.s1", "http::80/")][..], r#"podshim.io/ready.s1: "http:" is forbidden on this node"#),
        (&[("fatal.s1", "exit")], r#"podshim.io/fatal.s1: "fatal" is forbidden on this node"#),
        (&[("zero-grace", "obey")], "podshim.io/zero-grace: is fixed on this node: remove the key"),
        (&[("gate-timeout", "1s")], "podshim.io/gate-timeout: is fixed on this node: remove the key"),
        (&[("grace", "2m")], "podshim.io/grace: this node allows at most 1m"),
        (&[("grace.s1", "2m")], "podshim.io/grace.s1: this node allows at most 1m"),
        (
            &[("ready.s1", "tcp::80;period=500ms")],
            "podshim.io/ready.s1: this node allows a period of at least 1s",
        ),
        (&[("plan", "s1=sidecar, a=main, b=main")], "podshim.io/plan: this node allows at most 2 containers"),
    ] {
        let pod = Pod::new("node-refuses").annotate("plan", "s1=sidecar, app=main");
        let pod = keys.iter().fold(pod, |pod, (key, value)| pod.annotate(key, value));
        let refused = pod.run(&node, Runtime::Podshim).await.err();
        let refused = message(&refused.with_context(|| format!("{keys:?} was accepted"))?);
        ensure!(refused.contains(expected), "{keys:?}: {refused}");
    }
    let mut pod = Pod::new("node-allows")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "exec:true;period=1s")
        .annotate("grace", "1m")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    wait_started(&pod, &["s1", "app"]).await?;
    pod.remove().await?;

    node.write_node_file("grace = \"1s\"\nforbit = [\"exec:\"]").await?;
    let refused =
        Pod::new("node-mistake").annotate("plan", "app=main").run(&node, Runtime::Podshim).await.err();
    let refused = message(&refused.context("the mistake was not seen")?);
    let expected = r#"/etc/podshim/config.toml: line 2: unknown key "forbit" (did you mean "forbid"?)"#;
    ensure!(refused.contains(expected), "{refused}");
    let mut pod =
        Pod::new("node-other").container(Program::new("app").exits(0)).run(&node, Runtime::Podshim).await?;
    pod.start("app").await?;
    exit_with(&pod, &[("app", 0)]).await?;
    ensure!(node.cri()?.list_pod_sandboxes().await?.len() == 1, "a refused pod is listed");
    pod.remove().await
}

/// The node's file names the OCI runtime, also of a pod without annotations. crun's state is in a file `status`, runc's in `state.json`.
#[tokio::test]
async fn the_nodes_oci_runtime_makes_the_containers() -> Result<()> {
    let node = Containerd::start().await?;
    node.write_node_file("oci-runtime = \"crun\"").await?;
    let mut pod = Pod::new("node-crun").container(Program::new("app")).run(&node, Runtime::Podshim).await?;
    pod.start_all(&["app"]).await?;
    let states = node.root()?.join("run/containerd/runc/k8s.io");
    let made = std::fs::read_dir(&states)?.collect::<std::io::Result<Vec<_>>>()?;
    ensure!(made.iter().any(|entry| entry.path().join("status").exists()), "no state of crun in {made:?}");
    // Another file does not reach what runs: `delete` and the container's further calls are crun's.
    node.write_node_file("oci-runtime = \"runc\"").await?;
    pod.exec("app", &["true"]).await?;
    pod.remove().await?;
    ensure!(std::fs::read_dir(&states)?.next().is_none(), "state is left in {}", states.display());
    Ok(())
}
