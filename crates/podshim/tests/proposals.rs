//! The proposals of `podshim check` are right: applied to its own examples one after another, as a reader does, they
//! leave no error that they could mend, and no proposal leads to another error.

use std::fs;
use std::path::{Path, PathBuf};

use manifests::check::CheckContext;
use manifests::finding::{Finding, Severity};
use manifests::source::Source;
use podshim::check::check;

/// More than any example needs.
const MOST_STEPS: usize = 60;

/// Findings that no proposed text can mend: a file that is not YAML, a configuration that only containerd can migrate,
/// a number that its author must choose, and a
/// variable of another controller.
const LEFT: [(&str, &str); 4] = [
    ("check/broken.yaml", "no YAML"),
    ("check/containerd-old.toml", "version 1"),
    ("check/kruise.yaml", "Kruise's start barrier"),
    ("check/node.toml", "must be between"),
];
/// Examples in YAML's flow style, which the editor of this test does not know; what is proposed for them is proposed for others, too.
const IN_FLOW_STYLE: [&str; 1] = ["n3-any-kind.yaml"];
/// Errors for which `check` proposes nothing on purpose.
const NO_WORD: [&str; 5] = [
    "unknown value \"true\"",
    "expected `Key = value`",
    "is no string",
    "codes and ranges at most",
    "nothing is in it",
];

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn examples() -> Vec<String> {
    let mut names = Vec::new();
    for folder in ["check", "plan"] {
        for entry in fs::read_dir(golden().join(folder)).expect("a folder") {
            let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
            let is_example = [".yaml", ".toml", ".txt"].iter().any(|end| name.ends_with(end));
            if is_example && !IN_FLOW_STYLE.contains(&name.as_str()) {
                names.push(format!("{folder}/{name}"));
            }
        }
    }
    names.sort();
    names
}

fn findings(name: &str, text: &str) -> Vec<Finding> {
    check(&Source { name: name.to_owned(), text: text.to_owned() }, &CheckContext::default(), None).1
}

#[test]
fn what_is_proposed_comes_out_clean() {
    let mut applied = 0;
    for name in examples() {
        let mut text = fs::read_to_string(golden().join(&name)).expect("an example");
        let mut found = findings(&name, &text);
        for step in 0.. {
            assert!(step < MOST_STEPS, "{name} never comes out clean: {found:#?}\n{text}");
            let proposals = found.iter().filter(|finding| finding.fix.is_some() && !is_left(&name, finding));
            let Some(finding) = proposals.min_by_key(|finding| finding.line).cloned() else { break };
            let next = apply(&text, &finding);
            assert_ne!(next, text, "nothing is changed by {finding:#?}");
            let then = findings(&name, &next);
            assert_better(&finding, &found, &then, &format!("{name}:\n{text}\n---- then\n{next}"));
            (text, found, applied) = (next, then, applied + 1);
        }
        // Only errors: a warning may have no proposal.
        for finding in found.iter().filter(|finding| finding.severity == Severity::Error) {
            let known = NO_WORD.iter().any(|word| finding.message.contains(word)) || is_left(&name, finding);
            assert!(known, "{name}: nothing is proposed for {finding:#?}\n{text}");
        }
    }
    assert!(applied > 50, "only {applied} proposals");
}

fn is_left(name: &str, finding: &Finding) -> bool {
    LEFT.iter().any(|(file, message)| *file == name && finding.message.contains(message))
}

/// Asserts that the finding is gone and no error has come. If the annotations could not be parsed before, `check` may
/// now report errors that it could not see then, but none for the key that was just written.
fn assert_better(finding: &Finding, before: &[Finding], then: &[Finding], what: &str) {
    let id = |finding: &Finding| (finding.key.clone(), finding.message.clone());
    let count = |found: &[Finding]| found.iter().filter(|one| id(one) == id(finding)).count();
    assert!(count(then) < count(before), "still there: {finding:#?}\n{then:#?}\n{what}");
    let of_parser = |one: &Finding| {
        one.severity == Severity::Error
            && one.key.as_ref().is_some_and(|key| one.message.starts_with(key.as_str()))
    };
    let unread = before.iter().any(of_parser);
    let errors = then.iter().filter(|one| one.severity == Severity::Error);
    for new in errors.filter(|one| before.iter().all(|old| id(old) != id(one))) {
        assert!(
            unread && new.key.is_some() && new.key != finding.key,
            "{finding:#?}\nleads to {new:#?}\n{what}"
        );
    }
}

