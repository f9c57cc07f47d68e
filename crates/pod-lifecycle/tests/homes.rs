//! docs/rules.md names one file for each rule that the core decides, and that file speaks of the rule.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Decided outside of the core: the shim, its `delete`, the node.
const OUTSIDE: [&str; 8] = ["N1", "N2", "N3", "N5", "N6", "N7", "N10", "N11"];

const HEADING: &str = "## Where each rule is decided";

/// Whether a text has that id as a word of its own.
fn names(text: &str, id: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == id)
}

#[test]
fn every_rule_has_one_home() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(crates.join("../docs/rules.md")).expect("docs/rules.md");
    let mut homes: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in page.lines().skip_while(|line| *line != HEADING).filter(|l| l.starts_with("| `")) {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let file = cells[1].trim_matches('`').to_owned();
        let path =
            if file.starts_with("pod-spec/") { file.clone() } else { format!("pod-lifecycle/src/{file}") };
        let text = fs::read_to_string(crates.join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        for id in cells[3].split(", ") {
            assert!(names(&text, id), "{path} does not speak of {id}, which docs/rules.md says it decides");
            homes.entry(id.to_owned()).or_default().push(file.clone());
        }
    }
    let several: Vec<_> = homes.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(several.is_empty(), "rules with several homes: {several:?}");
    let rules = page
        .lines()
        .take_while(|line| *line != HEADING)
        .filter_map(|line| line.strip_prefix("* "))
        .filter(|line| !line.contains("not below the CRI"));
    let ids = rules.flat_map(|line| line.split("**").skip(1).step_by(2).take_while(|id| is_id(id)));
    let ids: Vec<_> = ids.filter(|id| !OUTSIDE.contains(id) && !id.starts_with('F')).collect();
    assert!(ids.len() > 80, "{} rules", ids.len());
    let homeless: Vec<_> = ids.iter().filter(|id| !homes.contains_key(**id)).collect();
    assert!(homeless.is_empty(), "rules without a home: {homeless:?}");
}

fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|letter| letter.is_ascii_uppercase())
        && letters.as_str().parse::<u32>().is_ok()
}
