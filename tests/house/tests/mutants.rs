//! Each change of `hack/mutants --by-hand` has its place in the core: a text that is there no more, or twice, ends the script before it
//! tries one.

use std::fs;
use std::path::Path;

use house::root;

/// The sources of a folder, without white space.
fn sources(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let of = |path: std::path::PathBuf| match path.extension() {
        _ if path.is_dir() => sources(&path),
        Some(extension) if extension == "rs" => vec![tight(&fs::read_to_string(&path).expect("UTF-8"))],
        _ => Vec::new(),
    };
    entries.flat_map(of).collect()
}

fn tight(text: &str) -> String {
    text.split_whitespace().collect()
}

#[test]
fn every_change_by_hand_has_its_place_in_the_core() {
    let core = sources(&root().join("crates/pod-lifecycle/src"));
    let changes = fs::read_dir(root().join("hack/mutants.d/by-hand")).expect("the changes");
    let mut misplaced = Vec::new();
    let mut count = 0;
    for path in changes.map(|entry| entry.expect("an entry").path()) {
        let text = fs::read_to_string(&path).expect("UTF-8");
        let (old, _) = text.split_once("\n----\n").expect("the line ---- between the two texts");
        let old: Vec<&str> = old.lines().filter(|line| !line.starts_with('#')).collect();
        let old = tight(&old.join("\n"));
        let found: usize = core.iter().map(|source| source.matches(&old).count()).sum();
        count += 1;
        if old.is_empty() || found != 1 {
            misplaced.push(format!("{}: {found} times", path.display()));
        }
    }
    assert!(misplaced.is_empty(), "{misplaced:#?}");
    assert!(count >= 40, "{count} changes");
}
