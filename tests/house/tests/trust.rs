//! Checks the tables of hostile acts and of bounds in docs/trust.md against the tests: each row has a test, and each
//! name is a test.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, ensure};
use house::{root, sources};

/// Each act and bound with the words in backticks of its last cell, from rows like `| act | what comes of it | tests
/// |`. Where that says "test or reason", a row whose reason is enough is left out.
fn acts(text: &str) -> Result<Vec<(&str, Vec<&str>)>> {
    let lines: Vec<_> = text.lines().chain([""]).collect();
    let is_head = |next: &str| next.starts_with("|---");
    // Whether this is a table whose last column is tests; a table of reasons is skipped.
    let mut of_tests = false;
    let rows = lines.windows(2).filter(|pair| {
        if is_head(pair[1]) {
            of_tests = ["| tests |", "| test or reason |"].iter().any(|end| pair[0].ends_with(end));
        }
        of_tests && pair[0].starts_with("| ") && !is_head(pair[1]) && !pair[0].ends_with("| reason |")
    });
    let rows: Vec<_> = rows.collect();
    rows.into_iter()
        .map(|pair| {
            let line = pair[0];
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [act, _, tests] = cells[..] else { anyhow::bail!("not three cells: {line}") };
            Ok((act, tests.split('`').skip(1).step_by(2).collect()))
        })
        .collect()
}

/// The names of all functions that are marked as tests.
fn tests() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in sources() {
        for marked in ["#[test]", "#[tokio::test]"] {
            // Other attributes and a few words may stand between the mark and the name.
            let names =
                text.split(marked).skip(1).filter_map(|rest| rest.split("fn ").nth(1)?.split('(').next());
            found.extend(names.map(str::to_owned));
        }
    }
    found
}

#[test]
fn every_act_has_its_tests() -> Result<()> {
    let path = root().join("docs/trust.md");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let acts = acts(&text)?;
    ensure!(acts.len() > 40, "{} acts and bounds", acts.len());
    let there = tests();
    for (act, named) in acts {
        ensure!(!named.is_empty(), "no test: {act}");
        for name in named {
            ensure!(there.contains(name), "{name} is no test: {act}");
        }
    }
    Ok(())
}
