//! The examples of docs/migration.md and docs/injected.md: what readers copy is right.

use std::fs;
use std::path::Path;
use std::process::Command;

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

/// What a command writes about a text.
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
        let said = podshim(&["check"], &example);
        assert!(said.contains(": ok (1 pod)"), "{said}\n{example}");
        assert_eq!(example.contains("podshim.io/plan"), title == "After:", "{title}\n{example}");
        after += usize::from(title == "After:");
    }
    assert_eq!(after, 6);
}

/// The last pair of the page.
#[test]
fn native_sidecars_are_translated_as_the_page_says() {
    let examples = page("migration.md");
    let [.., (_, before), (_, after)] = &examples[..] else { panic!("{examples:?}") };
    assert_eq!(podshim(&["translate"], before), *after);
}

/// What a webhook adds is in no file: the page says how `check` hears of it.
#[test]
fn every_pod_of_the_page_about_injected_sidecars_passes_check() {
    let examples = page("injected.md");
    assert_eq!(examples.len(), 2);
    for (_, example) in examples {
        let injected = ["istio-proxy", "linkerd-proxy"].into_iter().find(|name| example.contains(name));
        let said = podshim(&["check", "--injected", injected.expect("a proxy")], &example);
        assert!(said.contains(": ok (1 pod)"), "{said}\n{example}");
        assert!(podshim(&["check"], &example).contains("1 error"), "{example}");
    }
}
