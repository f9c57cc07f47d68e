//! dist/kubectl: what `kubectl podshim` asks kubectl for, and what it makes of the answers. kubectl is a stand-in that
//! notes its calls; the words for podshim are parsed by podshim's own table.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use podshim::commands::table;
use tempfile::TempDir;

/// Answers as an API server with the pod prod/web on node-1 and an agent on each of two nodes. What podshim prints on a node is in a
/// file of the node's agent, its exit code in another one; in a third one what kubectl says that reaches no agent.
const KUBECTL: &str = r#"#!/bin/sh
for word in "$@"; do printf '%s\037' "$word"; done >>"$HOME/calls"
echo >>"$HOME/calls"
[ ! -e "$HOME/refuses" ] || { echo 'Error from server (Forbidden)' >&2; exit 1; }
case "$*" in
*'config view'*) printf shop ;;
*'get namespaces'*) printf 'namespace/prod\nnamespace/podshim-agent\n' ;;
*'get nodes'*) printf 'node/node-1\nnode/node-2\n' ;;
*'get pods --output name'*) printf 'pod/web\npod/worker\n' ;;
*'get pod '*'-- web') printf 'web node-1' ;;
*'get pod '*'-- pending') printf 'pending ' ;;
*'get pod '*) ;;
*'get pods --namespace podshim-agent'*'spec.nodeName=node-1 '*) printf 'agent-a node-1\n' ;;
*'get pods --namespace podshim-agent'*'spec.nodeName='*) ;;
*'get pods --namespace podshim-agent'*) printf 'agent-a node-1\nagent-b node-2\n' ;;
*'exec --namespace podshim-agent agent-'*)
    agent=${4#agent-}
    [ ! -e "$HOME/away-$agent" ] || { cat "$HOME/away-$agent" >&2; exit 1; }
    cat "$HOME/says-$agent" 2>/dev/null
    cat "$HOME/errors-$agent" >&2 2>/dev/null
    code=$(cat "$HOME/code-$agent" 2>/dev/null || echo 0)
    [ "$code" = 0 ] || echo "command terminated with exit code $code" >&2
    exit "$code" ;;
*port-forward*) ;;
*) exit 9 ;;
esac
"#;

struct Cluster {
    home: TempDir,
}

impl Cluster {
    fn new() -> Self {
        let cluster = Self { home: tempfile::tempdir().expect("a directory") };
        cluster.write("bin/kubectl", KUBECTL);
        fs::set_permissions(cluster.at("bin/kubectl"), fs::Permissions::from_mode(0o755)).expect("a program");
        for name in ["kubectl-podshim", "kubectl_complete-podshim"] {
            symlink(plugin().canonicalize().expect("the plugin"), cluster.at("bin").join(name))
                .expect("a link");
        }
        cluster
    }

    fn at(&self, path: &str) -> PathBuf {
        self.home.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().expect("a directory")).expect("a directory");
        fs::write(self.at(path), text).expect("a file");
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("HOME", self.home.path()).env_remove("KUBECTL").env_remove("PODSHIM_AGENT_NAMESPACE");
        command.env("PATH", format!("{}:/usr/bin:/bin", self.at("bin").display()));
        command
    }

    #[allow(clippy::disallowed_methods, reason = "a test runs the plugin as its users do")]
    fn run(&self, words: &[&str]) -> (i32, String, String) {
        let _ = fs::remove_file(self.at("calls"));
        printed_by(
            &self
                .command(&self.at("bin/kubectl-podshim").display().to_string())
                .args(words)
                .output()
                .expect("sh"),
        )
    }

    /// The calls of kubectl, each as its words.
    fn calls(&self) -> Vec<Vec<String>> {
        let calls = fs::read_to_string(self.at("calls")).unwrap_or_default();
        let words = |line: &str| line.split_terminator('\u{1f}').map(str::to_owned).collect();
        calls.split_terminator("\u{1f}\n").map(words).collect()
    }

    /// The words for podshim in each call of exec, after a look at whether podshim understands them.
    fn words_on_nodes(&self) -> Vec<String> {
        let mut found = Vec::new();
        for call in self.calls().iter().filter(|call| call.iter().any(|word| word == "exec")) {
            let at = call.iter().position(|word| word == "/podshim").expect("the image has /podshim");
            assert_eq!(call[at - 3..at], ["--container", "podshim", "--"], "{call:?}");
            let words = std::iter::once("podshim").chain(call[at + 1..].iter().map(String::as_str));
            if let Err(error) = table().try_get_matches_from(words) {
                panic!("{call:?}: {error}");
            }
            found.push(call[at + 1..].join(" "));
        }
        found
    }
}

