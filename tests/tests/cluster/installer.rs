//! `dist/kubernetes`, applied: the installer's DaemonSet labels its node, is replaced under a pod, and the Job removes
//! podshim again. The installer gets a root that is made for the test, as the root of these nodes is the machine's; it
//! asks the node's own containerd, which has podshim already. So systemctl is a script there that writes down its words.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::durations::seconds;
use e2e::{Cluster, ClusterPod, Containerd, Workload, hack, wait};
use node_state::entry::Entry;
use serde_json::{Value, json};

use crate::containerd;
use crate::support::{SOON, import, load_image, started_in_order, with_proxy};

const LABEL: &str = "podshim.io/ready";
/// The name of the test's own RuntimeClass: the cluster's is for the other tests.
const CLASS: &str = "podshim-installed";
const IMAGES: [&str; 2] = ["podshim.test/podshim:installer-1", "podshim.test/podshim:installer-2"];
const PROGRAMS: [&str; 2] = ["podshim", "containerd-shim-podshim-v2"];
const REMOVAL: &str = "job/podshim-remove-node-1";
const CONFIG: &str = "version = 2\n# the node's\n";

/// The root that the installer takes for the node's.
struct HostRoot {
    path: PathBuf,
}

impl HostRoot {
    fn make(node: &Containerd) -> Result<Self> {
        let path = node.directory().join("host-root");
        for directory in ["etc/containerd", "run/containerd", "run/systemd/system", "usr/bin"] {
            fs::create_dir_all(path.join(directory))?;
        }
        fs::write(path.join("etc/containerd/config.toml"), CONFIG)?;
        fs::copy("/usr/bin/busybox", path.join("usr/bin/busybox"))?;
        let systemctl = path.join("usr/bin/systemctl");
        let script = "#!/usr/bin/busybox sh\ncase \"$*\" in\n*is-active*podshim-drain*) [ -e /drain ]; exit ;;\n\
                      *' start podshim-drain'*) echo >/drain ;;\nesac\necho \"$@\" >>/calls\n";
        fs::write(&systemctl, script)?;
        fs::set_permissions(&systemctl, fs::Permissions::from_mode(0o755))?;
        Ok(Self { path })
    }

    /// The calls of systemctl without their options.
    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.path.join("calls")).unwrap_or_default();
        calls.lines().map(|call| call.replace("--no-ask-password --no-pager ", "")).collect()
    }

    fn has(&self, path: &str) -> bool {
        self.path.join(path).exists()
    }

    /// The place for a directory of the node.
    fn below(&self, directory: &str) -> String {
        format!("{}{directory}", self.path.display())
    }

    /// Puts a directory of the node there. Only the node's mount namespace has it, as containerd does.
    async fn bind(&self, node: &Containerd, directory: &str) -> Result<()> {
        let place = self.below(directory);
        fs::create_dir_all(&place)?;
        node.ctr().run(&["--run", "mount", "--bind", directory, &place]).await.map(drop)
    }

    async fn unbind(&self, node: &Containerd, directory: &str) -> Result<()> {
        node.ctr().run(&["--run", "umount", &self.below(directory)]).await.map(drop)
    }
}

/// What the node has of a live pod on podshim: its directory, and that of all shims' sockets.
fn directories_of(node: &Containerd, pod: &ClusterPod) -> Result<[String; 2]> {
    const PODS: &str = "run/podshim/k8s.io";
    for directory in fs::read_dir(node.root()?.join(PODS))? {
        let directory = directory?;
        let entry = fs::read(directory.path().join("pod.json")).ok().and_then(|entry| Entry::parse(&entry));
        if entry.is_some_and(|entry| entry.pod_name == pod.name) {
            let name = directory.file_name().into_string().ok().context("no UTF-8")?;
            return Ok([format!("/{PODS}/{name}"), "/run/containerd/s".to_owned()]);
        }
    }
    anyhow::bail!("no directory of {}", pod.name)
}

