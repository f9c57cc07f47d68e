//! The examples in the README, `podshim -h`, docs/migration.md and docs/injected.md are valid: readers copy them. And what the
//! pages name and draw is there.

mod house;
mod readme_commands;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use readme_commands::{DIRECTORY, commands};

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
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    examples(&fs::read_to_string(page).expect("the page"))
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
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = fs::read_to_string(readme).expect("the README");
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The layout in the README has each crate and each directory of the repository, and no other.
#[test]
fn found_n20_the_readmes_layout_is_the_repositorys() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let layout = readme.split("\n## Layout\n").nth(1).expect("a heading");
    let names = layout.lines().filter_map(|line| line.strip_prefix("    ")?.split(' ').next());
    let mut listed: Vec<_> = names.filter_map(|name| name.strip_suffix('/')).map(str::to_owned).collect();
    let folders = |below: &str| {
        let entries =
            fs::read_dir(root().join(below)).expect("a directory").map(|entry| entry.expect("an entry"));
        let folders = entries.filter(|entry| entry.path().is_dir());
        let names: Vec<_> = folders.map(|entry| entry.file_name().display().to_string()).collect();
        names.into_iter().filter(|name| !name.starts_with('.') && name != "target")
    };
    let mut found: Vec<_> = folders("crates").map(|name| format!("crates/{name}")).collect();
    found.extend(folders("").filter(|name| name != "crates"));
    listed.sort();
    found.sort();
    assert_eq!(listed, found);
}

/// containerd names the pid of a container's first process for ever (R6): where a person looks for a pid, the page says so.
#[test]
fn r6_found_n11_the_pages_say_which_pid_is_the_present_one() {
    for page in ["docs/debugging.md", "docs/troubleshooting.md"] {
        let text = fs::read_to_string(root().join(page)).expect("a page");
        let paragraphs = text.split("\n\n").filter(|paragraph| paragraph.contains("crictl inspect"));
        assert!(paragraphs.filter(|it| it.contains("info.pid")).count() > 0, "{page}");
        assert!(text.contains("podshim inspect POD") && text.contains("ctr -n k8s.io tasks ls"), "{page}");
    }
}

/// docs/design.md draws the crates as the `Cargo.toml` files have them. `PODSHIM_REWRITE_GOLDEN` draws them there.
#[test]
fn the_house_is_drawn_from_the_imports() {
    let page = root().join("docs/design.md");
    let text = fs::read_to_string(&page).expect("the page");
    let lines = || text.split_inclusive('\n');
    let before: String = lines().take_while(|line| !line.starts_with("            ┌")).collect();
    let drawn: String = lines()
        .skip_while(|line| !line.starts_with("            ┌"))
        .take_while(|line| line != &"\n")
        .collect();
    let drawing = house::drawing(&house::imports(&root().join("crates")));
    if std::env::var_os("PODSHIM_REWRITE_GOLDEN").is_some() {
        let after = &text[before.len() + drawn.len()..];
        fs::write(&page, format!("{before}{drawing}{after}")).expect("written");
        return;
    }
    assert_eq!(drawn, drawing, "PODSHIM_REWRITE_GOLDEN=1 draws it");
}

/// Each crate's README says in some ten lines what it owns and never does, and which crates import it and it imports.
#[test]
fn each_crate_has_a_readme() {
    let design = fs::read_to_string(root().join("docs/design.md")).expect("the page");
    let imports = house::imports(&root().join("crates"));
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        words.filter(|word| imports.contains_key(*word)).map(str::to_owned).collect()
    };
    for (name, used) in &imports {
        let readme = fs::read_to_string(root().join(format!("crates/{name}/README.md"))).expect(name);
        assert!(
            design.contains(&format!("](../crates/{name}/README.md)")),
            "docs/design.md has no link to {name}"
        );
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}: its name");
        assert!((8..=15).contains(&readme.lines().count()), "{name}: some ten lines");
        for part in ["**Owns**", "**Never**", "**Read first**", "**Tests**"] {
            assert!(readme.contains(&format!("\n* {part}")), "{name}: {part}");
        }
        let (_, last) = readme.split_once("\n* **Imported by** ").expect(name);
        let (importers, imported) = last.split_once("It imports ").expect(name);
        let found = imports.iter().filter(|(_, used)| used.contains(name)).map(|(other, _)| other.clone());
        let missing: Vec<_> = found.filter(|other| !names(importers).contains(other)).collect();
        assert!(missing.is_empty(), "{name} is imported by {missing:?} too");
        assert_eq!(names(imported), *used, "{name}: what it imports");
    }
}