fn printed_by(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().expect("a code"), text(&output.stdout), text(&output.stderr))
}

fn plugin() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/kubectl/kubectl-podshim")
}

#[test]
fn each_command_runs_on_the_pods_node_and_its_code_is_the_plugins() {
    let cluster = Cluster::new();
    cluster.write("says-a", "what podshim prints\n");
    for (words, on_node) in [
        (&["why", "web", "-n", "prod"][..], "why --namespace prod -- web"),
        (&["-n", "prod", "ps", "pod/web", "--json"], "ps --namespace prod --json -- web"),
        (&["timeline", "prod/web", "--last", "30s"], "timeline --namespace prod --last 30s -- web"),
        (
            &["history", "web", "--node", "node-1", "--since=12h"],
            "history --namespace shop --since=12h -- web",
        ),
        (&["restart", "web", "--timeout", "10m"], "restart --namespace shop --timeout 10m -- web"),
        (&["why", "-n=prod", "--", "web"], "why --namespace prod -- web"),
        (&["stop", "web", "--grace", "10s"], "stop --namespace shop --grace 10s -- web"),
    ] {
        let (code, printed, errors) = cluster.run(words);
        assert_eq!((code, printed.as_str(), errors.as_str()), (0, "what podshim prints\n", ""), "{words:?}");
        assert_eq!(cluster.words_on_nodes(), [on_node], "{words:?}");
    }
    cluster.write("errors-a", "podshim: pod prod/web: its shim is dead\n");
    for (code, expected) in [(1, 1), (2, 2), (126, 3), (137, 3)] {
        cluster.write("code-a", &code.to_string());
        let (found, _, errors) = cluster.run(&["why", "web"]);
        assert_eq!((found, errors.as_str()), (expected, "podshim: pod prod/web: its shim is dead\n"));
    }
    cluster.write("away-a", "error: unable to upgrade connection: container not found\n");
    let (code, _, errors) = cluster.run(&["why", "web"]);
    assert_eq!((code, errors.as_str()), (3, "error: unable to upgrade connection: container not found\n"));
}

/// Every option with a value that one of the commands has, also one that comes later.
#[test]
fn the_value_of_an_option_is_no_name_of_a_pod() {
    let cluster = Cluster::new();
    let table = table();
    let mut tried = 0;
    for command in ["why", "ps", "timeline", "history", "restart", "stop"] {
        let of = table.find_subcommand(command).expect("a command");
        let options = of.get_arguments().chain(table.get_arguments());
        for option in options.filter(|it| !it.is_positional() && it.get_action().takes_values()) {
            let long = option.get_long().map(|long| format!("--{long}"));
            let short = option.get_short().map(|short| format!("-{short}"));
            for word in long.into_iter().chain(short) {
                let (code, _, errors) = cluster.run(&[command, &word, "x y", "web"]);
                if code == 2 && errors.contains("names a place on the node") {
                    continue;
                }
                let calls = cluster.calls();
                let exec = calls.last().filter(|call| call.iter().any(|word| word == "exec"));
                let exec = exec.unwrap_or_else(|| panic!("{command} {word}: {errors}"));
                let word = if word == "-n" { "--namespace".to_owned() } else { word };
                assert!(exec.windows(2).any(|pair| *pair == [word.clone(), "x y".to_owned()]), "{exec:?}");
                assert_eq!(exec[exec.len() - 2..], ["--", "web"], "{command} {word}");
                tried += 1;
            }
        }
    }
    assert!(tried > 20, "{tried}");
}

