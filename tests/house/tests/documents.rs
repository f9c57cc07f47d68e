//! What the pages name, link to and draw is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use house::{drawing, root};

/// The layout in the README has each crate and each directory of the repository, and no other.
#[test]
fn found_n20_the_readmes_layout_is_the_repositorys() {
    let readme = fs::read_to_string(root().join("README.md")).expect("the README");
    let layout = readme.split("\n## Layout\n").nth(1).expect("a heading");
    let names = layout.lines().filter_map(|line| line.strip_prefix("    ")?.split(' ').next());
    let mut listed: Vec<_> = names.filter_map(|name| name.strip_suffix('/')).map(str::to_owned).collect();
    let folders = |below: &str| {
        let entries =
            fs::read_dir(root().join(below)).expect("a directory").map(|entry| entry.expect("an entry"));
        let folders = entries.filter(|entry| entry.path().is_dir());
        let names: Vec<_> = folders.map(|entry| entry.file_name().display().to_string()).collect();
        names.into_iter().filter(|name| !name.starts_with('.') && name != "target")
    };
    let mut found: Vec<_> = folders("crates").map(|name| format!("crates/{name}")).collect();
    found.extend(folders("").filter(|name| name != "crates"));
    listed.sort();
    found.sort();
    assert_eq!(listed, found);
}

/// containerd names the pid of a container's first process for ever (R6): where a person looks for a pid, the page says so.
#[test]
fn r6_found_n11_the_pages_say_which_pid_is_the_present_one() {
    for page in ["docs/debugging.md", "docs/troubleshooting.md"] {
        let text = fs::read_to_string(root().join(page)).expect("a page");
        let paragraphs = text.split("\n\n").filter(|paragraph| paragraph.contains("crictl inspect"));
        assert!(paragraphs.filter(|it| it.contains("info.pid")).count() > 0, "{page}");
        assert!(text.contains("podshim inspect POD") && text.contains("ctr -n k8s.io tasks ls"), "{page}");
    }
}

/// docs/design.md draws the crates as the `Cargo.toml` files have them. `PODSHIM_REWRITE_GOLDEN` draws them there.
#[test]
fn the_house_is_drawn_from_the_imports() {
    let page = root().join("docs/design.md");
    let text = fs::read_to_string(&page).expect("the page");
    let lines = || text.split_inclusive('\n');
    let before: String = lines().take_while(|line| !line.starts_with("            ┌")).collect();
    let drawn: String = lines()
        .skip_while(|line| !line.starts_with("            ┌"))
        .take_while(|line| line != &"\n")
        .collect();
    let drawing = drawing::drawing(&drawing::imports(&root().join("crates")));
    if std::env::var_os("PODSHIM_REWRITE_GOLDEN").is_some() {
        let after = &text[before.len() + drawn.len()..];
        fs::write(&page, format!("{before}{drawing}{after}")).expect("written");
        return;
    }
    assert_eq!(drawn, drawing, "PODSHIM_REWRITE_GOLDEN=1 draws it");
}

/// Each crate's README says in some ten lines what it owns and never does, and which crates import it and it imports.
#[test]
fn each_crate_has_a_readme() {
    let design = fs::read_to_string(root().join("docs/design.md")).expect("the page");
    let imports = drawing::imports(&root().join("crates"));
    let names = |text: &str| -> BTreeSet<String> {
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
        words.filter(|word| imports.contains_key(*word)).map(str::to_owned).collect()
    };
    for (name, used) in &imports {
        let readme = fs::read_to_string(root().join(format!("crates/{name}/README.md"))).expect(name);
        assert!(
            design.contains(&format!("](../crates/{name}/README.md)")),
            "docs/design.md has no link to {name}"
        );
        assert!(readme.starts_with(&format!("# {name}\n")), "{name}: its name");
        assert!((8..=15).contains(&readme.lines().count()), "{name}: some ten lines");
        for part in ["**Owns**", "**Never**", "**Read first**", "**Tests**"] {
            assert!(readme.contains(&format!("\n* {part}")), "{name}: {part}");
        }
        let (_, last) = readme.split_once("\n* **Imported by** ").expect(name);
        let (importers, imported) = last.split_once("It imports ").expect(name);
        let found = imports.iter().filter(|(_, used)| used.contains(name)).map(|(other, _)| other.clone());
        let missing: Vec<_> = found.filter(|other| !names(importers).contains(other)).collect();
        assert!(missing.is_empty(), "{name} is imported by {missing:?} too");
        assert_eq!(names(imported), *used, "{name}: what it imports");
    }
}