/// A text as lines, to be changed as a reader would.
struct Editor {
    lines: Vec<String>,
    /// The line of the finding, counted from 0.
    at: usize,
}

fn apply(text: &str, finding: &Finding) -> String {
    let lines = text.lines().map(str::to_owned).collect();
    let mut editor = Editor { lines, at: finding.line - 1 };
    editor.apply(finding);
    editor.lines.join("\n") + "\n"
}

/// The text between `from` and `to`, or all after `from` if `to` is empty.
fn between<'a>(text: &'a str, from: &str, to: &str) -> Option<&'a str> {
    let rest = &text[text.find(from)? + from.len()..];
    if to.is_empty() { Some(rest) } else { Some(&rest[..rest.find(to)?]) }
}

fn quoted(text: &str) -> Option<&str> {
    between(text, "\"", "\"")
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start_matches([' ', '-']).len()
}

impl Editor {
    fn apply(&mut self, finding: &Finding) {
        let fix = finding.fix.clone().expect("a proposal");
        let key = finding.key.clone().unwrap_or_default();
        if let Some(right) = between(&fix, "write it in quotes: ", "") {
            let value = finding.value.as_ref().expect("a value");
            self.replace(self.at, &format!(": {value}"), &format!(": {right}"));
        } else if fix.starts_with("write podshim.io/") || fix.contains(", and podshim.io/plan: ") {
            self.write_annotations(&fix);
        } else if let Some(seconds) = between(&fix, "write terminationGracePeriodSeconds: ", "") {
            let spec = self.next("spec:");
            let line = format!(
                "{}  terminationGracePeriodSeconds: {seconds}",
                " ".repeat(indent(&self.lines[spec]))
            );
            let own = &self.lines[spec + 1..];
            let own = own.iter().take_while(|line| *line != "---");
            match own.clone().position(|line| line.trim_start().starts_with("terminationGracePeriodSeconds:"))
            {
                Some(place) => self.lines[spec + 1 + place] = line,
                None => self.lines.insert(spec + 1, line),
            }
        } else if let Some(period) = between(&fix, "write period=", " or longer") {
            let before = between(&self.lines[self.at], "period=", "").unwrap_or_default().to_owned();
            let before = before.split([';', '"']).next().unwrap_or_default();
            self.replace(self.at, &format!("period={before}"), &format!("period={period}"));
        } else if let Some(most) = between(&fix, "write max=", " or longer") {
            let before = between(&self.lines[self.at], "max=", "").unwrap_or_default().to_owned();
            let before = before.split([';', '"']).next().unwrap_or_default();
            self.replace(self.at, &format!("max={before}"), &format!("max={most}"));
        } else if fix.starts_with("write \"") {
            let right = quoted(&fix).expect("a word").to_owned();
            let wrong = match quoted(&finding.message) {
                Some(wrong) if !finding.message.contains(": unknown key") || !key.contains('/') => {
                    wrong.to_owned()
                }
                _ => key.clone(),
            };
            let others = between(&fix, ", ", "").unwrap_or_default().to_owned();
            self.replace(self.at, &wrong, &right);
            for other in others.strip_prefix("also in ").into_iter().flat_map(|others| others.split(" and "))
            {
                let line = self.find(other);
                self.replace(line, &wrong, &right);
            }
        } else if fix.starts_with("add ") && fix.contains("=main to podshim.io/plan") {
            let entry = between(&fix, "add ", " to").expect("an entry").to_owned();
            let plan = self.plan();
            let end = self.lines[plan].rfind('"').expect("a quoted plan");
            self.lines[plan].insert_str(end, &format!(", {entry}"));
        } else if fix.contains(" at the beginning of podshim.io/plan") {
            let entry = between(&fix, "add ", " at").expect("an entry").to_owned();
            let plan = self.plan();
            self.replace(plan, "plan: \"", &format!("plan: \"{entry}, "));
        } else if fix.starts_with("add runtimeClassName: podshim") {
            if self.lines[self.at].contains("spec: {") {
                return self.replace(self.at, "spec: {", "spec: {runtimeClassName: podshim, ");
            }
            let line = format!("{}runtimeClassName: podshim", " ".repeat(indent(&self.lines[self.at])));
            self.lines.insert(self.at, line);
        } else if fix.starts_with("add the container") {
            let name = quoted(&finding.message).expect("a name").to_owned();
            let list = self.next("containers:");
            let line = format!("{}  - name: {name}", " ".repeat(indent(&self.lines[list])));
            self.lines.insert(list + 1, line);
        } else if fix.starts_with("move it to containers") {
            let mut item = self.cut(self.at);
            if fix.contains("without its restartPolicy") {
                item.retain(|line| !line.contains("restartPolicy"));
            }
            let list = self.next("containers:");
            self.lines.splice(list + 1..list + 1, item);
        } else if let Some(key) = between(&fix, "remove podshim.io/", ":") {
            let line = self.find(&format!("podshim.io/{key}"));
            self.lines.remove(line);
        } else if fix.starts_with("remove its restartPolicy") {
            let line = self.next("restartPolicy:");
            self.lines.remove(line);
        } else if let Some((first, second)) =
            between(&fix, "list ", "").and_then(|rest| rest.split_once(" before "))
        {
            let (first, second) = (format!("- name: {first}"), format!("- name: {second}"));
            let up =
                (0..self.at).rev().find(|line| self.lines[*line].trim() == second).expect("the container");
            let from = (self.at..self.lines.len()).find(|line| self.lines[*line].trim() == first);
            let item = self.cut(from.expect("the other one"));
            self.lines.splice(up..up, item);
        } else if fix.starts_with("give it a startupProbe") {
            let space = " ".repeat(indent(&self.lines[self.at]));
            self.lines.insert(
                self.at,
                format!("{space}startupProbe: {{httpGet: {{port: 80}}, failureThreshold: 60}}"),
            );
        } else if let Some(threshold) = between(&fix, "write failureThreshold: ", " in") {
            let line = &mut self.lines[self.at];
            let before = between(line, "failureThreshold: ", "}").unwrap_or_default().to_owned();
            let kept = line.replace(&format!(", failureThreshold: {before}"), "");
            *line = format!(
                "{}, failureThreshold: {threshold}}}",
                kept.strip_suffix('}').expect("a flow mapping")
            );
        } else if fix.starts_with("give it a readinessProbe") {
            let space = " ".repeat(indent(&self.lines[self.at]));
            let probe = "readinessProbe: {httpGet: {port: 80}}";
            match self.lines[self.at].strip_suffix('}').map(str::to_owned) {
                Some(flow) => self.lines[self.at] = format!("{flow}, {probe}}}"),
                None => self.lines.insert(self.at + 1, format!("{space}{probe}")),
            }
        } else if fix.starts_with("move it to the metadata.annotations") {
            let line = self.lines.remove(self.at);
            let below = self.next("annotations:");
            let space = " ".repeat(indent(&self.lines[below]) + 2);
            self.lines.insert(below + 1, format!("{space}{}", line.trim()));
        } else {
            self.apply_toml(&fix, &key);
        }
    }