/// On a terminal podshim's own look at its output would find none: the plugin looks for it.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test runs the plugin as its users do")]
fn a_terminal_has_colours_and_a_width() {
    let cluster = Cluster::new();
    let on_terminal = |words: &str, no_colour: Option<&str>| {
        let _ = fs::remove_file(cluster.at("calls"));
        let line = format!("stty cols 133; {} {words}", cluster.at("bin/kubectl-podshim").display());
        let mut command = cluster.command("script");
        command.env("TERM", "xterm").env_remove("NO_COLOR").envs(no_colour.map(|value| ("NO_COLOR", value)));
        let output = command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).output();
        let (code, printed, _) = printed_by(&output.expect("script"));
        assert_eq!(code, 0, "{printed}");
        cluster.words_on_nodes().remove(0)
    };
    let timeline = "timeline web -n prod";
    for (words, no_colour, on_node) in [
        (timeline, None, "timeline --namespace prod --color always --width 133 -- web"),
        (timeline, Some("1"), "timeline --namespace prod --width 133 -- web"),
        ("ps web -n prod", None, "ps --namespace prod --color always -- web"),
        ("ps web -n prod --json", None, "ps --namespace prod --json -- web"),
        ("ps web -n prod -o json", None, "ps --namespace prod -o json -- web"),
    ] {
        assert_eq!(on_terminal(words, no_colour), on_node);
    }
}

/// For jq: one document a line, and nothing else.
#[test]
fn json_of_several_nodes_is_json() {
    let cluster = Cluster::new();
    for node in ["a", "b"] {
        cluster.write(&format!("says-{node}"), &format!("{{\n  \"pods\": [\n    \" {node}\"\n  ]\n}}\n"));
    }
    cluster.write("errors-a", "podshim: 1 shim gives no answer\n");
    cluster.write("code-a", "1");
    for words in [&["ps", "--json"][..], &["ps", "-o", "json"], &["ps", "--output=json"], &["ps", "-ojson"]] {
        let (code, printed, errors) = cluster.run(words);
        assert_eq!((code, errors.as_str()), (1, "node-1: podshim: 1 shim gives no answer\n"));
        assert_eq!(printed, "{\"pods\": [\" a\"]}\n{\"pods\": [\" b\"]}\n", "{words:?}");
    }
    cluster.write("away-b", "error: no route\n");
    let (code, printed, errors) = cluster.run(&["ps", "--json"]);
    assert_eq!((code, printed.as_str()), (3, "{\"pods\": [\" a\"]}\n"));
    assert!(errors.ends_with("node-2: error: no route\n"), "{errors}");
}

#[test]
fn kubectls_own_options_go_to_every_call_and_no_word_is_run_by_a_shell() {
    let cluster = Cluster::new();
    let odd = "it's $(touch \"$HOME/hit\") `touch $HOME/hit` * \\";
    let (code, ..) = cluster.run(&["why", "web", "-n", odd, "--context", odd, "--as=you'll"]);
    assert_eq!(code, 0);
    let calls = cluster.calls();
    assert_eq!(calls.len(), 3, "{calls:?}");
    for call in &calls {
        assert_eq!(call[..3], ["--context", odd, "--as=you'll"], "{call:?}");
    }
    assert!(calls[2].windows(2).any(|pair| pair == ["--namespace", odd]), "{:?}", calls[2]);
    let (code, ..) = cluster.run(&["timeline", "web", "--last", odd, "--context=x"]);
    assert_eq!(code, 0);
    assert!(cluster.calls()[3].contains(&odd.to_owned()));
    assert!(!cluster.at("hit").exists());
}

