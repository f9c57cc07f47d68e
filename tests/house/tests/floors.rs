//! The house keeps its floors: in every crate (libraries, programs and integration tests, their roots too) each file imports
//! only files below it, so that no circle of files comes into being, and no circle of folders either; and in the core and in
//! shim-service each floor stands only on the floors below.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use house::modules::{Imports, imports};
use house::root;

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

fn crates() -> PathBuf {
    root().join("crates")
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
    let others = ["tests", "tests/house", "bench", "fuzz"].map(|package| root().join(package));
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

/// A file's tests may use what is above it.
fn is_of_tests(file: &str) -> bool {
    file.ends_with("/tests.rs") || file.contains("/tests/") || file == "src/test_container.rs"
}

/// What the parts of one folder import of each other: a part is a file, with the folder of its name.
fn between_parts(folder: &str, imports: &Imports) -> Imports {
    let part = |file: &str| {
        let below = file.strip_prefix(folder)?.split('/').next()?;
        Some(format!("{folder}{}", below.strip_suffix(".rs").unwrap_or(below)))
    };
    let mut found = Imports::new();
    for (file, to, place) in
        imports.iter().flat_map(|(file, to)| to.iter().map(move |(to, at)| (file, to, at)))
    {
        if let (Some(from), Some(to)) = (part(file), part(to))
            && from != to
            && !is_of_tests(file)
        {
            found.entry(from).or_default().entry(to).or_insert_with(|| place.clone());
        }
    }
    found
}

/// The folders of these files, each with a slash at its end.
fn folders(imports: &Imports) -> BTreeSet<String> {
    let files = imports.iter().flat_map(|(file, to)| to.keys().chain([file]));
    let ends = files.flat_map(|file| file.match_indices('/').map(|(at, _)| file[..=at].to_owned()));
    ends.collect()
}

fn first_circle(imports: &Imports) -> Option<Vec<String>> {
    let mut done = BTreeSet::new();
    imports.keys().find_map(|file| circle(file, imports, &mut Vec::new(), &mut done))
}

#[test]
fn no_crate_has_a_circle_of_files_or_folders() {
    let packages = packages();
    assert!(packages.len() > 12, "{} packages", packages.len());
    let (mut wrong, mut count) = (Vec::new(), 0);
    for package in &packages {
        for root in roots(package) {
            let imports = imports(&root, package);
            let between = folders(&imports).into_iter().map(|folder| between_parts(&folder, &imports));
            let circles = [imports.clone()].into_iter().chain(between).filter_map(|all| first_circle(&all));
            wrong.extend(circles.map(|circle| format!("{}\n  {}", root.display(), circle.join("\n  "))));
            count += 1;
        }
    }
    assert!(count > 60, "{count} crates");
    assert!(wrong.is_empty(), "circles, each as the imports that make it:\n{}", wrong.join("\n"));
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

/// The production lines of a package: what lies below `src`, but for tests.
fn lines(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
    let of = |path: PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match () {
            () if path.is_dir() && name != "tests" => lines(&path),
            () if name.ends_with(".rs") && name != "tests.rs" => {
                let text = fs::read_to_string(&path).expect("UTF-8");
                text.split("#[cfg(test)]\nmod ").next().unwrap_or_default().lines().count()
            }
            () => 0,
        }
    };
    entries.map(of).sum()
}

/// No room is the house.
#[test]
fn no_crate_has_more_than_fifteen_percent_of_the_lines() {
    let for_tests = ["testkit", "fuzz-input", "test-support"];
    let folders = fs::read_dir(crates()).expect("the crates").map(|entry| entry.expect("a crate").path());
    let of_product = folders.filter(|folder| !for_tests.iter().any(|name| folder.ends_with(name)));
    let all: Vec<_> = of_product.map(|folder| (lines(&folder.join("src")), folder)).collect();
    let sum: usize = all.iter().map(|(lines, _)| lines).sum();
    let large: Vec<_> = all.iter().filter(|(lines, _)| lines * 100 > sum * 15).collect();
    assert!(sum > 50_000 && large.is_empty(), "{sum} lines, of these {large:?}");
}