    fn apply_toml(&mut self, fix: &str, key: &str) {
        if let Some(glob) = between(fix, "remove \"", "\"") {
            let wrong = format!("\"{glob}\"");
            let line = self.lines[self.at].clone();
            self.lines[self.at] =
                line.replacen(&format!(", {wrong}"), "", 1).replacen(&format!("{wrong}, "), "", 1);
        } else if let Some(glob) = between(fix, "replace \"", "\"") {
            self.replace(self.at, &format!("\"{glob}\""), "\"podshim.io/*\"");
        } else if fix.starts_with("remove it") {
            self.lines.remove(self.at);
        } else if fix.starts_with("remove the table") {
            self.cut(self.at);
        } else if fix.starts_with('[') {
            self.lines[self.at] = fix.to_owned();
        } else if let Some(version) = between(fix, "containerd-version-", ".toml") {
            let path = format!("../../dist/containerd/version-{version}.toml");
            let lines =
                fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("the lines");
            self.lines.extend(lines.lines().map(str::to_owned));
        } else if fix.starts_with("add \"") {
            let glob = quoted(fix).expect("a glob");
            match self.in_table(key) {
                Some(line) => {
                    let end = self.lines[line].rfind(']').expect("a list");
                    self.lines[line].insert_str(end, &format!(", \"{glob}\""));
                }
                None => self.lines.insert(self.at + 1, format!("{key} = [\"{glob}\"]")),
            }
        } else {
            let (own, rest) = fix.split_once(" and ").unwrap_or((fix, ""));
            let own = own.split([' ', '=']).next().map(|word| (word.to_owned(), own)).expect("a key");
            let line = own
                .1
                .split(" (")
                .next()
                .expect("a line")
                .split(", without")
                .next()
                .expect("a line")
                .to_owned();
            match self.in_table(&own.0) {
                Some(at) => self.lines[at] = line,
                None => self.lines.insert(self.at + 1, line),
            }
            if !rest.is_empty() {
                self.lines.insert(self.at + 1, rest.to_owned());
            }
            if fix.ends_with("without runtime_path")
                && let Some(at) = self.in_table("runtime_path")
            {
                self.lines.remove(at);
            }
        }
    }

