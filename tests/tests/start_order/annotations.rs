//! Bad annotations (S4, S5, 11.4): podshim refuses the sandbox with one line that names the key, the value and the
//! nearest word, and nothing of the pod ever exists. pod-spec makes each message and tests it; these tests check that
//! callers get it, and that nothing is left.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::{Containerd, Pod, Runtime, wait};

use crate::support::{SOON, message};

const PLAN: (&str, &str) = ("plan", "fetch=init, proxy=sidecar, app=main");

/// Wrong annotations, and what the answer must contain.
const REFUSED: [(&[(&str, &str)], &str); 11] = [
    // S4: no main.
    (&[("plan", "proxy=sidecar")], "podshim.io/plan: no main container"),
    (
        &[("plan", "proxy=sidcar, app=main")],
        r#"podshim.io/plan: unknown role "sidcar" in "proxy=sidcar" (did you mean "sidecar"?)"#,
    ),
    (&[("plan", "app=main, app=sidecar")], r#"podshim.io/plan: duplicate name "app""#),
    (&[("grace", "10s")], "podshim.io/plan: missing, but podshim.io/grace is set"),
    (&[PLAN, ("garce", "1s")], r#"podshim.io/garce: unknown key (did you mean "podshim.io/grace"?)"#),
    (
        &[PLAN, ("ready.prxy", "none")],
        r#"podshim.io/ready.prxy: no container "prxy" in podshim.io/plan (did you mean "proxy"?)"#,
    ),
    (
        &[PLAN, ("restart-policy", "never")],
        r#"podshim.io/restart-policy: unknown value "never" (did you mean "Never"?)"#,
    ),
    (&[PLAN, ("ready.fetch", "none")], r#""fetch" is an init container: it has no "ready""#),
    (&[PLAN, ("grace", "5")], r#"podshim.io/grace: "5" has no unit"#),
    (&[PLAN, ("ready.proxy", "tcp:example.org:80")], r#"host "example.org" is not a literal IP address"#),
    (
        &[("plan", "proxy|next=sidecar, app=main"), ("after.next", "app=ready")],
        "podshim.io/after.next: \"next\" is the standby of \"proxy\"",
    ),
];

/// Where traces of a task, a shim or a sandbox would be: below the instance's root file system, and below its
/// directory.
const IN_ROOT: [&str; 6] = [
    "run/containerd/runc/k8s.io",
    "run/containerd/runc/default",
    "run/podshim/k8s.io",
    "run/podshim/default",
    "run/netns",
    "run/containerd/s",
];
const IN_DIRECTORY: [&str; 4] = [
    "state/io.containerd.runtime.v2.task/k8s.io",
    "state/io.containerd.runtime.v2.task/default",
    "state/io.containerd.grpc.v1.cri/sandboxes",
    "pods",
];

/// All traces of tasks, shims and sandboxes on a node that no other test uses.
fn traces(node: &Containerd) -> Result<BTreeSet<String>> {
    let root = node.root()?;
    let inside = node.directory_inside()?;
    let in_root = IN_ROOT.iter().map(|directory| root.join(directory));
    let directories = in_root.chain(IN_DIRECTORY.iter().map(|directory| inside.join(directory)));
    let mut found = BTreeSet::new();
    for directory in directories {
        // A missing directory counts as empty.
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        found.extend(entries.map(|entry| entry.path().display().to_string()));
    }
    found.extend(node.mounts()?.lines().filter(|line| line.contains("io.containerd")).map(str::to_owned));
    let address = node.directory().join("containerd.sock");
    found.extend(shims_of(&address)?);
    Ok(found)
}

/// The shims that serve one containerd.
fn shims_of(address: &Path) -> Result<Vec<String>> {
    let address = address.to_string_lossy();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let command = std::fs::read(entry?.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains("containerd-shim") && command.contains(&*address) {
            found.push(command);
        }
    }
    Ok(found)
}

/// S4, S5: RunPodSandbox reports each mistake, and leaves nothing. Uses a containerd of its own, so that everything
/// that appears comes from this test.
#[tokio::test]
async fn s5_bad_annotations_are_answered_and_nothing_is_left() -> Result<()> {
    let node = Containerd::start().await?;
    let before = traces(&node)?;
    for (annotations, expected) in REFUSED {
        let pod = annotations.iter().fold(Pod::new("s5"), |pod, (key, value)| pod.annotate(key, value));
        let error = pod.run(&node, Runtime::Podshim).await.err();
        let error = message(&error.with_context(|| format!("{annotations:?} was accepted"))?);
        ensure!(error.contains(expected), "{annotations:?}: {error}");
        ensure!(node.cri()?.list_pod_sandboxes().await?.is_empty(), "{annotations:?}: a sandbox is listed");
    }
    nothing_new(&node, &before).await
}

/// S4: the same through `ctr`, which has no sandbox: the container itself carries the plan.
#[tokio::test]
async fn s4_ctr_run_without_a_main_fails_and_nothing_is_left() -> Result<()> {
    let node = Containerd::start().await?;
    let before = traces(&node)?;
    let runtime = Runtime::Podshim.runtime_type();
    let words = ["run", "--rm", "--runtime", runtime, "--annotation", "podshim.io/plan=proxy=sidecar"];
    let words = [&words[..], &["podshim.test/busybox:1", "s4", "/bin/pod-member", "--name", "x"]].concat();
    let output = node.ctr().output(&words).await?;
    ensure!(output.exit_code != Some(0) && output.stdout.is_empty(), "{output:?}");
    ensure!(output.stderr.contains("podshim.io/plan: no main container"), "{output:?}");
    nothing_new(&node, &before).await
}

/// Shims end a moment after the answer.
async fn nothing_new(node: &Containerd, before: &BTreeSet<String>) -> Result<()> {
    let mut now = BTreeSet::new();
    let waited = wait::until("nothing to be left", SOON, async || {
        now = traces(node)?;
        Ok(now.is_subset(before).then_some(()))
    })
    .await;
    waited.with_context(|| format!("left: {:#?}", now.difference(before).collect::<Vec<_>>()))
}
