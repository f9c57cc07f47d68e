//! `podshim install` and `podshim uninstall` on file systems made for the test, with containerd configurations as
//! releases and installers write them (`install/*.toml`; `default-*` come from `containerd config default`).

mod tree;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A node's file system, below a temporary directory.
struct Node {
    root: tempfile::TempDir,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("etc/containerd")).expect("a directory");
        Self { root }
    }

    fn with_config(text: &str) -> Self {
        let node = Self::new();
        fs::write(node.config(), text).expect("a configuration");
        node
    }

    fn config(&self) -> PathBuf {
        self.root.path().join("etc/containerd/config.toml")
    }

    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    fn run(&self, command: &str, more: &[&str]) -> Output {
        let output = Command::new(env!("CARGO_BIN_EXE_podshim"))
            .args([command, "--root"])
            .arg(self.root.path())
            .args(more)
            .stdin(std::process::Stdio::null())
            .output();
        output.expect("podshim runs")
    }

    /// `podshim install` on the terminal of `script`, with this answer typed.
    #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    fn asked(&self, answer: &str, code: i32) -> String {
        let shim = fixtures().join("gke.toml");
        let words =
            [env!("CARGO_BIN_EXE_podshim"), "install", "--root", self.root.path().to_str().expect("UTF-8")];
        let call = format!("{} --shim {}", words.join(" "), shim.display());
        let mut script = Command::new("script")
            .args(["-qec", &call, "/dev/null"])
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("script runs");
        script.stdin.take().expect("its input").write_all(answer.as_bytes()).expect("an answer");
        let output = script.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(code), "{answer:?}: {}", printed(&output));
        printed(&output)
    }

    /// `podshim install` with a fixture as the shim: any file will do.
    fn install(&self, more: &[&str]) -> Output {
        let shim = fixtures().join("gke.toml");
        let own = ["--yes", "--shim", shim.to_str().expect("UTF-8")];
        self.run("install", &[&own, more].concat())
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        tree::files(self.root.path())
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/install")
}

fn fixture(name: &str) -> String {
    fs::read_to_string(fixtures().join(name)).expect("a fixture")
}

fn printed(output: &Output) -> String {
    format!(
        "{}{}{:?}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status.code()
    )
}

fn succeeds(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{}", printed(output));
    printed(output)
}

/// Whether `new` is `old` with one insertion: every byte of `old` is still there, in order.
fn only_added(old: &str, new: &str) -> bool {
    let same = old.bytes().zip(new.bytes()).take_while(|(a, b)| a == b).count();
    let same_end = old.bytes().rev().zip(new.bytes().rev()).take_while(|(a, b)| a == b).count();
    new.len() > old.len() && same + same_end >= old.len()
}

#[test]
fn every_byte_of_a_configuration_survives_and_uninstall_restores_the_node() {
    let mut seen = 0;
    for entry in fs::read_dir(fixtures()).expect("fixtures") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        if name == "k3s.toml" {
            continue;
        }
        seen += 1;
        let text = fixture(&name);
        // The version in a file counts, whatever release of containerd is given.
        let says_nothing = !text.lines().any(|line| line.starts_with("version = "));
        for release in if says_nothing { &["1.7", "2.1"][..] } else { &["1.7"] } {
            let node = Node::with_config(&text);
            let before = node.files();
            let containerd = ["--containerd", release];
            succeeds(&node.install(&containerd));

            let installed = fs::read_to_string(node.config()).expect("a configuration");
            let imports = name == "imports-conf.d-2.x.toml";
            assert!(only_added(&text, &installed) != imports, "{name}:\n{installed}");
            assert!((text == installed) == imports, "{name}:\n{installed}");
            let drop_in = fs::read_to_string(node.root.path().join("etc/containerd/conf.d/podshim.toml"));
            let whole = installed.clone() + &drop_in.unwrap_or_default();
            assert_eq!(whole.matches("pod_annotations = [\"podshim.io/*\"]").count(), 1, "{name}:\n{whole}");

            let files = node.files();
            assert!(succeeds(&node.install(&containerd)).starts_with("Nothing to do"), "{name}");
            assert_eq!(node.files(), files, "{name}");

            succeeds(&node.run("uninstall", &["--yes"]));
            assert_eq!(node.files(), before, "{name} of {release}");
            assert!(succeeds(&node.run("uninstall", &["--yes"])).starts_with("Nothing to do"), "{name}");
        }
    }
    assert!(seen >= 13, "{seen} fixtures");
}

