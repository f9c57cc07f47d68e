//! No page, help text, message or comment has a word that the style section of CONTRIBUTING.md forbids.

use std::fs;
use std::path::{Path, PathBuf};

/// Each of these words hides who acts, or what happens. CONTRIBUTING.md says what to write instead.
const WORDS: [&str; 6] = ["nobody", "whoever", "somebody", "anew", "told", "whomever"];
const PHRASES: [&str; 4] = ["that is none", "the other one of", "made again", "from the begin "];
/// These files name the words to avoid.
const EXEMPT: [&str; 2] = ["crates/podshim/tests/words.rs", "docs/coverage.md"];

fn is_read(path: &Path) -> bool {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("md" | "rs" | "proto" | "sh" | "out" | "service" | "toml") => true,
        Some(_) => false,
        // The scripts of hack/.
        None => path.components().any(|part| part.as_os_str() == "hack"),
    }
}

fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_symlink() || name.starts_with('.') || name == "target" {
            continue;
        }
        if path.is_dir() {
            files(&path, found);
        } else if is_read(&path) {
            found.push(path);
        }
    }
}

/// An identifier is one word: `u2_..._stops_nobody` names a test.
fn has_word(line: &str, word: &str) -> bool {
    line.split(|letter: char| !letter.is_alphanumeric() && letter != '_').any(|part| part == word)
}

/// Every page and source: its name in the repository, and its text.
fn pages() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository");
    let mut all = Vec::new();
    files(&root, &mut all);
    assert!(all.len() > 300, "{} files", all.len());
    let name = |path: &Path| path.strip_prefix(&root).expect("a path of it").display().to_string();
    let pages = all.iter().filter_map(|path| Some((name(path), fs::read_to_string(path).ok()?)));
    pages.filter(|(name, _)| !EXEMPT.contains(&name.as_str())).collect()
}

/// A text as one line of lower-case words, also where comment marks, quotes and line ends come between them.
fn words_only(text: &str) -> String {
    let words = text
        .split(|letter: char| !letter.is_alphanumeric() && letter != '\'')
        .filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ").to_lowercase()
}

#[test]
fn mended_sentences_stay_mended() {
    let pages = pages();
    let (_, style) = pages.iter().find(|(name, _)| name == "CONTRIBUTING.md").expect("the style page");
    let table = style.split("| before | after |").nth(1).expect("the table");
    let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    let before: Vec<_> = rows.filter_map(|row| row.split('|').nth(1)).map(words_only).collect();
    assert!(before.len() >= 30, "{} sentences", before.len());
    let pages = pages.iter().filter(|(name, _)| name != "CONTRIBUTING.md");
    let found: Vec<_> = pages
        .flat_map(|(name, text)| {
            let text = words_only(text);
            before
                .iter()
                .filter(move |before| text.contains(*before))
                .map(move |before| format!("{name}: {before}"))
        })
        .collect();
    assert!(found.is_empty(), "sentences that were mended are back:\n{}", found.join("\n"));
}

#[test]
fn words_that_hide_the_actor_stay_away() {
    let mut found = Vec::new();
    for (name, text) in pages() {
        for (number, line) in text.lines().enumerate() {
            // The tables of the style section show what not to write.
            if name == "CONTRIBUTING.md" && (line.starts_with('|') || line.contains("no \"")) {
                continue;
            }
            // Such a line names the user with this id.
            if line.contains("65534") {
                continue;
            }
            let lower = line.to_lowercase();
            let word = WORDS.into_iter().find(|word| has_word(&lower, word));
            if let Some(wrong) = word.or_else(|| PHRASES.into_iter().find(|phrase| lower.contains(phrase))) {
                found.push(format!("{name}:{}: {wrong:?}: {}", number + 1, line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{} lines (see CONTRIBUTING.md):\n{}", found.len(), found.join("\n"));
}
