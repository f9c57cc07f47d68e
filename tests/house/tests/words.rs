//! No page, help text, message or comment has a word that the style section of CONTRIBUTING.md forbids.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use house::root;

/// Each of these words hides who acts, or what happens. CONTRIBUTING.md says what to write instead.
const WORDS: [&str; 6] = ["nobody", "whoever", "somebody", "anew", "told", "whomever"];
const PHRASES: [&str; 6] =
    ["that is none", "that was none", "is none while", "the other one of", "made again", "the begin "];
/// No name has one of these words either: a reader has to guess what they stand for.
const METAPHORS: [&str; 22] = [
    "befall", "birth", "blow", "consent", "doom", "duty", "ear", "ears", "forgive", "hear", "heard",
    "intent", "look", "looked", "looks", "mailbox", "news", "patience", "said", "sense", "sight", "teller",
];
/// Nor is one of these a whole name.
const WHOLE: [&str; 3] = ["FarEnd", "Was", "Word"];
/// These files name the words to avoid.
const EXEMPT: [&str; 2] = ["tests/house/tests/words.rs", "docs/coverage.md"];

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
    let root = root();
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

/// The names in a source, without comments, strings and letters in quotes.
fn names(source: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), source);
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            'r' if rest.starts_with("r\"") => 2 + rest[2..].find('"').map_or(rest.len() - 2, |end| end + 1),
            'r' if rest.starts_with("r#\"") => {
                3 + rest[3..].find("\"#").map_or(rest.len() - 3, |end| end + 2)
            }
            '"' => quoted(rest),
            '\'' if rest.starts_with("'\\") || rest.chars().nth(2) == Some('\'') => quoted(rest),
            _ if first.is_alphabetic() || first == '_' => {
                let end = |letter: char| !letter.is_alphanumeric() && letter != '_';
                let name = &rest[..rest.find(end).unwrap_or(rest.len())];
                found.push(name);
                name.len()
            }
            _ => first.len_utf8(),
        };
        rest = &rest[length..];
    }
    found
}

/// The length of a text in quotes.
fn quoted(rest: &str) -> usize {
    let (quote, mut escaped) = (rest.chars().next(), false);
    for (place, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if Some(letter) == quote => return place + 1,
            _ => {}
        }
    }
    rest.len()
}

/// `FarEnd`, `far_end` and `FAR_END` as "far" and "end".
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = '_';
    for letter in name.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && before.is_lowercase()) {
            parts.push(String::new());
        }
        if letter.is_alphabetic() {
            let last = parts.last_mut().expect("one at least");
            last.extend(letter.to_lowercase());
        }
        before = letter;
    }
    parts.retain(|part| !part.is_empty());
    parts
}

#[test]
fn names_are_no_metaphors() {
    let mut found = BTreeSet::new();
    for (file, text) in pages() {
        let stem = file.rsplit('/').next().and_then(|name| name.strip_suffix(".rs"));
        let Some(stem) = stem else { continue };
        for name in names(&text).into_iter().chain([stem]) {
            let is_word =
                |part: &String| METAPHORS.contains(&part.as_str()) || WORDS.contains(&part.as_str());
            if WHOLE.contains(&name) || parts(name).iter().any(is_word) {
                found.insert(format!("{file}: {name}"));
            }
        }
    }
    assert!(found.is_empty(), "{} names:\n{}", found.len(), Vec::from_iter(found).join("\n"));
}

#[test]
fn a_name_is_read_as_its_words() {
    let source =
        "fn it_Was(look: &'a Far) { \"said \\\" told\"; 'x'; '\\''; r#\"ear\"#; r\"ear\"; } // heard";
    assert_eq!(names(source), ["fn", "it_Was", "look", "a", "Far"]);
    assert_eq!(parts("FarEnd"), ["far", "end"]);
    assert_eq!(parts("FAR_END2"), ["far", "end"]);
    assert_eq!(parts("u2_stops_nobody"), ["u", "stops", "nobody"]);
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