/// `podshim check` finds nothing wrong in the result; tests/tests/drop_in/installed.rs shows that containerd reads it.
#[test]
fn what_is_written_passes_check() {
    for (name, release, file) in
        [("gke.toml", "1.7", "config.toml"), ("kubeadm-2.x.toml", "2.1", "conf.d/podshim.toml")]
    {
        let node = Node::with_config(&fixture(name));
        succeeds(&node.install(&["--containerd", release]));
        let file = node.config().with_file_name("x").parent().expect("a directory").join(file);
        #[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
        let output =
            Command::new(env!("CARGO_BIN_EXE_podshim")).arg("check").arg(&file).output().expect("runs");
        assert!(succeeds(&output).contains(": ok (containerd's configuration)"), "{}", printed(&output));
    }
}

#[test]
fn without_a_configuration_one_is_written_for_the_release_and_goes_again() {
    for (release, version, runc) in [("1.6", "version = 2", true), ("v2.1.4", "version = 3", false)] {
        let node = Node::new();
        succeeds(&node.install(&["--containerd", release]));
        let text = fs::read_to_string(node.config()).expect("a configuration");
        assert!(text.contains(version), "{text}");
        // containerd 1.x forgets its own runc as soon as a file names a runtime.
        assert_eq!(text.contains("runtimes.runc]"), runc, "{text}");
        assert!(succeeds(&node.install(&["--containerd", release])).starts_with("Nothing to do"));
        succeeds(&node.run("uninstall", &["--yes"]));
        assert_eq!(node.files(), BTreeMap::new());
    }
}

#[test]
fn the_programs_directory_reaches_every_file() {
    let node = Node::with_config("version = 3\n");
    succeeds(&node.install(&["--bin-dir", "/opt/podshim/bin"]));
    let drop_in =
        fs::read_to_string(node.root.path().join("etc/containerd/conf.d/podshim.toml")).expect("a file");
    assert!(drop_in.contains("runtime_path = \"/opt/podshim/bin/containerd-shim-podshim-v2\""), "{drop_in}");
    let shim = node.root.path().join("opt/podshim/bin/containerd-shim-podshim-v2");
    assert_eq!(fs::metadata(shim).expect("the shim").permissions().mode() & 0o777, 0o755);
    for (path, content) in node.files() {
        // The help texts of podshim are in these files: they name the usual directory.
        let words = ["bin/podshim", "/man1/", "completion", "/zsh/"];
        let is_words = words.iter().any(|part| path.to_string_lossy().contains(part));
        let names = String::from_utf8_lossy(&content).contains("/usr/local");
        assert!(is_words || !names, "{}", path.display());
    }
}

/// A configuration may hold passwords of registries, and may be a link into a user's own directory.
#[test]
fn modes_and_links_stay() {
    let node = Node::new();
    let target = node.root.path().join("etc/containerd/managed.toml");
    fs::write(&target, fixture("gke.toml")).expect("a file");
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).expect("permissions");
    symlink("managed.toml", node.config()).expect("a link");
    succeeds(&node.install(&[]));
    assert_eq!(fs::read_link(node.config()).expect("still a link"), Path::new("managed.toml"));
    let backup = node.root.path().join("etc/containerd/config.toml.before-podshim");
    for path in [&target, &backup] {
        assert_eq!(
            fs::metadata(path).expect("a file").permissions().mode() & 0o777,
            0o640,
            "{}",
            path.display()
        );
    }
}

