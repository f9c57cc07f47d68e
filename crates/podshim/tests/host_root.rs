//! `podshim install --host-root` and `uninstall --host-root`: the node's root as a container sees it, with hostile symlinks
//! in it, with the files of each distribution, and with pods.

mod containerd;
mod tree;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use node_state::entry::Entry;

/// Those of the containerds of all distributions.
const SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/k3s/containerd/containerd.sock",
    "/run/k0s/containerd.sock",
    "/var/snap/microk8s/common/run/containerd.sock",
];

/// A node's root, and beside it a directory that stands for the container's own files.
struct Node {
    directory: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let node = Self { directory: tempfile::tempdir().expect("a directory") };
        fs::create_dir_all(node.at("")).expect("a root");
        fs::create_dir_all(node.outside("")).expect("a directory");
        // Without an answer of containerd nothing is removed.
        for socket in SOCKETS {
            fs::create_dir_all(node.at(socket).parent().expect("a directory")).expect("a directory");
            containerd::listen(&node.at(socket));
        }
        node
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join("host").join(path.trim_start_matches('/'))
    }

    fn outside(&self, path: &str) -> PathBuf {
        self.directory.path().join("container").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().expect("a directory")).expect("a directory");
        fs::write(self.at(path), text).expect("a file");
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    fn run(&self, command: &str, more: &[&str]) -> Output {
        let shim = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install/gke.toml");
        let mut call = Command::new(env!("CARGO_BIN_EXE_podshim"));
        call.args([command, "--yes", "--host-root"]).arg(self.at("")).args(more).stdin(Stdio::null());
        if command == "install" {
            call.arg("--shim").arg(shim);
        }
        call.output().expect("podshim runs")
    }

    fn succeeds(&self, command: &str, more: &[&str]) -> String {
        let output = self.run(command, more);
        assert_eq!(output.status.code(), Some(0), "{}", printed(&output));
        printed(&output)
    }
}

