//! dist/kubernetes: names agree, images name no registry, rights are what docs/daemonset.md says, and the containers' words
//! are words of this command. tests/tests/cluster/installer.rs applies them.

mod agent;
mod agent_policy;
mod label_policy;
mod plugin;
mod validating;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use manifests::yaml::{Node, documents};
use node_setup::install::containerd::HANDLER;
use node_setup::install::label::LABEL;
use podshim::commands::table;

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/kubernetes")
}

/// The kustomizations: each is a directory.
fn overlays() -> Vec<PathBuf> {
    let entries =
        fs::read_dir(directory()).expect("dist/kubernetes").map(|entry| entry.expect("an entry").path());
    let mut overlays: Vec<_> = entries.collect();
    overlays.sort();
    overlays
}

fn read(path: &Path) -> Vec<Node> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    documents(&text).expect("YAML").into_iter().map(|document| document.root).collect()
}

/// What a directory of dist/kubernetes is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// podshim on the nodes.
    Installer,
    Agent,
}

fn part_of(overlay: &Path) -> Part {
    let name = overlay.file_name().expect("a name").to_string_lossy().into_owned();
    if name.starts_with("agent") { Part::Agent } else { Part::Installer }
}

/// The installer's objects, with their kinds. Patches are among them.
fn objects() -> Vec<(String, Node)> {
    objects_of(&[Part::Installer])
}

fn objects_of(parts: &[Part]) -> Vec<(String, Node)> {
    let overlays = overlays().into_iter().filter(|overlay| parts.contains(&part_of(overlay)));
    let files = overlays.flat_map(|overlay| {
        let entries = fs::read_dir(overlay).expect("an overlay").map(|entry| entry.expect("an entry").path());
        entries.filter(|path| !path.ends_with("kustomization.yaml")).collect::<Vec<_>>()
    });
    let roots = files.flat_map(|file| read(&file));
    roots.map(|root| (root.text_of("kind").expect("a kind").to_owned(), root)).collect()
}

fn texts<'a>(node: &'a Node, key: &str) -> Vec<&'a str> {
    node.get(key).map(Node::items).unwrap_or_default().iter().filter_map(Node::text).collect()
}

/// The containers of the installer's pods.
fn containers() -> Vec<Node> {
    let objects = objects().into_iter().map(|(_, object)| object);
    let pods = objects.filter_map(|object| object.at(&["spec", "template", "spec", "containers"]).cloned());
    pods.flat_map(|containers| containers.items().to_vec()).collect()
}

#[test]
fn each_file_is_in_its_kustomization() {
    for overlay in overlays() {
        let kustomization = read(&overlay.join("kustomization.yaml")).remove(0);
        let listed: BTreeSet<_> = ["resources", "patchesStrategicMerge"]
            .iter()
            .flat_map(|key| texts(&kustomization, key))
            .map(str::to_owned)
            .collect();
        let entries = fs::read_dir(&overlay).expect("an overlay");
        let names = entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"));
        let files: BTreeSet<_> = names.filter(|name| name != "kustomization.yaml").collect();
        assert_eq!(listed, files, "{}", overlay.display());
        for base in texts(&kustomization, "bases") {
            assert!(overlay.join(base).join("kustomization.yaml").exists(), "{base}");
        }
    }
}

#[test]
fn the_names_agree() {
    let objects = objects();
    let all = |kind: &str| {
        let those: Vec<_> = objects.iter().filter(|(of, _)| of == kind).map(|(_, object)| object).collect();
        assert!(!those.is_empty(), "no {kind}");
        those
    };
    let name =
        |object: &Node| object.at(&["metadata", "name"]).and_then(Node::text).expect("a name").to_owned();
    let namespace = name(all("Namespace")[0]);
    let account = name(all("ServiceAccount")[0]);
    for kind in ["ServiceAccount", "DaemonSet", "Job"] {
        for object in all(kind) {
            let of = object.at(&["metadata", "namespace"]).and_then(Node::text);
            assert_eq!(of, Some(namespace.as_str()), "{kind}");
            let pod = object.at(&["spec", "template", "spec"]);
            if let Some(used) = pod.and_then(|pod| pod.text_of("serviceAccountName")) {
                assert_eq!(used, account);
            }
        }
    }
    let binding = all("ClusterRoleBinding")[0];
    assert_eq!(
        binding.at(&["roleRef", "name"]).and_then(Node::text),
        Some(name(all("ClusterRole")[0]).as_str())
    );
    let subject = &binding.get("subjects").expect("subjects").items()[0];
    assert_eq!((subject.text_of("name"), subject.text_of("namespace")), (Some(&*account), Some(&*namespace)));

    let policy = all("ValidatingAdmissionPolicy")[0];
    let bound = all("ValidatingAdmissionPolicyBinding")[0].at(&["spec", "policyName"]);
    assert_eq!(bound.and_then(Node::text), Some(name(policy).as_str()));
    let condition =
        policy.at(&["spec", "matchConditions"]).expect("a condition").items()[0].text_of("expression");
    let user = format!("request.userInfo.username == 'system:serviceaccount:{namespace}:{account}'");
    assert_eq!(condition, Some(user.as_str()));
    let rules = policy.at(&["spec", "validations"]).expect("rules").items();
    assert!(rules.iter().any(|rule| rule.text_of("expression").is_some_and(|text| text.contains(LABEL))));

    let classes = all("RuntimeClass");
    assert!(classes.iter().all(|class| name(class) == HANDLER));
    assert!(classes.iter().filter_map(|class| class.text_of("handler")).all(|handler| handler == HANDLER));
    let selects = classes.iter().filter_map(|class| class.at(&["scheduling", "nodeSelector", LABEL]));
    assert_eq!(selects.filter_map(Node::text).collect::<Vec<_>>(), ["true"]);
    let overheads = classes.iter().filter_map(|class| class.at(&["overhead", "podFixed", "memory"]));
    assert_eq!(overheads.filter_map(Node::text).collect::<Vec<_>>(), ["1Mi"]);
}

