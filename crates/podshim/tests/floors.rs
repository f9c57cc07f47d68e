//! The house keeps its floors: in every crate (libraries, programs and integration tests, their roots too) each file imports
//! only files below it, so that no circle of files comes into being; and in the core and in shim-service each floor stands only
//! on the floors below.
//!
//! Paths are the truth here: a path in the middle of the code counts like one in a `use`. It reads the sources
//! of all crates and needs none of them, so that any crate could have it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What pod-lifecycle is built of, from the ground up: folders with the file of their name, or files alone. `pod.rs` is
/// the roof.
const CORE: [&str; 14] = [
    "interface",
    "outbox",
    "container",
    "member",
    "callers_stop",
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

/// What shim-service is built of above the parts of its state, which are all of its other files: the state, what an action or
/// a report does to it, the loop, and what callers reach. `lib.rs` is the roof.
const SERVICE: [&[&str]; 4] = [
    &["state"],
    &["actions", "completions", "creation", "inspect", "operations", "reads", "sandbox_requests"],
    &["drive"],
    &["task", "sandbox_service", "server"],
];

/// Where the tests of a file begin that are in the file itself.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// For each file the files that it imports, and where.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
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

/// The modules of a crate, from its root down: path and file.
fn modules(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::from([("crate".to_owned(), root.to_owned())]);
    let mut unread = vec![("crate".to_owned(), root.to_owned(), folder_of(root))];
    while let Some((own, file, folder)) = unread.pop() {
        for (name, at) in declared(&fs::read_to_string(&file).expect("a source")) {
            let choices = match at {
                Some(at) => vec![folder_of(&file).join(at)],
                None => vec![folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")],
            };
            let child = choices.iter().find(|choice| choice.is_file()).cloned();
            let child = child.unwrap_or_else(|| panic!("{}: no file of {choices:?}", file.display()));
            let below = if child.ends_with("mod.rs") { folder_of(&child) } else { child.with_extension("") };
            let path = format!("{own}::{name}");
            found.insert(path.clone(), child.clone());
            unread.push((path, child, below));
        }
    }
    found
}

fn folder_of(file: &Path) -> PathBuf {
    file.parent().expect("a folder").to_owned()
}

/// The `mod name;` of a file, each with its `#[path]`.
fn declared(text: &str) -> Vec<(String, Option<String>)> {
    let (mut found, mut at) = (Vec::new(), None);
    for line in text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|rest| rest.strip_suffix("\"]")) {
            at = Some(path.to_owned());
            continue;
        }
        let plain = ["", "pub ", "pub(crate) ", "pub(super) "]
            .into_iter()
            .find_map(|visibility| line.strip_prefix(visibility)?.strip_prefix("mod ")?.strip_suffix(';'));
        if let Some(name) = plain {
            found.push((name.to_owned(), at.take()));
        }
    }
    found
}

