//! Each file of handlers, rules and steps says at its head which parts of the state it changes by their verbs: `Changes:` and their
//! names. What it changes by a step or by another rule its `use` lines show.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

mod sources;

use sources::{sources, without_tests};

/// A part, what stands before its verbs in other files, and the files that declare these.
const PARTS: [(&str, &str, &[&str]); 16] = [
    ("container", "container.", &["container.rs", "container/events.rs"]),
    ("container", "Container::", &["container.rs", "container/events.rs"]),
    ("hold", "hold.", &["container/hold.rs"]),
    ("probe", "probe.", &["container/gate_probe.rs"]),
    ("ending", ".ending.", &["container/ending.rs"]),
    ("hooks", ".hooks.", &["container/hooks.rs"]),
    ("freezer", ".freezer.", &["container/freezer.rs"]),
    ("restarts", ".restarts.", &["container/restarts.rs", "pod_restarts.rs"]),
    ("callers stop", ".callers_stop.", &["callers_stop.rs"]),
    ("takeover", ".takeover.", &["container/takeover.rs"]),
    ("overdue", ".overdue.", &["container/overdue.rs"]),
    ("member", "member_mut(index).", &["member.rs"]),
    ("gate", ".gate.", &["member/gate.rs"]),
    ("pair", ".pair.", &["member/pair.rs"]),
    ("sandbox", ".sandbox.", &["sandbox.rs"]),
    ("rounds", ".rounds.", &["rounds.rs"]),
];

/// What the state itself changes, and by which of its verbs. The stop changes by its own verbs in between.
const OF_STATE: [(&str, &[&str]); 3] = [
    ("tables", &["declare_plan(", "add_unnamed_main(", "add_container(", "remove_container("]),
    ("failure", &["fail(", "clear_failure_of("]),
    ("stop", &["begin_stop(", "stop_mut()", "end_stop("]),
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn read(file: &str) -> String {
    fs::read_to_string(source().join(file)).expect("a source")
}

/// A file's code without comments, and each chain of calls in one piece.
fn code(text: &str) -> String {
    let lines = without_tests(text).lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    lines.fold(String::new(), |code, line| {
        let goes_on = line.starts_with('.') || line.starts_with("?.");
        code + if goes_on { "" } else { "\n" } + line
    })
}

/// The verbs that change the value they are called on.
fn verbs(files: &[&str]) -> BTreeSet<String> {
    let texts =
        files.iter().map(|file| without_tests(&read(file)).replace("(\n        &mut self", "(&mut self"));
    let texts: Vec<_> = texts.collect();
    let functions = texts.iter().flat_map(|text| text.split("fn ").skip(1));
    let named = functions.filter_map(|function| function.split_once('('));
    named.filter(|(_, rest)| rest.starts_with("&mut self")).map(|(name, _)| name.to_owned()).collect()
}

/// Whether `text` calls one of the verbs after `before`, which is a name of its own.
fn calls(text: &str, before: &str, verbs: &BTreeSet<String>) -> bool {
    text.match_indices(before).any(|(at, _)| {
        let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let begins = before.starts_with('.') || !text[..at].ends_with(is_name);
        let rest = &text[at + before.len()..];
        let called = &rest[..rest.find(|letter| !is_name(letter)).unwrap_or(rest.len())];
        begins && verbs.contains(called)
    })
}

fn changed(text: &str) -> Vec<&'static str> {
    let code = code(text);
    let parts = PARTS.iter().filter(|(_, before, files)| calls(&code, before, &verbs(files)));
    let parts = parts.map(|(name, ..)| *name);
    let of_state =
        OF_STATE.iter().filter(|(_, calls)| calls.iter().any(|call| code.contains(&format!("pod.{call}"))));
    let mut found: Vec<_> = parts.chain(of_state.map(|(name, _)| *name)).collect();
    found.dedup();
    found
}

/// What a file's head says that it changes.
fn named_at_head(text: &str) -> Vec<String> {
    let head = text.lines().map_while(|line| line.strip_prefix("//!")).collect::<String>();
    let named_at_head =
        head.split_once("Changes: ").map_or("", |(_, rest)| rest.split('.').next().unwrap_or_default());
    named_at_head.split(',').map(|part| part.trim().to_owned()).filter(|part| !part.is_empty()).collect()
}

#[test]
fn each_file_says_what_it_changes() {
    let mut files = Vec::new();
    for folder in ["handlers", "rules", "steps"] {
        sources(&source(), &source().join(folder), &mut files);
    }
    files.retain(|file| !file.ends_with("/tests.rs"));
    files.sort();
    assert!(files.len() > 35, "{} files", files.len());
    let wrong = files.iter().filter_map(|file| {
        let text = read(file);
        let changed = changed(&text);
        (named_at_head(&text) != changed).then(|| format!("{file}: //! Changes: {}.", changed.join(", ")))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "the heads of these files should say:\n{}", wrong.join("\n"));
}

#[test]
fn a_change_is_a_call_of_a_verb_that_changes() {
    let text = "//! Gates. Changes: gate,\n//! stop. Never more.\nfn f() {\n    state\n        .gate\n        .open();\n    // x.pair.retire();\n    \
                pod.stop_mut();\n    container.hooks.is_running();\n    subcontainer.hold(a);\n}\n";
    assert_eq!(changed(text), ["gate", "stop"]);
    assert_eq!(named_at_head(text), ["gate", "stop"]);
    assert_eq!(changed("container.hold(a); member_mut(index).complete(exit);"), ["container", "member"]);
}