/// An image without a registry: a kustomization of the cluster's owner names it.
#[test]
fn images_name_no_registry_and_podshims_is_of_this_version() {
    let mut seen = BTreeSet::new();
    for container in containers() {
        let Some(image) = container.text_of("image") else { continue };
        assert!(!image.contains('/'), "{image}");
        seen.insert(image.to_owned());
    }
    let own = format!("podshim:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(seen, BTreeSet::from(["kubectl:latest".to_owned(), own]));
}

/// Get and patch of nodes, and nothing more; no secret, no namespace of the node, and no capability that is not used.
#[test]
fn rights_are_the_least() {
    for (kind, object) in objects() {
        assert!(!["Secret", "Role", "RoleBinding"].contains(&kind.as_str()), "{kind}");
        if kind == "ClusterRole" {
            let rules = object.get("rules").expect("rules").items();
            assert_eq!(rules.len(), 1);
            assert_eq!(texts(&rules[0], "apiGroups"), [""]);
            assert_eq!(texts(&rules[0], "resources"), ["nodes"]);
            assert_eq!(texts(&rules[0], "verbs"), ["get", "patch"]);
        }
        let Some(pod) = object.at(&["spec", "template", "spec"]) else { continue };
        for key in ["hostPID", "hostIPC", "hostNetwork"] {
            assert!(pod.get(key).is_none(), "{key}");
        }
        // A patch has only what it changes.
        assert_ne!(pod.text_of("automountServiceAccountToken"), Some("true"));
    }
    for container in containers() {
        let Some(context) = container.get("securityContext") else { continue };
        assert!(context.get("privileged").is_none());
        assert_eq!(context.text_of("allowPrivilegeEscalation"), Some("false"));
        assert_eq!(context.text_of("readOnlyRootFilesystem"), Some("true"));
        let capabilities = context.get("capabilities").expect("capabilities");
        assert_eq!(texts(capabilities, "drop"), ["ALL"]);
        let added = texts(capabilities, "add");
        assert!(added.is_empty() || added == ["CHOWN", "DAC_OVERRIDE", "FOWNER", "SYS_CHROOT"], "{added:?}");
        // SELinux lets no other type write the node's files.
        let selinux = context.at(&["seLinuxOptions", "type"]).and_then(Node::text);
        assert_eq!(selinux, (!added.is_empty()).then_some("spc_t"));
        // The token is where the node's files are not.
        let mounts: Vec<_> = container.get("volumeMounts").expect("mounts").items().iter().collect();
        assert_eq!(mounts.len(), 1);
        assert_eq!(mounts[0].text_of("name") == Some("host"), !added.is_empty());
    }
}

/// Every container of podshim's image is called with words that this command knows.
#[test]
fn the_containers_words_are_understood() {
    let host = tempfile::tempdir().expect("a directory");
    let host = host.path().to_str().expect("UTF-8").to_owned();
    let mut calls: Vec<Vec<String>> = Vec::new();
    for container in containers() {
        let own = |words: Vec<&str>| {
            words.iter().map(|word| word.replace("/host", &host).replace("$(NODE_NAME)", "node-1")).collect()
        };
        if container.text_of("name") != Some("kubectl") {
            calls.push(own(texts(&container, "args")));
        }
        if let Some(probe) = container.at(&["readinessProbe", "exec"]) {
            let command = texts(probe, "command");
            assert_eq!(command[0], "/podshim", "the image has no shell");
            calls.push(own(command[1..].to_vec()));
        }
    }
    assert_eq!(calls.len(), 4, "{calls:?}");
    for call in calls {
        let words = std::iter::once("podshim").chain(call.iter().map(String::as_str));
        if let Err(error) = table().try_get_matches_from(words) {
            panic!("{call:?}: {error}");
        }
    }
}

/// The line of docs/daemonset.md makes a Job for each node: they have other names, and each runs on its node.
#[test]
fn each_node_has_a_removal_of_its_own() {
    let page = fs::read_to_string(directory().join("../../docs/daemonset.md")).expect("the page");
    let line = page.lines().map(str::trim).find(|line| line.starts_with("sed ")).expect("the line");
    let (sed, kubectl) = line.split_once(" | ").expect("a pipe");
    assert_eq!(kubectl, "kubectl apply --filename -");
    let job = |node: &str| {
        let command = sed.replace("the-node", node);
        #[allow(clippy::disallowed_methods, reason = "a test runs the line as users do")]
        let output =
            Command::new("sh").args(["-c", &command]).current_dir(directory().join("../..")).output();
        let text = String::from_utf8(output.expect("sh").stdout).expect("UTF-8");
        documents(&text).expect("YAML").remove(0).root
    };
    for node in ["node-1", "node-2.example"] {
        let job = job(node);
        let name = job.at(&["metadata", "name"]).and_then(Node::text);
        assert_eq!(name, Some(&*format!("podshim-remove-{node}")));
        let terms = [
            "spec",
            "template",
            "spec",
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
            "nodeSelectorTerms",
        ];
        let field = &job.at(&terms).expect("terms").items()[0].get("matchFields").expect("fields").items()[0];
        assert_eq!((field.text_of("key"), texts(field, "values")), (Some("metadata.name"), vec![node]));
    }
    assert!(page.contains("job/podshim-remove-NODE"), "the page waits for the Job by its name");
}

/// A Job that is refused while pods run tries again until they are gone: as long as docs/daemonset.md says.
#[test]
fn the_removal_tries_again_until_it_is_deleted() {
    let page = fs::read_to_string(directory().join("../../docs/daemonset.md")).expect("the page");
    let job = read(&directory().join("remove/job.yaml")).remove(0);
    let spec = job.get("spec").expect("a spec");
    let limit: u64 = spec.text_of("backoffLimit").expect("a limit").parse().expect("a number");
    // The kubelet's longest delay is five minutes. An int32 in all versions of Kubernetes.
    assert!(limit > 180 * 24 * 12 && limit <= i32::MAX as u64, "{limit}");
    assert!(page.contains(&format!("after {},{:03} tries (`backoffLimit`)", limit / 1000, limit % 1000)));
    let pod = spec.at(&["template", "spec"]).expect("a pod");
    assert_eq!(pod.text_of("restartPolicy"), Some("OnFailure"), "one pod, whose log has the reason");
    for (of, key) in
        [(spec, "activeDeadlineSeconds"), (spec, "podFailurePolicy"), (pod, "activeDeadlineSeconds")]
    {
        assert!(of.get(key).is_none(), "{key}");
    }
}

/// kustomize, which is in kubectl, renders each overlay: the patches find what they patch.
#[test]
fn kustomize_renders_each_overlay() {
    for overlay in overlays() {
        #[allow(clippy::disallowed_methods, reason = "a test runs kustomize as users do")]
        let output = Command::new("kubectl").arg("kustomize").arg(&overlay).output();
        let output = output.expect("kubectl: hack/setup installs it");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {errors}", overlay.display());
        let rendered = String::from_utf8(output.stdout).expect("UTF-8");
        let objects: Vec<_> = documents(&rendered).expect("YAML").into_iter().map(|it| it.root).collect();
        assert!(!objects.is_empty());
        for pod in objects.iter().filter_map(|object| object.at(&["spec", "template", "spec"])) {
            let own = &pod.get("containers").expect("containers").items()[0];
            let selinux = own.at(&["securityContext", "seLinuxOptions", "type"]).and_then(Node::text);
            assert_eq!(selinux, Some("spc_t"), "{}", overlay.display());
        }
        if !overlay.ends_with("labels") {
            continue;
        }
        let of = |kind: &str| {
            let found: Vec<_> =
                objects.iter().filter(|object| object.text_of("kind") == Some(kind)).collect();
            assert_eq!(found.len(), 1, "{kind}");
            found[0]
        };
        let class = of("RuntimeClass");
        assert_eq!(class.text_of("handler"), Some(HANDLER));
        assert_eq!(class.at(&["scheduling", "nodeSelector", LABEL]).and_then(Node::text), Some("true"));
        let containers = of("DaemonSet").at(&["spec", "template", "spec", "containers"]).expect("containers");
        let names: Vec<_> = containers.items().iter().filter_map(|it| it.text_of("name")).collect();
        assert_eq!(names, ["installer", "kubectl"]);
        assert!(texts(&containers.items()[0], "args").contains(&"--label-proxy"));
        assert!(containers.items()[0].get("readinessProbe").is_some(), "of the base");
    }
}