/// Every page of the documentation.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.extend(
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|name| root().join(name)),
    );
    let crates = house::imports(&root().join("crates")).into_keys();
    pages.extend(crates.map(|name| root().join("crates").join(name).join("README.md")));
    pages
}

/// A file that a page names by its path is there.
#[test]
fn files_that_the_pages_name_exist() {
    let mut found = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for quoted in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let path = quoted.split([' ', ':', '<', '*']).next().unwrap_or_default();
            let folder = path.split('/').next().unwrap_or_default();
            if !path.contains('/') || !["crates", "hack", "bench", "dist", "fuzz", "proto"].contains(&folder)
            {
                continue;
            }
            // These exist while they have something in them.
            if !["fuzz/artifacts", "fuzz/corpus"].contains(&path) {
                assert!(root().join(path).exists(), "{}: no {path}", page.display());
            }
            found += 1;
        }
    }
    assert!(found > 60, "only {found} paths");
}

/// docs/field.md says of a demand that it is met by naming a rule and a test: both exist, and the test is one of that rule.
#[test]
fn what_is_met_names_a_rule_and_a_test_of_it() {
    let read = |page: &str| fs::read_to_string(root().join("docs").join(page)).expect("a page");
    let (field, coverage, rules) = (read("field.md"), read("coverage.md"), read("rules.md"));
    let (mut rows, mut tests) = (0, 0);
    let is_claim =
        |line: &&str| line.starts_with("| ") && (line.contains("| met") || line.contains("| in part |"));
    for row in field.lines().filter(is_claim) {
        let ids: Vec<&str> = row
            .split(|letter: char| !letter.is_ascii_alphanumeric())
            .filter(|word| word.starts_with(|letter: char| "SIURTKJVHN".contains(letter)))
            .filter(|word| word.len() > 1 && word[1..].bytes().all(|letter| letter.is_ascii_digit()))
            .collect();
        assert!(ids.iter().all(|id| rules.contains(&format!("**{id}**"))), "{row}");
        let is_test = |word: &&str| word.matches('_').count() > 2 && word.starts_with(char::is_lowercase);
        for test in row.split('`').skip(1).step_by(2).filter(is_test) {
            let of_a_rule = |id: &&str| {
                let line = coverage.lines().find(|line| line.starts_with(&format!("| {id} |")));
                line.is_some_and(|line| line.contains(&format!("`{test}`")))
            };
            assert!(ids.iter().any(of_a_rule), "{test} shows none of {ids:?}:\n{row}");
            tests += 1;
        }
        rows += 1;
    }
    assert!(rows > 25 && tests > 15, "{rows} rows, {tests} tests");
}

/// Each link of a page leads to an existing file, and to an existing heading of it.
#[test]
fn links_hold() {
    let index = fs::read_to_string(root().join("docs/index.md")).expect("the index");
    let mut followed = 0;
    for page in pages() {
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        let is_listed = name == "index.md" || index.contains(&format!("]({name})"));
        assert!(
            is_listed || !page.parent().is_some_and(|folder| folder.ends_with("docs")),
            "docs/index.md lacks {name}"
        );
        let text = fs::read_to_string(&page).expect("a page");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            assert!(target.exists(), "{}: no {link}", page.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).expect("a page");
                let found =
                    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
                assert!(found, "{}: no heading for {link}", page.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "only {followed} links");
}

/// The name of a heading in a link.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
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
