//! The house keeps its floors: in every crate each file imports only files below it, so that no circle of files comes into
//! being; and in the core each folder stands only on the folders below.
//!
//! Paths are the truth here: a path in the middle of the code counts like one in a `use`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What pod-lifecycle is built of, from the ground up: folders with the file of their name, or files alone. `pod.rs` is
/// the roof.
const CORE: [&str; 13] = [
    "interface",
    "outbox",
    "container",
    "member",
    "stop",
    "sandbox",
    "rounds",
    "pod_restarts",
    "state",
    "questions",
    "steps",
    "rules",
    "handlers",
];

/// For each file the files that it imports, and where.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        match entry.extension() {
            _ if entry.is_dir() => sources(&entry, found),
            Some(extension) if extension == "rs" => found.push(entry),
            _ => {}
        }
    }
}

/// `a::{b, c::{d, e}}` as `a::b`, `a::c::d`, `a::c::e`.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut branches) = (0, vec![String::new()]);
    for letter in inner.chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match branches.last_mut() {
            _ if letter == ',' && depth == 0 => branches.push(String::new()),
            Some(branch) => branch.push(letter),
            None => {}
        }
    }
    let branches = branches.iter().map(|branch| branch.trim()).filter(|branch| !branch.is_empty());
    branches.flat_map(|branch| expand(&format!("{head}{branch}"))).collect()
}

/// The paths of a file that begin at its crate, its parent, itself or one of its children, each with its line.
fn paths(text: &str, children: &[&str]) -> Vec<(usize, String)> {
    let code: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let code = code.join("\n");
    let mut found = Vec::new();
    let children = children.iter().map(|child| (format!("{child}::"), "self::"));
    let roots = ["crate::", "super::", "self::"].map(|root| (root.to_owned(), ""));
    for (word, prefix) in roots.into_iter().chain(children) {
        for (start, _) in code.match_indices(&word) {
            let before = code[..start].chars().next_back();
            if before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':') {
                continue;
            }
            let (mut depth, mut tree) = (0, prefix.to_owned());
            for letter in code[start..].chars() {
                depth += i32::from(letter == '{') - i32::from(letter == '}');
                let name = letter.is_alphanumeric() || letter == '_' || letter == ':';
                let ends =
                    !(name || letter == '{' || letter == '}' || (depth > 0 && ", \n".contains(letter)));
                if ends || depth < 0 {
                    break;
                }
                tree.push(letter);
            }
            let line = code[..start].matches('\n').count() + 1;
            found.extend(expand(&tree.replace('\n', " ")).into_iter().map(|path| (line, path)));
        }
    }
    found
}

/// The modules of a crate: path and file.
fn modules(root: &Path) -> BTreeMap<String, String> {
    let mut files = Vec::new();
    sources(root, &mut files);
    let module = |file: &PathBuf| {
        let file = file.strip_prefix(root).expect("a file of it").display().to_string();
        let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
        let parts = parts.into_iter().filter(|part| !["lib", "main", "mod"].contains(part));
        (std::iter::once("crate").chain(parts).collect::<Vec<_>>().join("::"), file)
    };
    files.iter().map(module).collect()
}

/// The names that a crate's lib.rs hands on, and where each comes from.
fn handed_on(root: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(root.join("lib.rs")).unwrap_or_default().replace('\n', " ");
    let uses = text.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let paths = uses.flat_map(expand).map(|path| path.split(" as ").next().unwrap_or_default().to_owned());
    paths.filter_map(|path| Some((path.rsplit_once("::")?.1.to_owned(), format!("crate::{path}")))).collect()
}

/// A path as the file of `own` means it.
fn resolved(own: &str, path: &str) -> String {
    let parent = own.rsplit_once("::").map_or("crate", |(parent, _)| parent);
    match path.split_once("::") {
        Some(("super", rest)) => resolved(parent, &format!("self::{rest}")),
        Some(("self", rest)) if rest.starts_with("super::") => resolved(own, rest),
        Some(("self", rest)) => format!("{own}::{rest}"),
        _ => path.to_owned(),
    }
}