/// The objects of an overlay, with what the test needs to be other than on a node.
async fn rendered(
    cluster: &Cluster,
    overlay: &str,
    node: &Containerd,
    host: &HostRoot,
) -> Result<Vec<Value>> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist/kubernetes").join(overlay).canonicalize()?;
    let directory = directory.to_str().context("no UTF-8")?;
    let words = ["create", "--dry-run=client", "--output=json", "--kustomize", directory];
    let mut output = cluster.kubectl(&words).await?;
    if overlay == "remove" {
        output = output.replace("NODE", "node-1");
    }
    let objects = serde_json::Deserializer::from_str(&output).into_iter::<Value>();
    let mut objects = objects.collect::<Result<Vec<_>, _>>()?;
    for object in &mut objects {
        if object["kind"] == "RuntimeClass" {
            object["metadata"]["name"] = json!(CLASS);
        }
        let Some(pod) = object.pointer_mut("/spec/template/spec") else { continue };
        pod["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-1" });
        for container in pod["containers"].as_array_mut().context("no containers")? {
            container["imagePullPolicy"] = json!("Never");
            if container["name"] == "kubectl" {
                container["image"] = json!("podshim.test/kubectl:1");
                continue;
            }
            let image = if overlay == "remove" { IMAGES[1] } else { IMAGES[0] };
            container["image"] = json!(image);
            container["args"].as_array_mut().context("no args")?.push(json!("--restart"));
            if overlay == "remove" {
                continue;
            }
            let socket = json!({ "name": "socket", "mountPath": "/host/run/containerd/containerd.sock" });
            container["volumeMounts"].as_array_mut().context("no mounts")?.push(socket);
        }
        let volumes = pod["volumes"].as_array_mut().context("no volumes")?;
        for volume in volumes.iter_mut().filter(|volume| volume["name"] == "host") {
            volume["hostPath"]["path"] = json!(host.path);
        }
        let socket = node.directory().join("containerd.sock");
        volumes.push(json!({ "name": "socket", "hostPath": { "path": socket, "type": "Socket" } }));
    }
    Ok(objects)
}

/// The programs of one of the images.
fn programs(node: &Containerd, image: usize) -> PathBuf {
    node.directory().join(format!("installer-{image}"))
}

/// Puts the images onto the node. The second has the programs of another build: other bytes, which no program reads.
async fn load_images(node: &Containerd) -> Result<()> {
    let bin = fs::read_to_string(node.directory().join("bin"))?;
    for (number, image) in IMAGES.iter().enumerate() {
        let directory = programs(node, number);
        fs::create_dir_all(&directory)?;
        for name in PROGRAMS {
            fs::copy(Path::new(bin.trim()).join(name), directory.join(name))?;
            let mut file = fs::File::options().append(true).open(directory.join(name))?;
            file.write_all(format!("build {number}").as_bytes())?;
        }
        load_image(node, &directory, image).await?;
    }
    let kubectl = node.directory().join("kubectl-image.tar");
    hack("cluster.d/kubectl-image", [&kubectl]).await?;
    import(node, &kubectl).await
}

/// The programs on the host are those of that image.
fn has_programs(host: &HostRoot, node: &Containerd, image: usize) -> Result<()> {
    for name in PROGRAMS {
        let (installed, built) =
            (host.path.join("usr/local/bin").join(name), programs(node, image).join(name));
        ensure!(fs::read(&installed)? == fs::read(built)?, "{} is not of image {image}", installed.display());
    }
    Ok(())
}

async fn label(cluster: &Cluster) -> Result<Value> {
    Ok(cluster.get(&["node", "node-1"]).await?["metadata"]["labels"][LABEL].clone())
}

