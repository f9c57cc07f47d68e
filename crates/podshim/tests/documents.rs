//! The examples of docs/migration.md: what readers copy is right.

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

fn page() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migration.md");
    examples(&fs::read_to_string(page).expect("the page"))
}

/// What a command writes about a text.
#[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
fn podshim(command: &str, text: &str) -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("example.yaml");
    fs::write(&file, text).expect("a file");
    let output = Command::new(env!("CARGO_BIN_EXE_podshim")).arg(command).arg(&file).output().expect("runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn every_pod_of_the_migration_page_passes_check() {
    let mut after = 0;
    for (title, example) in page() {
        let said = podshim("check", &example);
        assert!(said.contains(": ok (1 pod)"), "{said}\n{example}");
        assert_eq!(example.contains("podshim.io/plan"), title == "After:", "{title}\n{example}");
        after += usize::from(title == "After:");
    }
    assert_eq!(after, 6);
}

/// The last pair of the page.
#[test]
fn native_sidecars_are_translated_as_the_page_says() {
    let examples = page();
    let [.., (_, before), (_, after)] = &examples[..] else { panic!("{examples:?}") };
    assert_eq!(podshim("translate", before), *after);
}
