//! docs/coverage.md: each rule of docs/rules.md, and each case of Kubernetes' own suite there, with the tests that bear
//! its id. Fails if the page is stale, or if a rule or a case has no test.
//!
//! A test's name begins with the ids of the rules that it guards (`t1_s2_twenty_times`, `k11_kill_without_stop.txt`). The
//! ids of cases have a prefix of their own: they follow `ks` in the name of an e2e test (`i1_ks_b1`; `ks_g8_g11` is ks-G8
//! to ks-G11), or are in its comment (`ks-J5`, `ks-I8 to ks-I15`).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use house::{root, source_files};

/// Rules of what is outside the core, which is all that scenarios run: containerd, the shim's own process, the node.
const NO_SCENARIO: [&str; 8] = ["N1", "N2", "N3", "N5", "N6", "N7", "N10", "N11"];
/// The letters of rules.
const RULES: &str = "SIURTKJHNV";
/// The letters of faults that the world found (`c3_r2_...`): a test may bear their ids before those of rules.
const FAULTS: &str = "CD";

const HEAD: &str = "\
# Which test guards which rule

Written by `PODSHIM_REWRITE_COVERAGE=1 cargo nextest run -p house --test coverage` from the names of the tests;
that test fails if this page is stale or has a hole. Scenarios are the files of `crates/pod-lifecycle/tests/scenarios`, run
on virtual time; e2e tests are those of `tests/tests`, on real containers, or the cases of `hack/vm-shutdown`; the others
are next to the code. N3, N5 to N7, N10 and N11 speak of what is outside the core, and have no scenario.

| rule | scenarios | e2e tests | others |
|---|---|---|---|
";

const CASES_HEAD: &str = "
## Cases of Kubernetes' own suite

| case | e2e tests |
|---|---|
";

/// What an id names: J5 is a rule or a fact of docs/rules.md, ks-J5 a case of Kubernetes' suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Of {
    Rules,
    Suite,
}

/// A letter and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    of: Of,
    letter: char,
    number: u32,
}

impl Id {
    /// Reads `J5` or `ks-J5`.
    fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix("ks-") {
            Some(text) => Self::parse_of(Of::Suite, text),
            None => Self::parse_of(Of::Rules, text),
        }
    }

    fn parse_of(of: Of, text: &str) -> Option<Self> {
        let mut letters = text.chars();
        let letter = letters.next().filter(char::is_ascii_alphabetic)?.to_ascii_uppercase();
        let number = letters.as_str();
        let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { of, letter, number: digits.then(|| number.parse().ok())?? })
    }

    fn to(self, last: Self) -> impl Iterator<Item = Self> {
        (self.number..=last.number).map(move |number| Self { number, ..last })
    }

    fn next(self) -> Self {
        Self { number: self.number + 1, ..self }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = if self.of == Of::Suite { "ks-" } else { "" };
        write!(f, "{prefix}{}{}", self.letter, self.number)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Built,
    Planned,
    NotBelowCri,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Scenario,
    E2e,
    Unit,
}

#[derive(Debug)]
struct Found {
    id: Id,
    kind: Kind,
    name: String,
}

/// The list entries of docs/rules.md, each with the first word of its section's title.
fn entries(rules: &str) -> Vec<(String, String)> {
    let (mut section, mut entries) = (String::new(), Vec::<(String, String)>::new());
    let mut is_open = false;
    for line in rules.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            section = title.split(' ').next().unwrap_or_default().to_owned();
            is_open = false;
        } else if line.starts_with("* ") {
            entries.push((section.clone(), line.to_owned()));
            is_open = true;
        } else if let (true, Some(rest), Some((_, entry))) =
            (is_open, line.strip_prefix("  "), entries.last_mut())
        {
            *entry += &format!(" {rest}");
        }
    }
    entries
}

/// Which ids of an entry are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those that it begins with.
    First,
    All,
}