/// The names that a root has from its files, and where each comes from: all of the crate may use them.
fn handed_on(root: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(root).expect("a root");
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let text = code.collect::<Vec<_>>().join(" ");
    let uses = text.split("use ").skip(1).filter_map(|rest| rest.split(';').next());
    let paths = uses.flat_map(expand).map(|path| path.split(" as ").next().unwrap_or_default().to_owned());
    let path = |path: String| path.strip_prefix("crate::").unwrap_or(&path).to_owned();
    paths
        .map(path)
        .filter_map(|path| Some((path.rsplit_once("::")?.1.to_owned(), format!("crate::{path}"))))
        .collect()
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

/// What each file of a crate imports; the paths of the files begin at `from`.
fn imports(root: &Path, from: &Path) -> Imports {
    let (modules, handed_on) = (modules(root), handed_on(root));
    let name = |file: &Path| file.strip_prefix(from).expect("a file of it").display().to_string();
    let mut found = Imports::new();
    for (own, file) in &modules {
        let text = fs::read_to_string(file).expect("a source");
        let (code, tests) = text.split_once(TESTS).unwrap_or((&text, ""));
        let below = modules.keys().filter_map(|path| path.strip_prefix(own.as_str())?.strip_prefix("::"));
        let children: Vec<_> = below.filter(|path| !path.contains("::")).collect();
        let of_code = paths(code, &children).into_iter().map(|(line, path)| (line, resolved(own, &path)));
        // In a test module inside the file, `super` is the file itself.
        let (before, inside) =
            (code.matches('\n').count() + TESTS.matches('\n').count(), format!("{own}::tests"));
        let of_tests = paths(tests, &[]).into_iter();
        let of_tests = of_tests.map(|(line, path)| (before + line, resolved(&inside, &path)));
        for (line, path) in of_code.chain(of_tests) {
            let first = path.split("::").nth(1).unwrap_or_default();
            let is_module = modules.contains_key(&format!("crate::{first}"));
            let mut path = handed_on.get(first).filter(|_| !is_module).cloned().unwrap_or(path);
            while !modules.contains_key(&path) {
                path = path.rsplit_once("::").map_or("crate", |(parent, _)| parent).to_owned();
            }
            let to = &modules[&path];
            if to != file {
                let place = format!("{}:{line} imports {}", name(file), name(to));
                found.entry(name(file)).or_default().entry(name(to)).or_insert(place);
            }
        }
    }
    found
}

/// The roots of a package's crates: its library, its programs and its integration tests.
fn roots(package: &Path) -> Vec<PathBuf> {
    let entries = |folder: &str| {
        let entries = fs::read_dir(package.join(folder)).into_iter().flatten();
        let mut found: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
        found.sort();
        found
    };
    let roots = ["src/lib.rs", "src/main.rs"].map(|root| package.join(root)).into_iter();
    let others = ["src/bin", "tests", "targets"].into_iter().flat_map(entries);
    let others = others.map(|entry| if entry.is_dir() { entry.join("main.rs") } else { entry });
    let is_source = |root: &PathBuf| root.is_file() && root.extension().is_some_and(|end| end == "rs");
    roots.chain(others).filter(is_source).collect()
}

/// All packages of the repository.
fn packages() -> Vec<PathBuf> {
    let folders = fs::read_dir(crates()).expect("the crates").map(|entry| entry.expect("a crate").path());
    let others = ["tests", "bench", "fuzz"].map(|package| crates().join("..").join(package));
    folders.chain(others).filter(|folder| folder.join("Cargo.toml").is_file()).collect()
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
    let packages = packages();
    assert!(packages.len() > 12, "{} packages", packages.len());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for package in &packages {
        for root in roots(package) {
            let (imports, mut done) = (imports(&root, package), BTreeSet::new());
            let mut circles =
                imports.keys().filter_map(|file| circle(file, &imports, &mut Vec::new(), &mut done));
            let place = root.canonicalize().expect("a root").display().to_string();
            wrong.extend(circles.next().map(|circle| format!("{place}\n  {}", circle.join("\n  "))));
            count += 1;
        }
    }
    assert!(count > 60, "{count} crates");
    assert!(wrong.is_empty(), "circles of files, each as the imports that make it:\n{}", wrong.join("\n"));
}

#[test]
fn each_floor_of_the_core_stands_on_those_below() {
    no_file_climbs("pod-lifecycle", |name| match CORE.iter().position(|floor| *floor == name) {
        Some(floor) => floor,
        None if ["pod", "lib"].contains(&name) => CORE.len(),
        None => panic!("{name} has no floor in CORE"),
    });
}

#[test]
fn each_floor_of_the_service_stands_on_those_below() {
    no_file_climbs("shim-service", |name| match SERVICE.iter().position(|floor| floor.contains(&name)) {
        Some(floor) => floor + 1,
        None if name == "lib" => SERVICE.len() + 1,
        None => 0,
    });
}

/// `floor` is that of a file or of the folder that has its name.
fn no_file_climbs(package: &str, floor: impl Fn(&str) -> usize) {
    let floor = |file: &str| {
        let file = file.trim_start_matches("src/");
        floor(file.split(['/', '.']).next().unwrap_or_default())
    };
    let package = crates().join(package);
    let imports = imports(&package.join("src/lib.rs"), &package);
    assert!(imports.len() > 50, "the test has read {} files only", imports.len());
    let all = imports.iter().flat_map(|(file, to)| to.iter().map(move |(to, place)| (file, to, place)));
    let climbs: Vec<_> = all
        .filter(|(file, to, _)| !file.ends_with("tests.rs") && floor(file) < floor(to))
        .map(|(_, _, place)| &**place)
        .collect();
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