fn printed(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

/// Where a link leads, on this node.
type Target = fn(&Node) -> PathBuf;

/// Each directory and file that install writes may be a link that an unprivileged program on the node could not make, but
/// a hostile node could: the container's files must not change, and what works must work below the root.
#[test]
fn hostile_links_do_not_lead_out_of_the_root() {
    let targets: [(&str, Target); 3] = [
        ("absolute", |node| node.outside("")),
        ("up", |node| {
            let outside = node.outside("");
            Path::new(&"../".repeat(40)).join(outside.strip_prefix("/").expect("absolute"))
        }),
        ("beside", |_| "../../container".into()),
    ];
    for (kind, target) in targets {
        for link in ["etc/containerd", "etc/systemd", "usr/local", "usr/local/bin", "usr/local/share"] {
            let node = Node::new();
            for name in ["config.toml", "bin", "podshim"] {
                fs::create_dir_all(node.outside("bin")).expect("a directory");
                let _ = fs::write(node.outside(name), "version = 2\n# the container's\n");
            }
            fs::create_dir_all(node.at(link).parent().expect("a parent")).expect("a directory");
            symlink(target(&node), node.at(link)).expect("a link");
            let before = tree::files(&node.outside(""));
            // It may fail, as the target does not exist below the root; then nothing has changed there either.
            let inside = tree::files(&node.at(""));
            let output = node.run("install", &["--containerd", "1.7"]);
            assert_eq!(tree::files(&node.outside("")), before, "{kind} {link}: {}", printed(&output));
            if output.status.code() != Some(0) {
                assert_eq!(tree::files(&node.at("")), inside, "{kind} {link}: {}", printed(&output));
            }
            let output = node.run("uninstall", &[]);
            assert_eq!(output.status.code(), Some(0), "{kind} {link}: {}", printed(&output));
            assert_eq!(tree::files(&node.outside("")), before, "{kind} {link}: {}", printed(&output));
        }
    }
}

/// The configuration itself is a link: what it names below the root is edited, and nothing else.
#[test]
fn a_linked_configuration_is_the_one_below_the_root() {
    let node = Node::new();
    fs::write(node.outside("config.toml"), "version = 2\n").expect("a file");
    let outside = tree::files(&node.outside(""));
    let target = node.outside("config.toml");
    // On the node this absolute path is another file.
    let on_node = target.to_str().expect("UTF-8").to_owned();
    node.write(&on_node, "version = 2\n# the node's\n");
    fs::create_dir_all(node.at("etc/containerd")).expect("a directory");
    symlink(&target, node.at("etc/containerd/config.toml")).expect("a link");
    let before = tree::files(&node.at(""));
    node.succeeds("install", &[]);
    assert!(node.text(&on_node).contains("# podshim: begin"));
    assert_eq!(tree::files(&node.outside("")), outside);
    node.succeeds("uninstall", &[]);
    assert_eq!(tree::files(&node.at("")), before);
}

#[test]
fn a_root_that_is_not_there_is_refused() {
    let node = Node::new();
    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let output = Command::new(env!("CARGO_BIN_EXE_podshim"))
        .args(["install", "--yes", "--host-root"])
        .arg(node.at("none"))
        .output()
        .expect("runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(printed(&output).contains("none: no such directory"), "{}", printed(&output));
}

const K3S: &str = "/var/lib/rancher/k3s/agent/etc/containerd";
const RKE2: &str = "/var/lib/rancher/rke2/agent/etc/containerd";

/// Each distribution: the file by which it is found, and where the runtime goes.
#[test]
fn the_places_of_distributions_are_found_and_restored() {
    let generated = "# File generated by k3s. DO NOT EDIT. Use config.toml.tmpl instead.\n";
    let importing = |directory: &str| {
        format!("{generated}version = 3\nimports = [\"{directory}/config-v3.toml.d/*.toml\"]\n")
    };
    let (v2, v3) =
        ("grpc.v1.cri\".containerd.runtimes.podshim]", "cri.v1.runtime'.containerd.runtimes.podshim]");
    let microk8s = "/var/snap/microk8s/current/args/containerd-template.toml";
    for (name, mark, text, place, runtime) in [
        ("k3s", format!("{K3S}/config.toml"), importing(K3S), format!("{K3S}/config-v3.toml.d/podshim.toml"), v3),
        ("rke2", format!("{RKE2}/config.toml"), importing(RKE2), format!("{RKE2}/config-v3.toml.d/podshim.toml"), v3),
        ("k3s", format!("{K3S}/config.toml"), format!("{generated}version = 3\n"), format!("{K3S}/config-v3.toml.tmpl"), v3),
        ("k3s", format!("{K3S}/config.toml"), format!("{generated}version = 2\n"), format!("{K3S}/config.toml.tmpl"), v2),
        ("k0s", "/etc/k0s/containerd.toml".into(), "# k0s_managed=true\nversion = 2\n".into(), "/etc/k0s/containerd.d/podshim.toml".into(), v2),
        ("k0s", "/etc/k0s/containerd.toml".into(), "# k0s_managed=true\nversion = 3\n".into(), "/etc/k0s/containerd.d/podshim.toml".into(), v3),
        ("k0s", "/etc/k0s/containerd.toml".into(), "version = 2\n".into(), "/etc/k0s/containerd.toml".into(), v2),
        ("microk8s", microk8s.into(), "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  snapshotter = \"${SNAPSHOTTER}\"\n".into(), microk8s.into(), v2),
    ] {
        let node = Node::new();
        node.write(&mark, &text);
        // It is there on many nodes, for docker.
        node.write("/etc/containerd/config.toml", "version = 2\n");
        let before = tree::files(&node.at(""));
        let printed = node.succeeds("install", &[]);
        assert!(printed.contains(&format!("Found {name}: the runtime belongs into {place}\n")), "{printed}");
        let written = node.text(&place);
        assert_eq!(written.matches(runtime).count(), 1, "{place}:\n{written}");
        assert_eq!(node.text("/etc/containerd/config.toml"), "version = 2\n");
        if place != mark {
            assert_eq!(node.text(&mark), text, "{name} writes that itself");
        }
        if place.ends_with(".tmpl") {
            assert!(written.contains("\n{{ template \"base\" . }}\n"), "{written}");
        }
        let files = tree::files(&node.at(""));
        assert!(node.succeeds("install", &[]).contains("Nothing to do"), "{name} {place}");
        assert_eq!(tree::files(&node.at("")), files);
        node.succeeds("uninstall", &[]);
        assert_eq!(tree::files(&node.at("")), before, "{name} {place}");
    }
}

/// A template that people have written keeps every byte, and gets the runtime once.
#[test]
fn a_template_of_the_administrators_keeps_every_byte() {
    let node = Node::new();
    node.write(&format!("{K3S}/config.toml"), "version = 2\n");
    let template = format!("{K3S}/config.toml.tmpl");
    let own = "{{ template \"base\" . }}\n\n[plugins.\"x\"]\n  y = {{ .NodeConfig.Z }}";
    node.write(&template, own);
    let before = tree::files(&node.at(""));
    node.succeeds("install", &[]);
    let installed = node.text(&template);
    assert!(installed.starts_with(own), "{installed}");
    assert_eq!(installed.matches("template \"base\"").count(), 1, "{installed}");
    assert_eq!(node.text(&format!("{template}.before-podshim")), own);
    node.succeeds("uninstall", &[]);
    assert_eq!(tree::files(&node.at("")), before);

    // One that has the runtime already, by hand.
    let by_hand = format!("{own}\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.podshim]\n");
    node.write(&template, &by_hand);
    node.succeeds("install", &[]);
    assert_eq!(node.text(&template), by_hand);
}

/// k3s was upgraded meanwhile, and takes drop-ins now: uninstall finds what is left in the old place as well.
#[test]
fn the_place_of_an_earlier_release_is_cleaned_too() {
    let node = Node::new();
    let mark = format!("{K3S}/config.toml");
    node.write(&mark, "version = 2\n");
    node.succeeds("install", &[]);
    node.write(&mark, &format!("version = 3\nimports = [\"{K3S}/config-v3.toml.d/*.toml\"]\n"));
    node.succeeds("install", &[]);
    node.succeeds("uninstall", &[]);
    let mut files = tree::files(&node.at(""));
    files.retain(|file, _| !SOCKETS.iter().any(|socket| *file == node.at(socket)));
    assert_eq!(files.into_keys().collect::<Vec<_>>(), [node.at(&mark)]);
}

/// The drop-in is removed before the template turns out to be one that cannot be replaced: it is there again, with its owner and
/// mode, and so is its directory.
#[test]
fn a_failed_removal_gives_back_files_with_their_rights() {
    let node = Node::new();
    let (mark, template) = (format!("{K3S}/config.toml"), format!("{K3S}/config.toml.tmpl"));
    node.write(&template, "{{ template \"base\" . }}\n");
    node.write(&mark, "version = 2\n");
    node.succeeds("install", &[]);
    node.write(&mark, &format!("version = 3\nimports = [\"{K3S}/config-v3.toml.d/*.toml\"]\n"));
    node.succeeds("install", &[]);
    let file = node.at(&format!("{K3S}/config-v3.toml.d/podshim.toml"));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("permissions");
    if nix::unistd::geteuid().is_root() {
        chown(&file, Some(1234), Some(5678)).expect("an owner");
    }
    let rights = |file: &Path| {
        let found = fs::metadata(file).expect("the file");
        (found.mode(), found.uid(), found.gid())
    };
    let (before, files) = (rights(&file), tree::files(&node.at("")));
    let obstacle = node.at(&format!("{K3S}/.config.toml.tmpl.podshim-new"));
    fs::create_dir(&obstacle).expect("a directory");
    let output = node.run("uninstall", &[]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    assert!(printed(&output).contains("config.toml.tmpl: cannot be written"), "{}", printed(&output));
    assert_eq!(tree::files(&node.at("")), files);
    assert_eq!(rights(&file), before);
    fs::remove_dir(obstacle).expect("a directory");
    node.succeeds("uninstall", &[]);
}

#[test]
fn two_distributions_on_one_node_need_a_word() {
    let node = Node::new();
    node.write(&format!("{K3S}/config.toml"), "version = 2\n");
    node.write("/etc/k0s/containerd.toml", "version = 2\n");
    let before = tree::files(&node.at(""));
    let output = node.run("install", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(printed(&output).contains("the files of k3s and k0s: say with --config"), "{}", printed(&output));
    assert_eq!(tree::files(&node.at("")), before);
    let printed = node.succeeds("install", &["--config", "/etc/k0s/containerd.toml"]);
    assert!(printed.contains("Found k0s: "), "{printed}");
    // The file of k3s is written by k3s: the runtime goes where that takes changes, and k3s is what is restarted.
    let printed = node.succeeds("install", &["--config", &format!("{K3S}/config.toml")]);
    assert!(printed.contains("systemctl restart k3s|k3s-agent"), "{printed}");
    assert!(node.text(&format!("{K3S}/config.toml.tmpl")).contains("runtimes.podshim]"));
    assert_eq!(node.text(&format!("{K3S}/config.toml")), "version = 2\n");
}

/// As the package's removal: refused while pods run, whose shims are found below the root.
#[test]
fn uninstall_is_refused_while_pods_are_there() {
    let node = Node::new();
    node.write("/etc/containerd/config.toml", "version = 2\n");
    node.succeeds("install", &[]);
    let files = tree::files(&node.at(""));
    let pod = node.at("/run/podshim/k8s.io/abc");
    fs::create_dir_all(&pod).expect("a directory");
    let entry = Entry {
        id: "abc".to_owned(),
        namespace: "k8s.io".to_owned(),
        pod_name: "shop".to_owned(),
        pod_namespace: "prod".to_owned(),
        socket: "/run/containerd/s/abc".into(),
        ..Entry::default()
    };
    entry.write_to(&pod).expect("an entry");
    let output = node.run("uninstall", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(printed(&output).contains("of these pods the shim is dead: prod/shop"), "{}", printed(&output));
    fs::remove_dir_all(node.at("/run/podshim")).expect("the pod ends");
    assert_eq!(tree::files(&node.at("")), files);
    node.succeeds("uninstall", &[]);

    // A pod's directory that is a link out of the root is not followed: what is there is no pod of this node.
    fs::create_dir_all(node.at("/run/podshim")).expect("a directory");
    entry.write_to(&node.outside("")).expect("an entry");
    symlink(node.directory.path(), node.at("/run/podshim/k8s.io")).expect("a link");
    assert!(node.succeeds("uninstall", &[]).contains("Nothing to do"));
}

/// k0s restarts its containerd when the drop-in changes, so writing it needs the permission to restart.
#[test]
fn a_distribution_that_restarts_by_itself_needs_the_permission() {
    let node = Node::new();
    node.write("/etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n");
    let before = tree::files(&node.at(""));
    let output = node.run("install", &["--stay"]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    assert!(
        printed(&output).contains("allow that with --restart; nothing was changed"),
        "{}",
        printed(&output)
    );
    assert_eq!(tree::files(&node.at("")), before);
}

/// `podshim doctor` reads what k3s has made of the drop-in's directory.
#[test]
fn doctor_reads_where_the_distribution_does() {
    let node = Node::new();
    let text = format!("version = 3\nimports = [\"{K3S}/config-v3.toml.d/*.toml\"]\n");
    node.write(&format!("{K3S}/config.toml"), &text);
    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    let doctor = || {
        let root = node.at("");
        let mut call = Command::new(env!("CARGO_BIN_EXE_podshim"));
        printed(&call.args(["doctor", "--containerd", "2.1", "--root"]).arg(root).output().expect("runs"))
    };
    assert!(doctor().contains(&format!("{K3S}/config.toml: no runtime of podshim")), "{}", doctor());
    node.succeeds("install", &[]);
    let found = format!("{K3S}/config-v3.toml.d/podshim.toml: a runtime of podshim");
    assert!(doctor().contains(&found), "{}", doctor());
}