/// The bold ids of an entry, ranges in full.
fn ids(entry: &str, which: Which) -> Vec<Id> {
    let parts: Vec<&str> = entry.split("**").collect();
    let mut ids = Vec::<Id>::new();
    for (place, part) in parts.iter().enumerate().skip(1).step_by(2) {
        let Some(id) = Id::parse(part) else { if which == Which::All { continue } else { break } };
        let continues = place > 2 && parts[place - 1] == " to ";
        match ids.last() {
            Some(first) if continues => ids.extend(first.next().to(id).collect::<Vec<_>>()),
            _ => ids.push(id),
        }
        if which == Which::First && !matches!(parts.get(place + 1), Some(&(", " | " to "))) {
            break;
        }
    }
    ids
}

fn rules(entries: &[(String, String)]) -> Vec<(Id, Status)> {
    let is_rule = |section: &str| section.len() == 2 && section.ends_with([':', ',']);
    let mut rules = Vec::new();
    for (_, entry) in entries.iter().filter(|(section, _)| is_rule(section)) {
        let status = match entry {
            entry if entry.contains("not below the CRI") => Status::NotBelowCri,
            entry if entry.contains("** Planned") => Status::Planned,
            _ => Status::Built,
        };
        let own = ids(entry, Which::First).into_iter().filter(|id| RULES.contains(id.letter));
        rules.extend(own.map(|id| (id, status)));
    }
    rules
}

fn cases(entries: &[(String, String)]) -> Vec<Id> {
    entries
        .iter()
        .filter(|(section, _)| section == "Cases")
        .flat_map(|(_, entry)| ids(entry, Which::All))
        .collect()
}

/// The ids that a test bears, and the cases that its comment names.
fn of_test(name: &str, kind: Kind, comment: &str, found: &mut Vec<Found>) {
    let mut ids = BTreeSet::new();
    let mut of = Of::Rules;
    let mut last = None::<Id>;
    for word in name.split('_') {
        if word == "ks" && kind == Kind::E2e {
            (of, last) = (Of::Suite, None);
            continue;
        }
        let Some(id) = Id::parse_of(of, word).filter(|_| word.starts_with(char::is_lowercase)) else { break };
        if of == Of::Rules && FAULTS.contains(id.letter) {
            continue;
        }
        let first = last.filter(|last| of == Of::Suite && last.letter == id.letter).map_or(id, Id::next);
        ids.extend(first.to(id));
        last = Some(id);
    }
    let words: Vec<&str> = comment.split_whitespace().collect();
    let case = |word: &&str| Id::parse(word.trim_matches(&['(', ')', ',', '.', ':', ';'][..]));
    for (place, word) in words.iter().enumerate().filter(|_| kind == Kind::E2e) {
        let Some(first) = case(word).filter(|id| id.of == Of::Suite) else { continue };
        let goes_on = words.get(place + 1) == Some(&"to") && word.ends_with(|it: char| it.is_ascii_digit());
        let last = words.get(place + 2).filter(|_| goes_on).and_then(case);
        ids.extend(first.to(last.unwrap_or(first)));
    }
    found.extend(ids.into_iter().map(|id| Found { id, kind, name: name.to_owned() }));
}