/// Every page of the documentation.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs").map(|entry| entry.expect("an entry").path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.extend(
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|name| root().join(name)),
    );
    let crates = drawing::imports(&root().join("crates")).into_keys();
    pages.extend(crates.map(|name| root().join("crates").join(name).join("README.md")));
    pages
}

/// A file that a page names by its path is there.
#[test]
fn files_that_the_pages_name_exist() {
    let mut found = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for quoted in text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let path = quoted.split([' ', ':', '<', '*']).next().unwrap_or_default();
            let folder = path.split('/').next().unwrap_or_default();
            if !path.contains('/') || !["crates", "hack", "bench", "dist", "fuzz", "proto"].contains(&folder)
            {
                continue;
            }
            // These exist while they have something in them.
            if !["fuzz/artifacts", "fuzz/corpus"].contains(&path) {
                assert!(root().join(path).exists(), "{}: no {path}", page.display());
            }
            found += 1;
        }
    }
    assert!(found > 60, "only {found} paths");
}

/// docs/field.md says of a demand that it is met by naming a rule and a test: both exist, and the test is one of that rule.
#[test]
fn what_is_met_names_a_rule_and_a_test_of_it() {
    let read = |page: &str| fs::read_to_string(root().join("docs").join(page)).expect("a page");
    let (field, coverage, rules) = (read("field.md"), read("coverage.md"), read("rules.md"));
    let (mut rows, mut tests) = (0, 0);
    let is_claim =
        |line: &&str| line.starts_with("| ") && (line.contains("| met") || line.contains("| in part |"));
    for row in field.lines().filter(is_claim) {
        let ids: Vec<&str> = row
            .split(|letter: char| !letter.is_ascii_alphanumeric())
            .filter(|word| word.starts_with(|letter: char| "SIURTKJVHN".contains(letter)))
            .filter(|word| word.len() > 1 && word[1..].bytes().all(|letter| letter.is_ascii_digit()))
            .collect();
        assert!(ids.iter().all(|id| rules.contains(&format!("**{id}**"))), "{row}");
        let is_test = |word: &&str| word.matches('_').count() > 2 && word.starts_with(char::is_lowercase);
        for test in row.split('`').skip(1).step_by(2).filter(is_test) {
            let of_a_rule = |id: &&str| {
                let line = coverage.lines().find(|line| line.starts_with(&format!("| {id} |")));
                line.is_some_and(|line| line.contains(&format!("`{test}`")))
            };
            assert!(ids.iter().any(of_a_rule), "{test} shows none of {ids:?}:\n{row}");
            tests += 1;
        }
        rows += 1;
    }
    assert!(rows > 25 && tests > 15, "{rows} rows, {tests} tests");
}

/// Each link of a page leads to an existing file, and to an existing heading of it.
#[test]
fn links_hold() {
    let index = fs::read_to_string(root().join("docs/index.md")).expect("the index");
    let mut followed = 0;
    for page in pages() {
        let name = page.file_name().expect("a name").to_string_lossy().into_owned();
        let is_listed = name == "index.md" || index.contains(&format!("]({name})"));
        assert!(
            is_listed || !page.parent().is_some_and(|folder| folder.ends_with("docs")),
            "docs/index.md lacks {name}"
        );
        let text = fs::read_to_string(&page).expect("a page");
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name("").join(file) };
            assert!(target.exists(), "{}: no {link}", page.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).expect("a page");
                let found =
                    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
                assert!(found, "{}: no heading for {link}", page.display());
            }
            followed += 1;
        }
    }
    assert!(followed > 50, "only {followed} links");
}

/// The name of a heading in a link.
fn anchor(heading: &str) -> String {
    let words = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = words.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}
