//! docs/rules.md names one file for each rule, and that file marks the rule where it decides it. Each
//! file of the core, and each home of a rule, says at its head what it may not do.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use house::source::{comments, head};
use house::{root, rust_files};

const HEADING: &str = "## Where each rule is decided";

/// A sentence at a file's head that begins so says what the file may not do.
const LIMITS: [&str; 6] =
    ["Never ", "May never ", "Knows no", "Knows neither ", "Decides nothing", "Changes nothing"];

/// Whether a text has that id as a word of its own.
fn names(text: &str, id: &str) -> bool {
    text.split(|letter: char| !letter.is_alphanumeric()).any(|word| word == id)
}

fn crates() -> PathBuf {
    root().join("crates")
}

fn page() -> String {
    fs::read_to_string(crates().join("../docs/rules.md")).expect("docs/rules.md")
}

/// Each home that docs/rules.md names, and the ids of the rules that it decides.
fn homes(page: &str) -> impl Iterator<Item = (&str, &str)> {
    let rows = page.lines().skip_while(|line| *line != HEADING).filter(|line| line.starts_with("| `"));
    rows.map(|row| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        (cells[1].trim_matches('`'), cells[3])
    })
}

/// A home as docs/rules.md writes it, from the folder of the crates.
fn path_of(home: &str) -> String {
    let names_its_crate = home.contains("/src/");
    if names_its_crate { home.to_owned() } else { format!("pod-lifecycle/src/{home}") }
}

fn says_its_limit(head: &str) -> bool {
    head.split(". ").any(|sentence| LIMITS.iter().any(|limit| sentence.trim_start().starts_with(limit)))
}

#[test]
fn every_rule_has_one_home() {
    let crates = crates();
    let page = page();
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (home, ids) in homes(&page) {
        let path = path_of(home);
        let text = fs::read_to_string(crates.join(&path)).unwrap_or_else(|error| panic!("{path}: {error}"));
        let comments = comments(&text);
        for id in ids.split(", ") {
            let marked = names(&comments, id);
            assert!(
                marked,
                "no comment in the code of {path} marks {id}, which docs/rules.md says it decides"
            );
            found.entry(id.to_owned()).or_default().push(home.to_owned());
        }
    }
    let several: Vec<_> = found.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(several.is_empty(), "rules with several homes: {several:?}");
    let rules = page
        .lines()
        .take_while(|line| *line != HEADING)
        .filter_map(|line| line.strip_prefix("* "))
        .filter(|line| !line.contains("not below the CRI"));
    let ids = rules.flat_map(|line| line.split("**").skip(1).step_by(2).take_while(|id| is_id(id)));
    let ids: Vec<_> = ids.filter(|id| !id.starts_with('F')).collect();
    assert!(ids.len() > 80, "{} rules", ids.len());
    let homeless: Vec<_> = ids.iter().filter(|id| !found.contains_key(**id)).collect();
    assert!(homeless.is_empty(), "rules without a home: {homeless:?}");
}

#[test]
fn every_file_says_what_it_may_not_do() {
    let crates = crates();
    let mut files: Vec<String> = homes(&page()).map(|(home, _)| path_of(home)).collect();
    let core = rust_files(&crates.join("pod-lifecycle/src")).into_iter();
    files.extend(core.map(|file| format!("pod-lifecycle/src/{file}")));
    files.retain(|file| !file.ends_with("/tests.rs"));
    assert!(files.len() > 100, "{} files", files.len());
    let silent: Vec<_> = files
        .iter()
        .filter(|file| !says_its_limit(&head(&fs::read_to_string(crates.join(file)).expect("a source"))))
        .collect();
    assert!(silent.is_empty(), "no sentence at the head begins with one of {LIMITS:?}: {silent:#?}");
}

/// Floors cannot show this one: a question may be asked at any time.
#[test]
fn a_question_changes_nothing() {
    let folder = crates().join("pod-lifecycle/src/questions");
    let files = rust_files(&folder);
    assert!(files.len() > 10, "{} files", files.len());
    let text = |file: &String| fs::read_to_string(folder.join(file)).expect("a source");
    let changing: Vec<_> = files.iter().filter(|file| text(file).contains("&mut State")).collect();
    assert!(changing.is_empty(), "these take the tables as `&mut State`: {changing:?}");
}

#[test]
fn a_mark_is_a_comment_at_code() {
    let text = "//! Of T1. Knows no pod.\n\n/// T2: it.\nfn f() {} // T3\nlet t4;\n#[cfg(test)]\n/// T5.";
    let found = ["T1", "T2", "T3", "T4", "T5"].map(|id| names(&comments(text), id));
    assert_eq!(found, [false, true, true, false, false]);
    assert!(says_its_limit(&head(text)));
    assert!(!says_its_limit(&head("//! An extra process, never held. Owns it.\n")));
}

fn is_id(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(|letter| letter.is_ascii_uppercase())
        && letters.as_str().parse::<u32>().is_ok()
}