#[test]
fn a_pod_that_is_gone_is_found_in_the_records_of_its_node() {
    let cluster = Cluster::new();
    cluster.write("errors-a", "podshim: no pod \"old\"\n");
    cluster.write("code-a", "1");
    cluster.write("says-b", "prod/old is gone\n");
    let (code, printed, _) = cluster.run(&["why", "old", "-n", "prod"]);
    assert_eq!((code, printed.as_str()), (0, "node-2:\nprod/old is gone\n"));
    assert_eq!(cluster.words_on_nodes(), ["why --namespace prod -- old"; 2]);
    let (code, printed, _) = cluster.run(&["timeline", "--past", "web", "-n", "prod"]);
    assert_eq!((code, printed.as_str()), (0, "node-2:\nprod/old is gone\n"), "past, also of one that lives");
    // No node has it.
    cluster.write("errors-b", "podshim: no record of a pod \"old\" in /var/lib\n");
    cluster.write("code-b", "1");
    cluster.write("says-b", "");
    let (code, printed, errors) = cluster.run(&["history", "old"]);
    assert_eq!(
        (code, printed.as_str(), errors.as_str()),
        (1, "", "kubectl podshim: no node has a record of old\n")
    );
    // A node that gives no answer is no node without the pod.
    cluster.write("away-b", "Error from server (Forbidden): pods \"agent-b\" is forbidden\n");
    let (code, _, errors) = cluster.run(&["history", "old"]);
    assert!(code == 3 && errors.starts_with("node-2: Error from server (Forbidden)"), "{code}: {errors}");
    // A text of a pod is no answer about a pod.
    fs::remove_file(cluster.at("away-b")).expect("a file");
    cluster.write("says-b", "what podshim: no pod says\n");
    cluster.write("errors-b", "podshim: it says podshim: no pod here\n");
    let (code, printed, errors) = cluster.run(&["history", "old"]);
    assert_eq!(
        (code, printed.as_str(), errors.as_str()),
        (1, "node-2:\nwhat podshim: no pod says\n", "node-2: podshim: it says podshim: no pod here\n")
    );
    // What changes a pod changes none that is gone.
    let (code, _, errors) = cluster.run(&["stop", "old"]);
    assert_eq!((code, errors.as_str()), (1, "kubectl podshim: the API server has no pod shop/old\n"));
    assert!(cluster.words_on_nodes().is_empty());
}

#[test]
fn without_a_pod_all_nodes_are_asked() {
    let cluster = Cluster::new();
    cluster.write("says-a", "one\n");
    cluster.write("says-b", "other\n");
    let (code, printed, _) = cluster.run(&["ps"]);
    assert_eq!((code, printed.as_str()), (0, "node-1:\none\nnode-2:\nother\n"));
    assert_eq!(cluster.words_on_nodes(), ["ps --namespace shop"; 2]);
    let (code, printed, _) = cluster.run(&["ps", "-A", "--state", "failed", "--node", "node-1"]);
    assert_eq!((code, printed.as_str()), (0, "node-1:\none\n"));
    assert_eq!(cluster.words_on_nodes(), ["ps --state failed"]);
}

#[test]
fn what_cannot_be_asked_has_a_reason_and_a_code() {
    let cluster = Cluster::new();
    for (words, code, reason) in [
        (&["why", "pending"][..], 1, "shop/pending has no node yet"),
        (&["why", "web", "--node", "node-3"], 3, "no agent runs on node-3"),
        (&["page", "node-3"], 3, "no agent runs on node-3"),
        (&["why"], 2, "why needs a name"),
        (&["drain"], 2, "there is no command drain"),
        (&["why", "a", "b"], 2, "one pod at a time: a, b"),
        (&["why", "--", "-x"], 2, "-x is no name of a pod"),
        (&["why", "web", "-n"], 2, "-n needs a namespace"),
        (&["why", "web", "-A"], 2, "-A is for ps and history without a pod"),
        (&["timeline", "web", "--svg", "x"], 2, "--svg names a place on the node"),
        (&["ps", "--run-dir=/x"], 2, "--run-dir=/x names a place on the node"),
        (&["completion", "csh"], 2, "completion is for bash"),
    ] {
        let (found, _, errors) = cluster.run(words);
        assert_eq!(found, code, "{words:?}: {errors}");
        assert!(errors.starts_with(&format!("kubectl podshim: {reason}")), "{words:?}: {errors}");
        assert!(cluster.words_on_nodes().is_empty(), "{words:?}");
    }
    cluster.write("refuses", "");
    let (code, _, errors) = cluster.run(&["why", "shop/web"]);
    assert_eq!(code, 3);
    assert!(
        errors.contains("Error from server (Forbidden)")
            && errors.contains("cannot ask for the pod shop/web"),
        "{errors}"
    );
    let (code, _, errors) = cluster.run(&["ps"]);
    assert!(
        code == 3 && errors.contains("cannot list the agents in the namespace podshim-agent"),
        "{errors}"
    );
    let (code, printed, _) = cluster.run(&["-h"]);
    assert!(
        code == 0 && printed.starts_with("usage: kubectl podshim COMMAND") && !printed.contains('#'),
        "{printed}"
    );
}

