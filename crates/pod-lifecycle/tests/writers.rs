//! Each field of the core's state has one writer, and docs/design.md has the table of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

mod sources;

use sources::{sources, without_tests};

const HEADING: &str = "| file | type | fields |";

/// Values that a verb returns, or that a private field has as a whole: no verb of theirs changes a field.
const CARRIERS: [&str; 9] = [
    "Change",
    "EndTimes",
    "EndedCreate",
    "EndedRemoval",
    "EndedStart",
    "RemovedExec",
    "PodFailure",
    "RemovedContainer",
    "Waiting",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The code of every file of the core but its interface, without its tests, by its path from src.
fn files() -> BTreeMap<String, String> {
    let mut names = Vec::new();
    sources(&source(), &source(), &mut names);
    names.retain(|name| !name.starts_with("interface"));
    let code =
        |name: &String| without_tests(&fs::read_to_string(source().join(name)).expect("a source")).to_owned();
    names.into_iter().map(|name| (name.clone(), code(&name))).collect()
}

/// The types with named fields in a file, each with its fields; one that other files reach is in italics.
fn types(code: &str) -> Vec<(String, Vec<String>)> {
    let mut found: Vec<(String, Vec<String>)> = Vec::new();
    let mut is_inside = false;
    for line in code.lines() {
        let declared = ["pub struct ", "pub(crate) struct ", "struct "]
            .iter()
            .find_map(|begin| line.strip_prefix(begin));
        if let Some(name) = declared.and_then(|rest| rest.strip_suffix(" {")) {
            found.push((name.split('<').next().unwrap_or_default().to_owned(), Vec::new()));
            is_inside = true;
        } else if line == "}" {
            is_inside = false;
        } else if let Some((_, fields)) = found.last_mut().filter(|_| is_inside) {
            let Some(field) = line.strip_prefix("    ").filter(|field| !field.starts_with(['/', '#', ' ']))
            else {
                continue;
            };
            let open = field.strip_prefix("pub(crate) ").or_else(|| field.strip_prefix("pub "));
            let Some((name, _)) = open.unwrap_or(field).split_once(": ") else { continue };
            fields.push(if open.is_some() { format!("*{name}*") } else { name.to_owned() });
        }
    }
    found
}

#[test]
fn the_table_of_writers_is_that_of_the_code() {
    let page = fs::read_to_string(source().join("../../../docs/design.md")).expect("docs/design.md");
    let rows =
        page.lines().skip_while(|line| *line != HEADING).skip(2).take_while(|line| line.starts_with('|'));
    let mut table: Vec<String> = rows.map(str::to_owned).collect();
    table.sort();
    let mut code = Vec::new();
    for (file, text) in files() {
        let parts = types(&text).into_iter().filter(|(name, fields)| {
            // One field is a part itself, or a number with a name.
            fields.len() > 1
                && !CARRIERS.contains(&name.as_str())
                && fields.iter().any(|field| !field.starts_with('*'))
        });
        code.extend(parts.map(|(name, fields)| format!("| `{file}` | `{name}` | {} |", fields.join(", "))));
    }
    code.sort();
    assert_eq!(table, code);
}

/// Whether a line puts another value into a field: by an assignment, or by `mem::take` and its kin.
fn puts(line: &str, field: &str) -> bool {
    let has = |end: &str| line.contains(&format!(".{field}{end}"));
    [" = ", " += ", " -= ", " |= "].into_iter().any(has)
        || line.contains("mem::") && [")", ","].into_iter().any(has)
}

#[test]
fn what_puts_a_value_into_a_field() {
    for line in [
        "pod.stop = None;",
        "a.stop += 1;",
        "let old = mem::take(&mut pod.stop);",
        "mem::swap(&mut a.stop, b)",
    ] {
        assert!(puts(line, "stop"), "{line}");
    }
    for line in ["if pod.stop == None {", "pod.stop.ask();", "let x = pod.stop;", "mem::take(&mut pod.stops)"]
    {
        assert!(!puts(line, "stop"), "{line}");
    }
}

/// A part is changed by its verbs: no other file puts another one into its place.
#[test]
fn no_file_assigns_a_part_of_another() {
    let files = files();
    let mut found = Vec::new();
    for (owner, text) in &files {
        let parts = types(text).into_iter().filter(|(name, _)| !CARRIERS.contains(&name.as_str()));
        for field in parts.flat_map(|(_, fields)| fields) {
            let Some(field) = field.strip_prefix('*').and_then(|field| field.strip_suffix('*')) else {
                continue;
            };
            // Files in the folder of a type's file have methods of that type.
            let has_methods = |file: &str, owner: &str| {
                file == owner
                    || owner.strip_suffix(".rs").is_some_and(|stem| file.starts_with(&format!("{stem}/")))
            };
            let is_its_own = |file: &str| {
                files.iter().any(|(other, text)| {
                    let fields = types(text).into_iter().flat_map(|(_, fields)| fields);
                    has_methods(file, other) && fields.into_iter().any(|own| own.trim_matches('*') == field)
                })
            };
            let others = files.iter().filter(|(file, text)| {
                !has_methods(file, owner) && !is_its_own(file) && text.lines().any(|line| puts(line, field))
            });
            found.extend(others.map(|(file, _)| format!("{file}: {field}")));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn fields_are_read_as_they_are_declared() {
    let code = "/// One.\npub(crate) struct One {\n    /// Text: more.\n    a: u8,\n    pub(crate) b: Vec<Other>,\n}\nstruct Unit;\n";
    assert_eq!(types(code), [("One".to_owned(), vec!["a".to_owned(), "*b*".to_owned()])]);
}
