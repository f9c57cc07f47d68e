//! Checks the table of traps in docs/containerd.md against the tests: each trap has a test or a reason, the table names
//! each such test, and each name in it is a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result, ensure};
use house::{root, sources};

/// How many traps CONTRACT counts.
const TRAPS: u32 = 33;

/// The table's words before the reason, for a trap that no test can show.
const NOT_TESTED: &str = "no test:";

/// The names of tests in a text: `trap_07_...`, with the trap's number.
fn trap_names(text: &str) -> impl Iterator<Item = (u32, &str)> {
    text.match_indices("trap_").filter_map(|(start, _)| {
        let is_part = |character: char| character.is_ascii_alphanumeric() || character == '_';
        if text[..start].ends_with(is_part) {
            return None;
        }
        let name = text[start..].split(|character| !is_part(character)).next()?;
        Some((name["trap_".len()..].split('_').next()?.parse().ok()?, name))
    })
}

/// The last cell of each trap's row: `| trap 7 | what happens | tests |`.
fn table(text: &str) -> Result<BTreeMap<u32, &str>> {
    let mut rows = BTreeMap::new();
    let is_row = |line: &&str| {
        line.strip_prefix("| trap ")
            .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    for line in text.lines().filter(is_row) {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [number, _, tests] = cells[..] else { anyhow::bail!("not three cells: {line}") };
        let number = number.trim_start_matches("trap ").parse().with_context(|| line.to_owned())?;
        ensure!(rows.insert(number, tests).is_none(), "trap {number} has two rows");
    }
    Ok(rows)
}

/// Every function in the sources whose name begins with a trap's number.
fn tests_of_traps() -> BTreeSet<(u32, String)> {
    let mut found = BTreeSet::new();
    for text in sources() {
        let functions = text
            .split("fn ")
            .skip(1)
            .filter_map(|rest| trap_names(rest).next().filter(|(_, name)| rest.starts_with(*name)));
        found.extend(functions.map(|(number, name)| (number, name.to_owned())));
    }
    found
}

#[test]
fn every_trap_has_its_tests_or_a_reason() -> Result<()> {
    let text = fs::read_to_string(root().join("docs/containerd.md"))?;
    let rows = table(&text)?;
    let numbers: Vec<_> = rows.keys().copied().collect();
    ensure!(numbers == (1..=TRAPS).collect::<Vec<_>>(), "rows of traps {numbers:?}");
    let mut named = BTreeSet::new();
    for (&trap, cell) in &rows {
        let tests: Vec<_> = trap_names(cell).collect();
        ensure!(
            tests.is_empty() == cell.starts_with(NOT_TESTED),
            "trap {trap}: tests or {NOT_TESTED:?}: {cell}"
        );
        for (number, name) in tests {
            // Two digits, so that lists sort.
            ensure!(name.starts_with(&format!("trap_{trap:02}_")), "{name} in the row of trap {trap}");
            named.insert((number, name.to_owned()));
        }
    }
    let there = tests_of_traps();
    let missing: Vec<_> = named.difference(&there).collect();
    ensure!(missing.is_empty(), "named in the table, but no test: {missing:?}");
    let unnamed: Vec<_> = there.difference(&named).collect();
    ensure!(unnamed.is_empty(), "tests that the table does not name: {unnamed:?}");
    Ok(())
}

#[test]
fn names_are_read_as_they_are_written() {
    let found: Vec<_> = trap_names("`trap_07_a_b`, x_trap_08_c trap_no trap_12_d").collect();
    assert_eq!(found, [(7, "trap_07_a_b"), (12, "trap_12_d")]);
}
