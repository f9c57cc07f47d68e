//! The examples in the README, `podshim -h`, docs/migration.md and docs/injected.md are valid: readers copy them. And the README
//! answers an operator's questions in two steps.

mod readme_commands;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use readme_commands::{DIRECTORY, commands};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The YAML blocks of a page, each with the last line of text before it.
fn examples(text: &str) -> Vec<(String, String)> {
    let mut examples = Vec::new();
    let (mut title, mut block) = (String::new(), None::<String>);
    for line in text.lines() {
        match (&mut block, line) {
            (None, "```yaml") => block = Some(String::new()),
            (Some(_), "```") => examples.push((title.clone(), block.take().expect("a block"))),
            (Some(text), line) => *text += &format!("{line}\n"),
            (None, "") => {}
            (None, line) => title = line.to_owned(),
        }
    }
    examples
}

fn page(name: &str) -> Vec<(String, String)> {
    examples(&fs::read_to_string(root().join("docs").join(name)).expect("the page"))
}

/// The output of a command for a text on its standard input.
#[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
fn podshim(command: &[&str], text: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("example.yaml");
    fs::write(&file, text).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_podshim")).args(command).arg(&file).output().expect("runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_pod_of_the_migration_page_passes_check() {
    let mut after = 0;
    for (title, example) in page("migration.md") {
        let printed = podshim(&["check"], &example);
        assert!(printed.contains(": ok (1 pod)"), "{printed}\n{example}");
        assert_eq!(example.contains("podshim.io/plan"), title == "After:", "{title}\n{example}");
        after += usize::from(title == "After:");
    }
    assert_eq!(after, 6);
}

/// The README and `podshim -h` have the same recipe, and it is complete.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
fn u2_t1_two_annotations_hold_an_app_until_its_proxy_is_ready() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let recipes = examples(&readme);
    let [(title, recipe)] = &recipes[..] else { panic!("{recipes:?}") };
    assert!(title.contains("holds an app until its proxy"), "{title}");
    let output = Command::new(env!("CARGO_BIN_EXE_podshim")).arg("-h").output().expect("runs");
    let help = String::from_utf8(output.stdout).expect("UTF-8");
    let begin = help.find("  apiVersion:").expect("a recipe");
    let shown = help[begin..].lines().take_while(|line| line.starts_with("  "));
    let shown: String = shown.map(|line| format!("{}\n", &line[2..])).collect();
    assert_eq!(shown, *recipe);
    assert_eq!(recipe.matches("podshim.io/").count(), 2, "two annotations");
    let checked = podshim(&["check"], recipe);
    assert!(checked.contains(": ok (1 pod)"), "{checked}");
    let plan: serde_json::Value = serde_json::from_str(&podshim(&["plan", "--json"], recipe)).expect("JSON");
    let container = |index: usize, key: &str| plan["pods"][0]["containers"][index][key].to_string();
    assert_eq!((container(0, "name"), container(1, "name")), ("\"proxy\"".to_owned(), "\"app\"".to_owned()));
    assert_eq!(container(1, "waits_for"), r#"[{"container":"proxy","until":"ready"}]"#);
    assert_eq!(container(0, "gate"), "\"tcp::8080\"");
    assert_eq!(container(0, "stops_after"), r#"["app"]"#);
}

/// `hack/cluster` knows each of the README's three commands, and their pod is there. `hack/cluster test` runs them.
#[test]
fn the_readmes_three_commands_lead_onto_a_cluster() {
    let text = |name: &str| fs::read_to_string(root().join(name)).expect("a file");
    let (readme, script) = (text("README.md"), text("hack/cluster"));
    let commands = commands(&readme).expect("three commands");
    for verb in commands.iter().map(|words| words[0]) {
        assert!(script.contains(&format!("\n{verb}) ")), "hack/cluster {verb}");
    }
    let [up, apply, logs] = commands;
    assert_eq!(up, ["up", "--dir", DIRECTORY]);
    let ["kubectl", DIRECTORY, "apply", "-f", manifest] = apply[..] else { panic!("{apply:?}") };
    let ["logs", DIRECTORY, pod, container] = logs[..] else { panic!("{logs:?}") };
    let plan = podshim(&["plan", "--json"], &text(manifest));
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
    let described = &plan["pods"][0];
    assert_eq!(described["pod"], format!("Pod {pod}"));
    // It waits for its proxy, as the README says and the log shows.
    let held = described["containers"].as_array().expect("containers").iter();
    let held = held.filter(|one| one["name"] == container && one["waits_for"][0]["container"] == "proxy");
    assert_eq!(held.count(), 1, "{plan}");
}

/// The last two examples of the page are a manifest and its translation.
#[test]
fn native_sidecars_are_translated_as_the_page_says() {
    let examples = page("migration.md");
    let [.., (_, before), (_, after)] = &examples[..] else { panic!("{examples:?}") };
    assert_eq!(podshim(&["translate"], before), *after);
}

/// No file has what a webhook adds: the page says how to pass it to `check`.
#[test]
fn every_pod_of_the_page_about_injected_sidecars_passes_check() {
    let examples = page("injected.md");
    assert_eq!(examples.len(), 2);
    for (_, example) in examples {
        let injected = ["istio-proxy", "linkerd-proxy"].into_iter().find(|name| example.contains(name));
        let printed = podshim(&["check", "--injected", injected.expect("a proxy")], &example);
        assert!(printed.contains(": ok (1 pod)"), "{printed}\n{example}");
        assert!(podshim(&["check"], &example).contains("1 error"), "{example}");
    }
}

/// An operator's question: what the README says on the line that one finds, and the page or command that this line names
/// with what stands there. Without a second step the README itself is the answer.
struct Question {
    asked: &'static str,
    readme: &'static str,
    second: Option<(&'static str, &'static str)>,
}

#[rustfmt::skip]
const QUESTIONS: [Question; 18] = [
    Question { asked: "How do I hold my app until its proxy is ready?",
        readme: "This holds an app until its proxy takes connections", second: None },
    Question { asked: "Why is it Running and prints nothing?",
        readme: "find out why a pod prints nothing", second: Some(("docs/troubleshooting.md", "but the pod prints nothing")) },
    Question { asked: "What happens at a power-off?",
        readme: "or powered off", second: Some(("docs/node.md", "When a node is rebooted or powered off")) },
    Question { asked: "Istio in its native mode, and a kubelet of 1.27?",
        readme: "Istio's or Linkerd's proxy in its native mode", second: Some(("docs/injected.md", "| the same | 1.27 and older |")) },
    Question { asked: "Why does my job never end?",
        readme: "does not end, or is gone", second: Some(("docs/troubleshooting.md", "## A job does not end")) },
    Question { asked: "How long can a stop take at the worst?",
        readme: "how long a stop takes at most", second: Some(("podshim plan", "gone within 32s")) },
    Question { asked: "What happened to it last night?",
        readme: "does not end, or is gone", second: Some(("docs/troubleshooting.md", "`podshim history --since 12h`")) },
    Question { asked: "Which versions does it work with?",
        readme: "* Tested: containerd 1.6, 1.7 and 2.1", second: Some(("docs/compatibility.md", "| containerd | OCI runtime |")) },
    Question { asked: "How do I take it off a node?",
        readme: "how podshim leaves a node that has pods", second: Some(("docs/node.md", "1. `kubectl cordon NODE`")) },
    Question { asked: "What does it cost?",
        readme: "Against containerd 1.6's own shim", second: Some(("docs/performance.md", "What a pod of yours costs")) },
    Question { asked: "Can an annotation hurt my node?",
        readme: "what a node can forbid", second: Some(("docs/annotations.md", "To lock a node down")) },
    Question { asked: "What happens if the shim crashes?",
        readme: "If the shim is killed or crashes", second: None },
    Question { asked: "It is night, and podshim may be why pods do not start. What now?",
        readme: "go back to containerd's own shim at night", second: Some(("docs/upgrades.md", "    sudo podshim bypass --yes")) },
    Question { asked: "Will my annotations mean the same in the next version?",
        readme: "know what a version promises", second: Some(("docs/upgrades.md", "| annotations: keys, values, defaults")) },
    Question { asked: "Does HPA work, and VPA?",
        readme: "know about HPA, VPA, gVisor", second: Some(("docs/questions.md", "**VPA.**")) },
    Question { asked: "Our pods need GPUs by CDI.",
        readme: "know about HPA, VPA, gVisor, GPUs", second: Some(("docs/questions.md", "## Devices, GPUs, CDI, NRI")) },
    Question { asked: "What will Falco say?",
        readme: "GPUs, Falco, Windows", second: Some(("docs/questions.md", "\"fileless execution\"")) },
    Question { asked: "containerd 2.4 is out. May I?",
        readme: "a new containerd", second: Some(("docs/questions.md", "## A new release of containerd is out")) },
];

/// Each question is answered in two steps: the README names the page or the command, and the answer stands there.
#[test]
fn found_n21_the_questions_are_answered_in_two_steps() {
    let read = |name: &str| fs::read_to_string(root().join(name)).expect("a page");
    let readme = read("README.md");
    let plan = podshim(&["plan"], &examples(&readme)[0].1);
    for Question { asked, readme: line, second } in QUESTIONS {
        let paragraphs = || readme.split("\n\n");
        // A line break may be in the middle of what is looked for.
        let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let found = paragraphs().map(one_line).find(|paragraph| paragraph.contains(line));
        let Some(found) = found else { panic!("{asked} The README does not say: {line}") };
        let Some((name, answer)) = second else { continue };
        // A list of the README names its page behind the list.
        let named = found.contains(name)
            || paragraphs().map(one_line).any(|paragraph| paragraph.starts_with(&format!("[{name}]")));
        assert!(named, "{asked} The README does not name {name} there");
        let text = if name == "podshim plan" { plan.clone() } else { read(name) };
        assert!(text.contains(answer), "{asked} {name} does not say: {answer}");
    }
}