/// Waits until the logs of an installer's or a Job's pod have these words.
async fn wait_for_log(cluster: &Cluster, of: &str, words: &str) -> Result<()> {
    let container = if of.starts_with("job") { "remove" } else { "installer" };
    wait::until_seen_every(seconds(1), &format!("{of} to say {words:?}"), SOON, async || {
        let log = cluster.kubectl(&["--namespace", "podshim", "logs", of, "--container", container]).await;
        Ok(log.is_ok_and(|log| log.contains(words)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn the_installer_labels_is_replaced_and_removes() -> Result<()> {
    let cluster = Cluster::connect()?;
    let node = cluster.node(1)?;
    let host = HostRoot::make(&node)?;
    load_images(&node).await?;
    for object in rendered(&cluster, "labels", &node, &host).await? {
        cluster.apply(&object).await?;
    }
    let rollout =
        ["--namespace", "podshim", "rollout", "status", "daemonset/podshim-installer", "--timeout=120s"];
    cluster.kubectl(&rollout).await?;
    wait_for_log(&cluster, "daemonset/podshim-installer", "the node is labelled").await?;
    ensure!(label(&cluster).await? == "true", "{}", label(&cluster).await?);
    ensure!(host.has("etc/systemd/system/podshim-drain.service"));
    has_programs(&host, &node, 0)?;
    // Its configuration has changed, so containerd is restarted, once.
    let calls = host.calls();
    ensure!(calls.iter().filter(|call| *call == "restart containerd.service").count() == 1, "{calls:?}");
    ensure!(calls.iter().any(|call| call == "start podshim-drain.service"), "{calls:?}");

    // A pod of the class goes to the labelled node, and lives on under the next release.
    let workload = Workload::pod(with_proxy("under-installer"));
    let workload = workload.pod_field("runtimeClassName", json!(CLASS)).run(&cluster).await?;
    let before = workload.wait_ready(1, SOON).await?;
    ensure!(before[0].node == "node-1", "{before:#?}");
    let set_image = format!("installer={}", IMAGES[1]);
    cluster
        .kubectl(&["--namespace", "podshim", "set", "image", "daemonset/podshim-installer", &set_image])
        .await?;
    cluster.kubectl(&rollout).await?;
    wait::until_seen_every(seconds(1), "the next release", SOON, async || {
        Ok(has_programs(&host, &node, 1).is_ok().then_some(()))
    })
    .await?;
    // After any change systemd reads its units; containerd's configuration has not changed, so it runs on.
    ensure!(host.calls() == [&calls[..], &["daemon-reload".to_owned()]].concat(), "{:?}", host.calls());
    let after = workload.wait_ready(1, SOON).await?;
    ensure!(before[0].uid == after[0].uid, "{after:#?}");
    let timeline = workload.timeline(&after[0].name)?;
    started_in_order(&timeline)?;
    timeline.has_not_restarted("app")?;

    // Its rights, which the token of the second container has: no more than get and patch of nodes.
    let account = "--as=system:serviceaccount:podshim:podshim-installer";
    for (verb, what, allowed) in [
        ("patch", "nodes", true),
        ("delete", "nodes", false),
        ("update", "nodes", false),
        ("get", "secrets", false),
    ] {
        // kubectl's exit code is 1 for no.
        let may = cluster.kubectl(&["auth", "can-i", verb, what, account]).await;
        ensure!(may.is_ok() == allowed, "{verb} {what}: {may:?}");
    }

    // The end of the DaemonSet removes nothing.
    cluster.kubectl(&["--namespace", "podshim", "delete", "daemonset", "podshim-installer"]).await?;
    wait::until_seen_every(seconds(1), "the installer to be gone", SOON, async || {
        let pods = cluster.get(&["--namespace", "podshim", "pods"]).await?;
        Ok(pods["items"].as_array().is_some_and(Vec::is_empty).then_some(()))
    })
    .await?;
    ensure!(host.has("usr/local/bin/podshim") && label(&cluster).await? == "true");

    // Removal is refused while the pod lives, then while containerd does not answer. Of the node's pods the root gets only
    // the test's, as the node has the other tests' and its own; the test's containerd stands in for the node's.
    let directories = directories_of(&node, &after[0])?;
    for directory in &directories {
        host.bind(&node, directory).await?;
    }
    for object in rendered(&cluster, "remove", &node, &host).await? {
        cluster.apply(&object).await?;
    }
    let refusal = format!("these pods run on podshim: default/{}: end them", workload.name());
    wait_for_log(&cluster, REMOVAL, &refusal).await?;
    workload.delete(SOON).await?;
    for directory in &directories {
        host.unbind(&node, directory).await?;
    }
    wait_for_log(&cluster, REMOVAL, "cannot find out which pods run on this node: ").await?;
    ensure!(host.has("usr/local/bin/podshim"));
    let socket = host.path.join("run/containerd/containerd.sock");
    // The mount of the socket has left a file there.
    fs::remove_file(&socket).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    containerd::listen(&socket);
    cluster
        .kubectl(&["--namespace", "podshim", "wait", "--for=condition=complete", REMOVAL, "--timeout=180s"])
        .await?;
    ensure!(!host.has("usr/local/bin/podshim") && !host.has("etc/systemd/system/podshim-drain.service"));
    ensure!(fs::read_to_string(host.path.join("etc/containerd/config.toml"))? == CONFIG);
    ensure!(!host.has("etc/containerd/config.toml.before-podshim"));

    cluster.kubectl(&["delete", "namespace", "podshim"]).await?;
    cluster.kubectl(&["delete", "clusterrole,clusterrolebinding", "podshim-installer"]).await?;
    cluster.kubectl(&["delete", "runtimeclass", CLASS]).await?;
    cluster.kubectl(&["label", "node", "node-1", &format!("{LABEL}-")]).await?;
    fs::remove_dir_all(&host.path)?;
    Ok(())
}