/// N5: the unit calls the installed program, and is enabled as systemctl enables it.
#[test]
fn n5_the_drain_unit_is_enabled() {
    let node = Node::with_config("version = 3\n");
    succeeds(&node.install(&["--bin-dir", "/opt/bin"]));
    let units = node.root.path().join("etc/systemd/system");
    let unit = fs::read_to_string(units.join("podshim-drain.service")).expect("a unit");
    assert!(unit.contains("ExecStop=/opt/bin/podshim drain --yes --timeout 5m\n"), "{unit}");
    let wanted = fs::read_link(units.join("multi-user.target.wants/podshim-drain.service")).expect("a link");
    assert_eq!(wanted, Path::new("/etc/systemd/system/podshim-drain.service"));
}

/// systemd stops units in the reverse of their start order: each kubelet that docs/node.md names goes down before the drain,
/// and what pods need after it. k3s and rke2 themselves do not run here: the written order is all that is checked.
#[test]
fn n5_the_drain_is_stopped_between_every_kubelet_and_what_pods_need() {
    let node = Node::new();
    succeeds(&node.install(&["--containerd", "1.7"]));
    let path = node.root.path().join("etc/systemd/system/podshim-drain.service");
    let unit = fs::read_to_string(&path).expect("the unit");
    let words = |key: &str| {
        let lines = unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        lines.flat_map(str::split_whitespace).collect::<Vec<_>>()
    };
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/node.md");
    let document = fs::read_to_string(document).expect("the document");
    let (_, section) = document.split_once("### k3s and rke2").expect("its section");
    let named: Vec<_> = section
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.starts_with("k3s") || word.starts_with("rke2"))
        .collect();
    for name in ["k3s", "k3s-agent", "rke2-server", "rke2-agent"] {
        assert!(named.contains(&name), "docs/node.md does not name {name}");
        assert!(words("Before").contains(&format!("{name}.service").as_str()), "{name} in\n{unit}");
    }
    assert!(words("Before").contains(&"kubelet.service"), "{unit}");
    for needed in ["containerd.service", "network.target", "remote-fs.target"] {
        assert!(words("After").contains(&needed), "{needed} in\n{unit}");
    }
    // A unit that is wanted by a kubelet's, or bound to one, would go when that is restarted.
    for key in ["PartOf", "BindsTo", "Requires", "WantedBy"] {
        assert!(words(key).iter().all(|unit| *unit == "multi-user.target"), "{key} in\n{unit}");
    }
    // Its own limit ends the drain, not systemd's SIGKILL.
    let limit =
        words("ExecStop").last().and_then(|limit| limit.strip_suffix('m')).expect("minutes").parse::<u32>();
    let least = limit.expect("a number") * 60 + 15;
    assert!(words("TimeoutStopSec")[0].parse::<u32>().expect("seconds") >= least, "{unit}");
}

#[test]
fn what_others_changed_since_stays() {
    let node = Node::with_config(&fixture("gke.toml"));
    succeeds(&node.install(&[]));
    let added = "\n[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = false\n";
    let text = fs::read_to_string(node.config()).expect("a configuration") + added;
    fs::write(node.config(), &text).expect("a configuration");
    assert!(succeeds(&node.install(&[])).starts_with("Nothing to do"));
    succeeds(&node.run("uninstall", &["--yes"]));
    assert_eq!(fs::read_to_string(node.config()).expect("a configuration"), fixture("gke.toml") + added);
    // The backup is the only copy of the original.
    assert!(node.root.path().join("etc/containerd/config.toml.before-podshim").exists());
}

