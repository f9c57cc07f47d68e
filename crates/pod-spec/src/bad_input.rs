//! Bad input for everything that reads what a pod's author or a node's administrator wrote (DESIGN §6): no panic, one
//! bounded line as the answer, and what is accepted stays within the limits. Only in tests and in the targets of
//! `fuzz/`.

use crate::{Node, PREFIX, kruise, limits};

/// Sixteen errors of some hundred bytes each.
const LONGEST_ANSWER: usize = 16 * 1024;

/// Annotations, one `key: value` a line: podshim's without the prefix, OpenKruise's as they are, on a node that reads them.
pub fn annotations(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let pairs = pairs(&text);
    let node = Node::parse("read = [\"kruise\"]").unwrap_or_default();
    match node.parse_pod(pairs.iter().map(|(key, value)| (key.as_str(), *value))) {
        Ok(parsed) => {
            assert!(
                parsed.warnings.iter().all(|warning| is_a_line(&warning.to_string())),
                "{:?}",
                parsed.warnings
            );
            let members = parsed.plan.map_or(0, |plan| plan.members.len());
            assert!(members <= limits::MAX_CONTAINERS, "{members} containers");
        }
        Err(error) => assert!(is_a_line(&error.to_string()), "{error}"),
    }
}

/// The node's file.
pub fn node_file(input: &[u8]) {
    if let Err(error) = Node::parse(&String::from_utf8_lossy(input)) {
        assert!(is_a_line(&error.to_string()), "{error}");
    }
}

fn pairs(text: &str) -> Vec<(String, &str)> {
    let pairs = text.lines().filter_map(|line| line.split_once(": "));
    let whole = |key: &str| if kruise::is_mark(key) { key.to_owned() } else { format!("{PREFIX}{key}") };
    pairs.map(|(key, value)| (whole(key), value)).collect()
}

fn is_a_line(answer: &str) -> bool {
    !answer.is_empty() && answer.len() <= LONGEST_ANSWER && !answer.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use fuzz_input::{fuzz, known};

    use super::*;

    /// Fuzzing needs valid inputs to start from: one that is refused at once reaches little code.
    #[test]
    fn what_is_known_is_understood() {
        for (name, input) in known("annotations") {
            let text = String::from_utf8(input).unwrap();
            let pairs = pairs(&text);
            let parsed = crate::parse(pairs.iter().map(|(key, value)| (key.as_str(), *value)));
            parsed.unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for (name, input) in known("node_files") {
            Node::parse(str::from_utf8(&input).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }

    #[test]
    fn fuzz_annotations() {
        fuzz("annotations", annotations);
    }

    #[test]
    fn fuzz_node_files() {
        fuzz("node_files", node_file);
    }
}