    /// `write KEY: VALUE[ instead, ...][, and KEY: VALUE]`.
    fn write_annotations(&mut self, fix: &str) {
        if fix.contains(" instead, ") {
            // Remove the hook, and its `lifecycle` if that has nothing else.
            let hook = self.lines.remove(self.at);
            if self.lines[self.at - 1].trim() == "lifecycle:" && indent(&self.lines[self.at]) < indent(&hook)
            {
                self.at -= 1;
                self.lines.remove(self.at);
            }
        }
        let fix = fix.split(" instead, ").next().expect("a proposal");
        for entry in fix.strip_prefix("write ").expect("what to write").split(", and ") {
            let (key, value) = entry.split_once(": ").expect("KEY: VALUE");
            let plan = self.plan();
            let block = |line: &&usize| self.lines[**line].trim_start().starts_with("podshim.io/");
            let all: Vec<usize> = (0..self.lines.len()).collect();
            let before = all[..plan].iter().rev().take_while(block);
            let mut own = all[plan..].iter().take_while(block).chain(before);
            let line = format!("{}{key}: {value}", " ".repeat(indent(&self.lines[plan])));
            match own.find(|line| self.lines[**line].trim_start().starts_with(&format!("{key}:"))) {
                Some(at) => self.lines[*at] = line,
                None => self.lines.insert(plan + 1, line),
            }
        }
    }

    fn replace(&mut self, line: usize, from: &str, to: &str) {
        assert!(self.lines[line].contains(from), "no {from:?} in {:?}", self.lines[line]);
        self.lines[line] = self.lines[line].replacen(from, to, 1);
    }

    fn find(&self, key: &str) -> usize {
        let of_pod = (self.at..self.lines.len()).chain(0..self.at);
        of_pod
            .into_iter()
            .find(|line| self.lines[*line].trim_start().starts_with(&format!("{key}:")))
            .expect("a key")
    }

    /// The next line that begins with `word`.
    fn next(&self, word: &str) -> usize {
        let begins = |line: &usize| self.lines[*line].trim_start_matches([' ', '-']).starts_with(word);
        (self.at..self.lines.len()).find(begins).expect("a line below")
    }

    /// The line of the pod's plan, or of one of its roles: above, or a little below among the annotations.
    fn plan(&self) -> usize {
        let begins = |line: usize, word: &str| self.lines[line].trim_start().starts_with(word);
        // `none` is no part of a plan.
        let is_role = |line: usize| begins(line, "podshim.io/role.") && !self.lines[line].contains("none");
        let is_plan = |line: &usize| begins(*line, "podshim.io/plan:") || is_role(*line);
        let up = (0..=self.at).rev().find(is_plan);
        up.or_else(|| (self.at..self.lines.len()).find(is_plan)).expect("a plan")
    }

    /// Takes out a line with all deeper lines below it.
    fn cut(&mut self, from: usize) -> Vec<String> {
        let own = self.lines[from].len() - self.lines[from].trim_start().len();
        let deeper = |line: &String| line.len() - line.trim_start().len() > own;
        let end = from + 1 + self.lines[from + 1..].iter().take_while(|line| deeper(line)).count();
        self.lines.drain(from..end).collect()
    }

    /// The line of a key in the same table as the finding.
    fn in_table(&self, key: &str) -> Option<usize> {
        let header = |line: &usize| self.lines[*line].trim_start().starts_with('[');
        let begin = (0..=self.at).rev().find(header)?;
        let end = (begin + 1..self.lines.len()).find(header).unwrap_or(self.lines.len());
        (begin + 1..end).find(|line| self.lines[*line].trim_start().starts_with(&format!("{key} =")))
    }
}