#[test]
fn what_a_program_cannot_change_is_refused_and_nothing_is_changed() {
    let runtimes = "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.podshim]\n";
    for (text, words) in [
        (fixture("k3s.toml"), "it says \"# File generated by k3s."),
        ("root = \"/var/lib/containerd\"\n".to_owned(), "version 1: only 2"),
        ("version = 4\n".to_owned(), "version 4: only 2"),
        ("version = \n".to_owned(), "line 1: not valid TOML"),
        (format!("version = 2\n{runtimes}runtime_type = \"io.containerd.runsc.v1\"\n"), "not podshim's"),
        (
            "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\ncontainerd = { snapshotter = \"native\" }\n".to_owned(),
            "write its runtimes as [tables]",
        ),
        ("version = 3\nimports = \"all\"\n".to_owned(), "imports is no list"),
    ] {
        let node = Node::with_config(&text);
        let before = node.files();
        let output = node.install(&[]);
        assert_eq!(output.status.code(), Some(1), "{text}\n{}", printed(&output));
        assert!(printed(&output).contains(words) && printed(&output).contains("config.toml: "), "{}", printed(&output));
        assert_eq!(node.files(), before);
    }
}

/// containerd 1.x takes the whole section of the CRI from an imported file that has it.
#[test]
fn a_section_that_another_file_replaces_is_not_added_to() {
    let node = Node::with_config("version = 2\nimports = [\"extra/*.toml\"]\n");
    let extra = node.root.path().join("etc/containerd/extra");
    fs::create_dir(&extra).expect("a directory");
    fs::write(extra.join("cri.toml"), fixture("gke.toml")).expect("a file");
    let before = node.files();
    let output = node.install(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        printed(&output).contains("it imports /etc/containerd/extra/cri.toml, which replaces"),
        "{}",
        printed(&output)
    );
    assert_eq!(node.files(), before);
    // An imported section of another plugin does not matter.
    fs::write(extra.join("cri.toml"), "version = 2\n[plugins.\"io.containerd.nri.v1.nri\"]\n")
        .expect("a file");
    succeeds(&node.install(&[]));
}

#[test]
fn a_runtime_written_by_hand_is_left_alone() {
    let text = fixture("gke.toml") + &fs::read_to_string(dist("containerd/version-2.toml")).expect("a file");
    let node = Node::with_config(&text);
    succeeds(&node.install(&[]));
    assert_eq!(fs::read_to_string(node.config()).expect("a configuration"), text);
}

fn dist(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist").join(name)
}