fn tests(root: &Path) -> Vec<Found> {
    let mut found = Vec::new();
    let scenarios = root.join("crates/pod-lifecycle/tests/scenarios");
    let mut names: Vec<String> = fs::read_dir(scenarios)
        .expect("the scenarios")
        .filter_map(|entry| Some(entry.ok()?.path().file_stem()?.to_str()?.to_owned()))
        .collect();
    names.sort();
    for name in names {
        of_test(&name, Kind::Scenario, "", &mut found);
    }
    for path in source_files() {
        let kind = if path.starts_with(root.join("tests/tests")) { Kind::E2e } else { Kind::Unit };
        let (mut comment, mut is_test) = (String::new(), false);
        for line in fs::read_to_string(&path).expect("a source").lines().map(str::trim_start) {
            if let Some(text) = line.strip_prefix("///") {
                comment += &format!(" {text}");
                continue;
            }
            if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
                is_test = true;
                continue;
            }
            if line.starts_with("#[") {
                continue;
            }
            if let (true, Some((_, rest))) = (is_test, line.split_once("fn ")) {
                let name: String =
                    rest.chars().take_while(|it| it.is_ascii_alphanumeric() || *it == '_').collect();
                of_test(&name, kind, &comment, &mut found);
            }
            (comment, is_test) = (String::new(), false);
        }
    }
    let machines = fs::read_to_string(root.join("hack/vm-shutdown")).expect("the script");
    for line in machines.lines() {
        let (Some((name, _)), Some((_, id))) = (line.split_once(") wanted="), line.split_once(" # ")) else {
            continue;
        };
        let id = Id::parse(id).expect("an id");
        found.push(Found { id, kind: Kind::E2e, name: format!("hack/vm-shutdown: {name}") });
    }
    found
}

/// The page, and what it lacks.
fn coverage(rules_page: &str, root: &Path) -> (String, Vec<String>) {
    let (entries, tests) = (entries(rules_page), tests(root));
    let named = |id: Id, kind: Kind| {
        let of_it = tests.iter().filter(|found| found.id == id && found.kind == kind);
        of_it.map(|found| format!("`{}`", found.name)).collect::<Vec<_>>().join("<br>")
    };
    let (mut page, mut gaps) = (HEAD.to_owned(), Vec::new());
    for (id, status) in rules(&entries) {
        let [scenarios, e2e, others] = [Kind::Scenario, Kind::E2e, Kind::Unit].map(|kind| named(id, kind));
        page += &match status {
            Status::Built => format!("| {id} | {scenarios} | {e2e} | {others} |\n"),
            Status::Planned => format!("| {id} | planned | | |\n"),
            Status::NotBelowCri => format!("| {id} | not below the CRI | | |\n"),
        };
        if status == Status::Built && scenarios.is_empty() && !NO_SCENARIO.contains(&&*id.to_string()) {
            gaps.push(format!("{id}: no scenario"));
        }
        if status == Status::Built && e2e.is_empty() {
            gaps.push(format!("{id}: no e2e test"));
        }
    }
    page += CASES_HEAD;
    // Cases in a row that the same tests replay share a line.
    let mut rows = Vec::<(Id, Id, String)>::new();
    for id in cases(&entries) {
        let named = named(id, Kind::E2e);
        if named.is_empty() {
            gaps.push(format!("{id}: no e2e test"));
        }
        match rows.last_mut() {
            Some((_, last, same)) if last.next() == id && *same == named => *last = id,
            _ => rows.push((id, id, named)),
        }
    }
    for (first, last, named) in rows {
        let ids = if first == last { first.to_string() } else { format!("{first} to {last}") };
        page += &format!("| {ids} | {named} |\n");
    }
    (page, gaps)
}

#[test]
fn every_rule_and_every_case_has_its_tests() {
    let root = root();
    let rules_page = fs::read_to_string(root.join("docs/rules.md")).expect("docs/rules.md");
    let (page, gaps) = coverage(&rules_page, &root);
    assert!(gaps.is_empty(), "a test is missing:\n{}", gaps.join("\n"));
    let file = root.join("docs/coverage.md");
    if std::env::var_os("PODSHIM_REWRITE_COVERAGE").is_some() {
        fs::write(&file, &page).expect("docs/coverage.md");
    }
    let written = fs::read_to_string(&file).expect("docs/coverage.md");
    assert!(written == page, "docs/coverage.md is stale: run its first line's command");
}

