//! Annotations alone, without a pod around them: a YAML mapping, or lines as for `ctr run --annotation`. Owns telling
//! these from manifests; `pod-spec` owns what the annotations mean.

use pod_spec::PREFIX;

use crate::yaml::Node;

/// A line's number, counted from 1, with its key and its value.
pub type Line<'a> = (usize, &'a str, &'a str);

/// Whether a key is one of podshim's.
pub fn is_ours(key: &str) -> bool {
    key.starts_with(PREFIX)
}

/// `key=value` lines, as `ctr` takes them; `None` if there is any other line.
pub fn lines(text: &str) -> Option<Vec<Line<'_>>> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    let entries = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let pairs: Option<Vec<_>> = entries
        .map(|(index, line)| {
            let line = line.strip_prefix("--annotation").map_or(line, str::trim_start);
            let (key, value) = line.split_once('=')?;
            (is_ours(key) && !key.contains([':', ' '])).then_some((index, key, value))
        })
        .collect();
    pairs.filter(|pairs| !pairs.is_empty())
}

/// The annotations of a document that has nothing else: its top-level keys, or those below `annotations`.
pub fn alone(root: &Node) -> Option<&Node> {
    if root.entries().iter().any(|(key, _)| key.text().is_some_and(is_ours)) {
        return Some(root);
    }
    root.get("annotations").filter(|_| root.get("kind").is_none())
}

/// The line of an annotation; the first line of all annotations if it is not there.
pub fn annotation_line(annotations: &Node, key: &str) -> usize {
    annotations.entry(key).map_or(annotations.start.line, |(key, _)| key.start.line)
}