/// All or nothing: the last file cannot be written, so install removes those before it.
#[test]
fn a_failure_takes_back_what_was_done_before_it() {
    let node = Node::with_config(&fixture("kubeadm-2.x.toml"));
    // A directory at the path of the temporary file, so that the configuration cannot be replaced.
    fs::create_dir(node.config().with_file_name(".config.toml.podshim-new")).expect("a directory");
    let before = node.files();
    let output = node.install(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    assert!(
        printed(&output).contains("config.toml: cannot be written: Is a directory"),
        "{}",
        printed(&output)
    );
    assert_eq!(node.files(), before);
}

/// On a terminal `install` asks. Only `y` and `yes` mean yes; an empty answer and the end of input mean no.
#[test]
fn on_a_terminal_it_asks() {
    for (answer, code, is_installed) in
        [("n\n", 1, false), ("\n", 1, false), ("", 1, false), ("y\n", 0, true), ("yes\n", 0, true)]
    {
        let node = Node::with_config(&fixture("kubeadm.toml"));
        let before = node.files();
        let printed = node.asked(answer, code);
        assert!(printed.contains("changes? [y/N]"), "{answer:?}: {printed}");
        assert_eq!(printed.contains("Nothing was changed."), !is_installed, "{answer:?}: {printed}");
        assert_eq!(node.files() != before, is_installed, "{answer:?}: {printed}");
    }
}

#[test]
fn without_a_terminal_it_does_not_go_on_unasked() {
    let node = Node::with_config(&fixture("gke.toml"));
    let before = node.files();
    let shim = fixtures().join("gke.toml");
    let shim = ["--shim", shim.to_str().expect("UTF-8")];
    assert_eq!(node.run("install", &shim).status.code(), Some(2));
    assert_eq!(node.files(), before);
    let output = node.run("install", &[&shim[..], &["--dry-run"]].concat());
    assert!(succeeds(&output).contains("+ # podshim: begin"));
    assert_eq!(node.files(), before);
}

/// The Sandbox API: a file that `podshim check` accepts, and only for a containerd that can.
#[test]
fn the_sandbox_api_is_for_containerd_2_3_and_later() {
    let node = Node::with_config("version = 3\n");
    let before = node.files();
    for release in ["1.7", "2.1", "2.2"] {
        let refused = node.install(&["--sandboxer", "shim", "--containerd", release]);
        assert_eq!(refused.status.code(), Some(1), "{}", printed(&refused));
        assert!(
            printed(&refused).contains("2.3 or later") && printed(&refused).contains(release),
            "{}",
            printed(&refused)
        );
    }
    assert_eq!(node.files(), before);
    let installed = node.install(&["--sandboxer", "shim", "--containerd", "2.3"]);
    assert!(installed.status.success(), "{}", printed(&installed));
    assert!(
        printed(&installed).contains("loses cAdvisor's figures of pod networks"),
        "{}",
        printed(&installed)
    );
    let file = node.root.path().join("etc/containerd/conf.d/podshim.toml");
    let text = fs::read_to_string(&file).expect("the runtime");
    assert!(
        text.contains("sandboxer = \"shim\"") && text.contains("runtime_type = \"io.containerd.podshim.v2\"")
    );
    assert!(!text.contains("runtime_path"), "containerd does not look at it: {text}");
    // And back.
    assert!(node.install(&[]).status.success());
    assert!(fs::read_to_string(&file).expect("the runtime").contains("runtime_path"));
}

#[test]
fn the_sandbox_api_needs_a_file_of_version_3() {
    let node = Node::with_config("version = 2\n");
    let before = node.files();
    let refused = node.install(&["--sandboxer", "shim", "--containerd", "2.3"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(printed(&refused).contains("containerd config migrate"), "{}", printed(&refused));
    assert_eq!(node.files(), before);
}

/// S12: a node whose file reads Kruise's marks gets the globs by which they reach the shim, and gives them back.
#[test]
fn s12_a_node_that_reads_kruises_marks_gets_their_globs() {
    for (name, runtime) in [
        ("debian-1.6.toml", "etc/containerd/config.toml"),
        ("default-2.1.toml", "etc/containerd/conf.d/podshim.toml"),
    ] {
        let node = Node::with_config(&fixture(name));
        let before = node.files();
        succeeds(&node.install(&["--containerd", "1.6"]));
        let text = |node: &Node| fs::read_to_string(node.root.path().join(runtime)).expect("the runtime");
        assert!(!text(&node).contains("kruise"), "{}", text(&node));
        fs::create_dir_all(node.root.path().join("etc/podshim")).expect("a directory");
        let file = node.root.path().join("etc/podshim/config.toml");
        fs::write(&file, "read = [\"kruise\"]\n").expect("the node's file");
        succeeds(&node.install(&["--containerd", "1.6"]));
        let globs = r#"pod_annotations = ["podshim.io/*", "kruise.io/*", "apps.kruise.io/*", "*.sidecarset.kruise.io/*"]"#;
        assert!(text(&node).contains(globs), "{}", text(&node));
        assert!(succeeds(&node.install(&["--containerd", "1.6"])).contains("installed already"));
        fs::remove_file(file).expect("the node's file");
        succeeds(&node.run("uninstall", &["--yes"]));
        assert_eq!(node.files(), before);
    }
}

/// The installation brings the unit that serves the metrics, with this node's path, and opens no port by itself; uninstall takes it
/// away with what an administrator has enabled.
#[test]
fn found_n16_the_unit_of_the_metrics_comes_and_goes_with_podshim() {
    let node = Node::with_config(&fixture("gke.toml"));
    let before = node.files();
    succeeds(&node.install(&["--containerd", "1.7"]));
    let units = node.root.path().join("etc/systemd/system");
    let unit = fs::read_to_string(units.join("podshim-metrics.service")).expect("the unit");
    assert!(unit.contains("\nExecStart=/usr/local/bin/podshim metrics --listen 127.0.0.1:"), "{unit}");
    let link = units.join("multi-user.target.wants/podshim-metrics.service");
    assert!(fs::symlink_metadata(&link).is_err(), "it is not enabled");
    symlink("/etc/systemd/system/podshim-metrics.service", &link).expect("systemctl enable");
    succeeds(&node.run("uninstall", &["--yes"]));
    assert!(fs::symlink_metadata(&link).is_err(), "no link to a unit that is gone");
    assert_eq!(node.files(), before);
}

/// The handler's runtime in the files of a node, as containerd reads them together.
fn handler(node: &Node) -> toml_edit::DocumentMut {
    let drop_in = node.root.path().join("etc/containerd/conf.d/podshim.toml");
    let text = fs::read_to_string(&drop_in).or_else(|_| fs::read_to_string(node.config())).expect("a file");
    text.parse().unwrap_or_else(|error| panic!("{error}:\n{text}"))
}

/// A quick way back at night: with each configuration that a node may have, new pods run on containerd's own shim with the options of
/// the node's runc, and --undo puts every byte back.
#[test]
fn found_n14_a_node_is_bypassed_and_back_byte_for_byte() {
    let mut with_driver = 0;
    for entry in fs::read_dir(fixtures()).expect("fixtures") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        if name == "k3s.toml" {
            continue;
        }
        let text = fixture(&name);
        let node = Node::with_config(&text);
        let original = node.files();
        succeeds(&node.install(&["--containerd", "1.7"]));
        let installed = node.files();
        let shown = succeeds(&node.run("bypass", &["--yes"]));
        assert!(
            shown.contains("Next: systemctl restart containerd") && shown.contains("podshim bypass --undo"),
            "{shown}"
        );
        let document = handler(&node);
        let version = document["version"].as_integer().expect("a version");
        let plugin = if version == 3 { "io.containerd.cri.v1.runtime" } else { "io.containerd.grpc.v1.cri" };
        let runtime = &document["plugins"][plugin]["containerd"]["runtimes"]["podshim"];
        assert_eq!(runtime["runtime_type"].as_str(), Some("io.containerd.runc.v2"), "{name}");
        assert!(runtime.get("runtime_path").is_none() && runtime.get("sandboxer").is_none(), "{name}");
        if text.contains("SystemdCgroup = true") {
            assert_eq!(
                runtime["options"]["SystemdCgroup"].as_bool(),
                Some(true),
                "{name}: the driver of the node's runc"
            );
            with_driver += 1;
        }
        // Each command knows of it; none undoes it by itself.
        assert!(succeeds(&node.run("bypass", &["--yes"])).contains("bypassed already"), "{name}");
        let refused = printed(&node.install(&["--containerd", "1.7"]));
        assert!(
            refused.contains("podshim is bypassed on this node: `podshim bypass --undo`"),
            "{name}: {refused}"
        );
        let doctor = printed(&node.run("doctor", &[]));
        assert!(
            doctor.contains("podshim is bypassed") && doctor.contains("fix: podshim bypass --undo"),
            "{name}: {doctor}"
        );
        succeeds(&node.run("bypass", &["--undo", "--yes"]));
        assert_eq!(node.files(), installed, "{name}");
        assert!(succeeds(&node.run("bypass", &["--undo", "--yes"])).contains("not bypassed"), "{name}");
        // A node that is given up in that state is as before podshim, too.
        succeeds(&node.run("bypass", &["--yes"]));
        succeeds(&node.run("uninstall", &["--yes"]));
        assert_eq!(node.files(), original, "{name}");
    }
    assert!(with_driver > 0, "no fixture has the driver of systemd");
    let refused = printed(&Node::with_config(&fixture("gke.toml")).run("bypass", &["--yes"]));
    assert!(refused.contains("no runtime of podshim"), "{refused}");
}