fn imports(root: &Path) -> Imports {
    let (modules, handed_on) = (modules(root), handed_on(root));
    let mut found = Imports::new();
    for (own, name) in
        modules.iter().filter(|(_, name)| !name.ends_with("tests.rs") && !name.contains("tests/"))
    {
        let text = fs::read_to_string(root.join(name)).expect("a source");
        // In a test module inside the file, `super` is the file itself.
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let below = modules.keys().filter_map(|path| path.strip_prefix(own.as_str())?.strip_prefix("::"));
        let counts = |path: &&str| *own != "crate" && !path.contains("::");
        let children: Vec<_> = below.filter(counts).collect();
        for (line, path) in paths(text, &children) {
            let path = resolved(own, &path);
            let first = path.split("::").nth(1).unwrap_or_default();
            let is_module = modules.contains_key(&format!("crate::{first}"));
            let mut path = handed_on.get(first).filter(|_| !is_module).cloned().unwrap_or(path);
            while !modules.contains_key(&path) {
                path = path.rsplit_once("::").map_or("crate", |(parent, _)| parent).to_owned();
            }
            let to = &modules[&path];
            if to != name && path != "crate" {
                let place = format!("{name}:{line} imports {to}");
                found.entry(name.clone()).or_default().entry(to.clone()).or_insert(place);
            }
        }
    }
    found
}

/// The first circle below a file, as its imports.
fn circle(
    at: &str,
    imports: &Imports,
    way: &mut Vec<String>,
    done: &mut BTreeSet<String>,
) -> Option<Vec<String>> {
    if let Some(begin) = way.iter().position(|file| file == at) {
        let files: Vec<_> = way[begin..].iter().map(String::as_str).chain([at]).collect();
        return Some(files.windows(2).map(|pair| imports[pair[0]][pair[1]].clone()).collect());
    }
    if !done.insert(at.to_owned()) {
        return None;
    }
    way.push(at.to_owned());
    let found = imports.get(at).into_iter().flatten().find_map(|(to, _)| circle(to, imports, way, done));
    way.pop();
    found
}

#[test]
fn no_crate_has_a_circle_of_files() {
    let folders = fs::read_dir(crates()).expect("the crates").map(|entry| entry.expect("a crate").path());
    let mut wrong = Vec::new();
    for root in folders.map(|folder| folder.join("src")).filter(|root| root.is_dir()) {
        let (imports, mut done) = (imports(&root), BTreeSet::new());
        let mut circles =
            imports.keys().filter_map(|file| circle(file, &imports, &mut Vec::new(), &mut done));
        wrong.extend(circles.next().map(|circle| format!("{}\n  {}", root.display(), circle.join("\n  "))));
    }
    assert!(wrong.is_empty(), "circles of files, each as the imports that make it:\n{}", wrong.join("\n"));
}

#[test]
fn each_floor_of_the_core_stands_on_those_below() {
    let floor = |file: &str| {
        let name = file.split(['/', '.']).next().unwrap_or_default();
        CORE.iter().position(|floor| *floor == name).unwrap_or(CORE.len())
    };
    let imports = imports(&crates().join("pod-lifecycle/src"));
    assert!(imports.len() > 50, "the test has read {} files only", imports.len());
    let all = imports.iter().flat_map(|(file, to)| to.iter().map(move |(to, place)| (file, to, place)));
    let climbs: Vec<_> =
        all.filter(|(file, to, _)| floor(file) < floor(to)).map(|(_, _, place)| &**place).collect();
    assert!(climbs.is_empty(), "imports of a floor above:\n{}", climbs.join("\n"));
}

#[test]
fn a_path_is_read_whole() {
    assert_eq!(expand("a::{b, c::{d, e}, f}"), ["a::b", "a::c::d", "a::c::e", "a::f"]);
    let found = paths(
        "use crate::{\n    a::B,\n    c,\n};\nfn f() { super::d::e(); mycrate::x(); } // crate::no\n",
        &[],
    );
    let found: Vec<_> = found.iter().map(|(line, path)| (*line, path.as_str())).collect();
    assert_eq!(found, [(1, "crate::a::B"), (1, "crate::c"), (5, "super::d::e")]);
    assert_eq!(paths("use b::{c, D};", &["b"]), [(1, "self::b::c".to_owned()), (1, "self::b::D".to_owned())]);
    assert_eq!(resolved("crate::a::b", "super::super::c"), "crate::c");
    assert_eq!(resolved("crate::a", "self::b::c"), "crate::a::b::c");
}
