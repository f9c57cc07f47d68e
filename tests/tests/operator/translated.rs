//! Runs what `podshim translate` writes through the CRI, as a kubelet would that knows no sidecars: `initContainers`
//! one after another, then all `containers`, all stopped at the same moment. The order that KEP-753 demands for the
//! original must hold.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use manifests::manifest::{self, List, Template};
use manifests::yaml::{self, Document, Node};

use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::{AMPLE, SOON, seconds};
use e2e::{Containerd, Pod, Program, RunningPod, Runtime, Timeline};

fn path(name: &str) -> Result<String> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    let path: PathBuf = Path::new(&package).join("tests").join(name);
    Ok(path.to_str().context("a path that is not UTF-8")?.to_owned())
}

fn documents(text: &str) -> Result<Vec<Document>> {
    Ok(yaml::documents(text)?)
}

fn only_pod(documents: &[Document]) -> Result<Template<'_>> {
    documents.iter().flat_map(manifest::templates).next().context("no pod")
}

/// A pod with the plan and the programs of a template.
fn pod(name: &str, template: &Template<'_>) -> Result<Pod> {
    let mut pod = Pod::new(name);
    for (key, value) in template.annotations().map(manifest::pairs).into_iter().flatten() {
        if let Some(key) = key.strip_prefix("podshim.io/") {
            pod = pod.annotate(key, value);
        }
    }
    for container in template.containers() {
        let command = container.node.get("command").map(Node::items).unwrap_or_default();
        let words: Option<Vec<&str>> = command.iter().map(Node::text).collect();
        pod = pod.container(Program::of_command(container.name, &words.context("no command")?)?);
    }
    Ok(pod)
}

/// Creates and starts the containers as that kubelet does.
async fn start(pod: &mut RunningPod<'_>, template: &Template<'_>) -> Result<()> {
    for container in template.containers() {
        pod.start(container.name).await?;
        if container.list != List::Regular {
            let ended = pod.wait_exited(container.name, SOON).await?;
            ensure!(ended.exit_code == 0, "{}: {ended:?}", container.name);
        }
    }
    Ok(())
}

/// Checks the order that KEP-753 demands for the pod as its author wrote it. Each sidecar with a probe is ready a
/// second after its start at the earliest.
fn keeps_the_order(original: &Template<'_>, timeline: &Timeline) -> Result<()> {
    let containers = original.containers();
    for (place, container) in containers.iter().enumerate() {
        for later in &containers[place + 1..] {
            match container.list {
                List::Init => timeline.completes_before(container.name, later.name)?,
                List::NativeSidecar => {
                    timeline.starts_before(container.name, later.name)?;
                    let ready = timeline.time_of(container.name, Starting)? + seconds(1);
                    ensure!(
                        timeline.time_of(later.name, Starting)? >= ready,
                        "{} did not wait for {}\n{timeline}",
                        later.name,
                        container.name
                    );
                    timeline.in_order(&[(later.name, Exiting), (container.name, Term)])?;
                }
                List::Regular => {}
            }
        }
    }
    Ok(())
}

/// Translates one of the manifests that the old kubelet's tests use too, runs it and checks its order.
async fn lives_as_native(name: &str) -> Result<()> {
    let node = Containerd::connect().await?;
    let file = path(&format!("old_kubelet/native/{name}.yaml"))?;
    let original = documents(&std::fs::read_to_string(&file)?)?;
    let original = only_pod(&original)?;
    let translated = documents(&node.podshim(&["translate", &file]).await?)?;
    let translated = only_pod(&translated)?;
    let natives = translated.containers().iter().filter(|it| it.list == List::NativeSidecar).count();
    ensure!(natives == 0 && translated.annotations().is_some(), "{name} was not translated");

    let mut running = pod(name, &translated)?.run(&node, Runtime::Podshim).await?;
    start(&mut running, &translated).await?;
    let mains: Vec<&str> =
        original.containers().iter().filter(|it| it.list == List::Regular).map(|it| it.name).collect();
    for main in &mains {
        running.wait_for(main, Started, 1, SOON).await?;
    }
    if original.restart_policy() == "Always" {
        running.stop_all_at_once(AMPLE).await?;
    } else {
        // J1: the pod completes by itself.
        for container in translated.containers() {
            running.wait_exited(container.name, AMPLE).await?;
        }
    }
    keeps_the_order(&original, &running.timeline()?)?;
    running.remove().await
}

/// S2, U2, T1: three sidecars, each ready before the next starts, end in reverse order.
#[tokio::test]
async fn s2_u2_t1_three_translated_sidecars() -> Result<()> {
    lives_as_native("three-sidecars").await
}

/// S2, J1: when the job ends, its proxy ends too.
#[tokio::test]
async fn s2_j1_a_translated_job_with_a_mesh_proxy() -> Result<()> {
    lives_as_native("job-with-a-mesh").await
}

/// S2, I1, S8: the kubelet still runs an init before the sidecar, and podshim runs one after it.
#[tokio::test]
async fn s2_i1_s8_a_translated_agent_between_inits() -> Result<()> {
    lives_as_native("vault-agent").await
}

/// V1, V4, T1: what a SidecarSet adds: a pair that is ready before the main starts, is switched while the main runs on,
/// and ends after it; and a sidecar that starts after the main.
#[tokio::test]
async fn v1_v4_t1_the_hot_upgrade_of_an_injected_sidecar() -> Result<()> {
    let node = Containerd::connect().await?;
    let (set, file) = (path("operator/manifests/mesh.yaml")?, path("operator/manifests/web.yaml")?);
    let translated = documents(&node.podshim(&["translate", "--sidecarset", &set, &file]).await?)?;
    let translated = only_pod(&translated)?;
    let mut running = pod("sidecarset", &translated)?.run(&node, Runtime::Podshim).await?;
    start(&mut running, &translated).await?;
    running.wait_for("forwarder", Started, 1, SOON).await?;
    let timeline = running.wait_for("web", Started, 1, SOON).await?;
    timeline.in_order(&[("fetch", Exiting), ("proxy-1", Starting), ("web", Starting)])?;
    // It may start when web's program has been exec'd (U1); web may record that later than the forwarder records its
    // own start.
    timeline.before(("proxy-1", Starting), ("forwarder", Starting))?;
    timeline.within(seconds(1), ("web", Starting), ("forwarder", Starting))?;
    let ready = timeline.time_of("proxy-1", Starting)? + seconds(1);
    ensure!(timeline.time_of("web", Starting)? >= ready, "the main did not wait\n{timeline}");
    timeline.doesnt_start("proxy-2")?;

    let switch = ["--run", "podshim", "switch", running.sandbox(), "proxy-1"];
    let output = node.ctr().output(&switch).await?;
    ensure!(output.exit_code == Some(0), "{output:?}");
    let migrated = running.exec("web", &["test", "-e", "/pod/migrated"]).await?;
    ensure!(migrated.exit_code == 0, "the postStart hook did not migrate");
    running.stop_all_at_once(AMPLE).await?;
    let timeline = running.timeline()?;
    timeline.in_order(&[
        ("proxy-2", Starting),
        ("proxy-1", Exiting),
        ("web", Exiting),
        ("forwarder", Term),
        ("proxy-2", Term),
    ])?;
    timeline.has_not_restarted("web")?;
    running.remove().await
}