/// A stranger reads the first sentences, and knows the rules.
#[test]
fn a_rule_begins_with_one_short_sentence() {
    const MOST: usize = 140;
    let page = fs::read_to_string(root().join("docs/rules.md")).expect("docs/rules.md");
    let mut long = Vec::new();
    for (_, entry) in entries(&page)
        .iter()
        .filter(|(section, _)| section.len() == 2 && section.starts_with(|c| RULES.contains(c)))
    {
        let mut text = entry.trim_start_matches("* ");
        while let Some((_, rest)) = text.strip_prefix("**").and_then(|rest| rest.split_once("**")) {
            text = rest.trim_start_matches([',', ' ']);
        }
        let first = text.split(". ").next().unwrap_or_default();
        if first.chars().count() > MOST {
            long.push(first.to_owned());
        }
    }
    assert!(long.is_empty(), "more than {MOST} letters:\n{}", long.join("\n"));
}

/// J5 and ks-J5 are two things: a test bears no id that its page does not have, and no file writes a case like a rule.
#[test]
fn rules_and_cases_are_kept_apart() {
    let root = root();
    let page = fs::read_to_string(root.join("docs/rules.md")).expect("docs/rules.md");
    let entries = entries(&page);
    let known: BTreeSet<Id> = entries.iter().flat_map(|(_, entry)| ids(entry, Which::All)).collect();
    let unknown = tests(&root).into_iter().filter(|found| !known.contains(&found.id));
    let unknown: Vec<_> = unknown.map(|found| format!("{} of {}", found.id, found.name)).collect();
    assert!(unknown.is_empty(), "neither a rule nor a case of docs/rules.md:\n{}", unknown.join("\n"));
    let bare = entries
        .iter()
        .filter(|(section, _)| section == "Cases")
        .flat_map(|(_, entry)| ids(entry, Which::All));
    assert_eq!(bare.filter(|id| id.of == Of::Rules).collect::<Vec<_>>(), [], "cases without their prefix");
    let mut files = source_files();
    let scenarios = fs::read_dir(root.join("crates/pod-lifecycle/tests/scenarios")).expect("the scenarios");
    files.extend(scenarios.map(|entry| entry.expect("an entry").path()));
    files.retain(|file| !file.ends_with("house/tests/coverage.rs"));
    let mut like_rules = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a text");
        let words: Vec<&str> = text.split_whitespace().collect();
        let after_e2e = words.windows(2).filter(|pair| pair[0].ends_with("e2e"));
        let ids =
            after_e2e.filter(|pair| Id::parse(pair[1].trim_end_matches([',', '.', ':', ')'])).is_some());
        like_rules.extend(ids.map(|pair| format!("{}: {}", file.display(), pair.join(" "))));
    }
    assert!(like_rules.is_empty(), "write ks-J5, not e2e J5:\n{}", like_rules.join("\n"));
}

#[test]
fn ids_are_read_as_the_page_writes_them() {
    let text = |ids: Vec<Id>| ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(text(ids("* **K1**, **K2** A signal **T3**", Which::First)), "K1 K2");
    assert_eq!(
        text(ids("* **ks-G8** to **ks-G10** Never, **ks-H1**", Which::All)),
        "ks-G8 ks-G9 ks-G10 ks-H1"
    );
    let ids_of = |name: &str, kind: Kind, comment: &str| {
        let mut found = Vec::new();
        of_test(name, kind, comment, &mut found);
        text(found.into_iter().map(|found| found.id).collect())
    };
    let comment = " J1, as ks-J5 and (ks-I8 to ks-I9) do; to ks-L1.";
    let of_both = "H1 J5 ks-G8 ks-G9 ks-G10 ks-I8 ks-I9 ks-J5 ks-L1";
    assert_eq!(ids_of("j5_h1_ks_g8_g10_exits", Kind::E2e, comment), of_both);
    // Only e2e tests replay cases.
    assert_eq!(ids_of("j5_ks_g8_exits", Kind::Unit, comment), "J5");
}
