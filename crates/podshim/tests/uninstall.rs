//! When `podshim uninstall` refuses: podshim is the default runtime, pods run on it, or the node does not say whether they do.

mod containerd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use containerd::{DEFAULT, SANDBOXES};
use node_setup::install::notes::{REFUSED, RESTARTED};

const CONFIG: &str = "/etc/containerd/config.toml";
const K3S: &str = "/var/lib/rancher/k3s/agent/etc/containerd";

/// A node's root.
struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        Self { root: tempfile::tempdir().expect("a directory") }
    }

    /// A node whose containerd answers.
    fn with_containerd(self) -> Self {
        fs::create_dir_all(self.at("/run/containerd")).expect("a directory");
        containerd::listen(&self.at("/run/containerd/containerd.sock"));
        self
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().expect("a directory")).expect("a directory");
        fs::write(self.at(path), text).expect("a file");
    }

    /// What containerd answers from now on.
    fn says(&self, file: &str, text: &str) {
        self.write(&format!("/run/containerd/{file}"), text);
    }

    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    fn run(&self, words: &[&str]) -> Output {
        let mut call = Command::new(env!("CARGO_BIN_EXE_podshim"));
        call.arg(words[0]).arg("--yes").args(&words[1..]).arg(self.root.path());
        if words[0] == "install" {
            call.arg("--shim").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install/gke.toml"));
        }
        call.stdin(Stdio::null()).output().expect("podshim runs")
    }

    fn succeeds(&self, words: &[&str]) {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {}", printed(&output));
    }

    /// It fails with these words, and everything is still there.
    fn refuses(&self, words: &[&str], reason: &str) {
        let output = self.run(words);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {}", printed(&output));
        assert!(printed(&output).contains(reason), "{words:?}: {}", printed(&output));
        assert!(self.at("/usr/local/bin/podshim").exists(), "{words:?}: {}", printed(&output));
    }
}

fn printed(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{out}{err}")
}

/// Each form in which a node's files can say so. `--force` does not help: no pod could start afterwards.
#[test]
fn the_default_runtime_is_not_removed() {
    let v2 = "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  default_runtime_name = \"podshim\"\n";
    let v3 = "[plugins.'io.containerd.cri.v1.runtime'.containerd]\n  default_runtime_name = 'podshim'\n";
    let by_hand = "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n  default_runtime_name = \"pods\"\n\
                   [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.pods]\n  runtime_type = \"io.containerd.podshim.v2\"\n";
    let k3s = format!("{K3S}/config.toml");
    let template = "{{ template \"base\" . }}\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\n  default_runtime_name = \"podshim\"\n";
    for (mark, text, file, says) in [
        (CONFIG, format!("version = 2\n{v2}"), CONFIG.to_owned(), String::new()),
        (CONFIG, format!("version = 3\n{v3}"), CONFIG.to_owned(), String::new()),
        (CONFIG, format!("version = 2\n{by_hand}"), CONFIG.to_owned(), String::new()),
        (
            CONFIG,
            "version = 3\nimports = [\"own.d/*.toml\"]\n".to_owned(),
            "/etc/containerd/own.d/default.toml".to_owned(),
            format!("version = 3\n{v3}"),
        ),
        (&k3s, "version = 3\n".to_owned(), format!("{K3S}/config-v3.toml.tmpl"), template.to_owned()),
        (&k3s, format!("version = 3\n{v3}"), k3s.clone(), String::new()),
    ] {
        let node = Node::new();
        node.write(mark, &text);
        if !says.is_empty() {
            node.write(&file, &says);
        }
        node.succeeds(&["install", "--root"]);
        for words in [&["uninstall", "--root"][..], &["uninstall", "--force", "--root"]] {
            node.refuses(words, &format!("{}: podshim is the default runtime", node.at(&file).display()));
            node.refuses(words, "default_runtime_name to \"runc\" there and restart containerd");
        }
        let text = fs::read_to_string(node.at(&file)).expect("the file");
        let lines = text.lines().map(|line| match line.contains("default_runtime_name") {
            true => "  default_runtime_name = \"runc\"",
            false => line,
        });
        node.write(&file, &(lines.collect::<Vec<_>>().join("\n") + "\n"));
        node.succeeds(&["uninstall", "--root"]);
        assert!(!node.at("/usr/local/bin/podshim").exists(), "{file}");
    }
}

/// The file says runc again, but containerd has not been restarted since.
#[test]
fn a_containerd_that_runs_with_podshim_as_its_default_is_restarted_first() {
    let node = Node::new().with_containerd();
    node.write(CONFIG, "version = 2\n");
    node.succeeds(&["install", "--host-root"]);
    node.says(DEFAULT, "podshim");
    node.refuses(&["uninstall", "--host-root"], "containerd still runs with podshim as its default runtime");
    node.says(DEFAULT, "runc");
    node.succeeds(&["uninstall", "--host-root"]);
}

/// The Job sees the node below a directory: where that has not all of the node, pods may run that it does not see.
#[test]
fn without_an_answer_nothing_is_removed_from_a_running_node() {
    let node = Node::new();
    node.write(CONFIG, "version = 2\n");
    node.succeeds(&["install", "--host-root"]);
    let uninstall = ["uninstall", "--host-root"];
    node.refuses(
        &uninstall,
        "cannot find out which pods run on this node: containerd at /run/containerd/containerd.sock: ",
    );
    let node = node.with_containerd();
    // The directory of the pods' entries cannot be read, or an entry cannot.
    node.write("/run/podshim", "");
    node.refuses(&uninstall, "cannot read ");
    fs::remove_file(node.at("/run/podshim")).expect("a file");
    node.write("/run/podshim/k8s.io/abc/pod.json", "{\"id\":");
    node.refuses(&uninstall, "pod.json: not an entry of a pod");
    fs::remove_dir_all(node.at("/run/podshim")).expect("a directory");
    node.write("/run/podshim/totals.json", "{}");
    node.succeeds(&uninstall);
}

/// What containerd knows of and podshim's own directory does not.
#[test]
fn pods_that_only_containerd_knows_of_count() {
    let node = Node::new().with_containerd();
    node.write(CONFIG, "version = 2\n");
    node.succeeds(&["install", "--host-root"]);
    node.says(SANDBOXES, "prod web runc ready\nprod shop podshim ready\nprod old podshim gone\n");
    let uninstall = ["uninstall", "--host-root"];
    node.refuses(&uninstall, "containerd has these pods on podshim: prod/shop: ");
    node.says(SANDBOXES, "prod web runc ready\nprod old podshim gone\n");
    node.succeeds(&uninstall);
}

/// What an installer that stays has noted is removed: by the command, and by the scripts of the packages, as podshim's command
/// is not there to do it.
#[test]
fn an_installers_notes_are_removed() {
    let node = Node::new();
    node.write(CONFIG, "version = 2\n");
    node.succeeds(&["install", "--root"]);
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist");
    for note in [RESTARTED, REFUSED] {
        node.write(note, "a configuration");
        for script in ["debian/postrm", "rpm/podshim.spec"] {
            let text = fs::read_to_string(dist.join(script)).expect("a script");
            assert!(text.contains(&format!(" {note}")), "{script}: {note}");
        }
    }
    node.succeeds(&["uninstall", "--root"]);
    for note in [RESTARTED, REFUSED] {
        assert!(!node.at(note).exists(), "{note}");
    }
}