#[test]
fn the_page_of_a_node_is_forwarded_on_loopback() {
    let cluster = Cluster::new();
    assert_eq!(cluster.run(&["page", "node-1"]).0, 0);
    let calls = cluster.calls();
    let forward = "port-forward --namespace podshim-agent --address 127.0.0.1 pod/agent-a 9754:9754";
    assert_eq!(calls.last().expect("a call").join(" "), forward);
}

/// kubectl 1.26 and later calls the program with the words before the cursor, and takes `:4` for: no files.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test runs the completion as kubectl does")]
fn words_are_completed() {
    let cluster = Cluster::new();
    let offered = |words: &[&str]| {
        let program = cluster.at("bin/kubectl_complete-podshim").display().to_string();
        let (code, printed, errors) =
            printed_by(&cluster.command(&program).args(words).output().expect("sh"));
        assert_eq!((code, errors.as_str()), (0, ""), "{words:?}");
        let (words, directive) = printed.trim_end().rsplit_once('\n').unwrap_or(("", printed.trim_end()));
        assert_eq!(directive, ":4");
        words.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered(&["w"]), ["why"]);
    assert_eq!(offered(&[""]).len(), 8);
    assert_eq!(offered(&["why", "w"]), ["web", "worker"]);
    assert_eq!(offered(&["why", "-n", "prod", "wo"]), ["worker"]);
    let last = cluster.calls().pop().expect("a call");
    assert_eq!(last.join(" "), "--namespace prod get pods --output name");
    assert_eq!(offered(&["-n", "pr"]), ["prod"]);
    assert_eq!(offered(&["page", ""]), ["node-1", "node-2"]);
    assert_eq!(offered(&["why", "web", ""]), [""; 0]);
    // bash, for an older kubectl: the words of kubectl itself stay kubectl's.
    let script = "source <(kubectl-podshim completion bash); __start_kubectl() { COMPREPLY=(of-kubectl); }
        for line in 'kubectl podshim why w' 'kubectl-podshim why wo' 'kubectl get w'; do
            COMP_WORDS=($line); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=(); _kubectl_podshim; echo ${COMPREPLY[*]}; done";
    let (_, printed, errors) =
        printed_by(&cluster.command("bash").args(["-c", script]).output().expect("bash"));
    assert_eq!((printed.as_str(), errors.as_str()), ("web worker\nworker\nof-kubectl\n", ""));
}

/// krew: the archive has what the manifest names, with its checksum.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test runs the script as its users do")]
fn the_manifest_for_krew_is_of_the_archive() {
    // What sed would read.
    const URI: &str = r"https://podshim.example/plugin.tar.gz?a=1&b=SHA256|\1";
    let directory = tempfile::tempdir().expect("a directory");
    let run = |program: &str, words: &[&str]| {
        let (code, printed, errors) =
            printed_by(&Command::new(program).args(words).output().expect("a program"));
        assert_eq!(code, 0, "{program}: {errors}");
        printed
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/plugin");
    let output = directory.path().display().to_string();
    run(&script.display().to_string(), &["--output", &output, "--uri", URI]);
    let version = env!("CARGO_PKG_VERSION");
    let archive = directory.path().join(format!("kubectl-podshim-{version}.tar.gz")).display().to_string();
    let manifest = fs::read_to_string(directory.path().join("podshim.yaml")).expect("a manifest");
    let manifest = manifests::yaml::documents(&manifest).expect("YAML").remove(0).root;
    let spec = manifest.get("spec").expect("a spec");
    assert_eq!(spec.text_of("version"), Some(format!("v{version}").as_str()));
    let [platform] = spec.get("platforms").expect("platforms").items() else { panic!("one platform") };
    assert_eq!(platform.text_of("uri"), Some(URI));
    assert_eq!(platform.text_of("sha256"), run("sha256sum", &[&archive]).split(' ').next());
    let files: Vec<_> = platform
        .get("files")
        .expect("files")
        .items()
        .iter()
        .filter_map(|file| file.text_of("from"))
        .collect();
    assert_eq!(run("tar", &["-tzf", &archive]).lines().collect::<Vec<_>>(), files);
    assert!(files.contains(&platform.text_of("bin").expect("a program")));
    let plugin = run("tar", &["-xOzf", &archive, "kubectl-podshim"]);
    assert_eq!(plugin, fs::read_to_string(self::plugin()).expect("the plugin"));
}
