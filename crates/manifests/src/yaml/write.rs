//! Writes trees as YAML in block style: new nodes, and documents that cannot stay as the author wrote them. Owns
//! quoting and indentation.

use super::node::{Node, Quoting, Scalar, Value, is_word_or_number};

/// The lines of a node, indented by `indent` spaces.
pub fn lines(node: &Node, indent: usize) -> Vec<String> {
    let pad = " ".repeat(indent);
    match &node.value {
        Value::Mapping(_, entries) if !entries.is_empty() => {
            entries.iter().flat_map(|(key, value)| entry(key, value, indent)).collect()
        }
        Value::Sequence(_, list) if !list.is_empty() => items(list, indent),
        _ => vec![format!("{pad}{}", inline(node))],
    }
}

/// The lines of a list's items, with the dashes indented by `indent` spaces.
pub fn items(items: &[Node], indent: usize) -> Vec<String> {
    let begin = format!("{}- ", " ".repeat(indent));
    let item = |node: &Node| {
        let mut lines = lines(node, indent + 2);
        if let Some(first) = lines.first_mut() {
            first.replace_range(..indent + 2, &begin);
        }
        lines
    };
    items.iter().flat_map(item).collect()
}

/// The lines of one entry of a mapping.
fn entry(key: &Node, value: &Node, indent: usize) -> Vec<String> {
    let pad = " ".repeat(indent);
    let name = inline(key);
    match &value.value {
        Value::Mapping(_, entries) if !entries.is_empty() => {
            [format!("{pad}{name}:")].into_iter().chain(lines(value, indent + 2)).collect()
        }
        Value::Sequence(_, items) if !items.is_empty() => {
            [format!("{pad}{name}:")].into_iter().chain(lines(value, indent)).collect()
        }
        _ => vec![format!("{pad}{name}: {}", inline(value)).trim_end().to_owned()],
    }
}

fn inline(node: &Node) -> String {
    match &node.value {
        Value::Scalar(Scalar { text, quoting: Quoting::Plain }) => text.clone(),
        Value::Scalar(Scalar { text, .. }) => string(text),
        Value::Mapping(..) => "{}".to_owned(),
        Value::Sequence(..) => "[]".to_owned(),
    }
}

/// Writes a string so that every YAML reader takes it for a string.
pub fn string(text: &str) -> String {
    let plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./=, +|".contains(c));
    let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    if plain && ends(text.chars().next()) && ends(text.chars().last()) && !is_word_or_number(text) {
        text.to_owned()
    } else {
        // JSON's strings are YAML's double-quoted ones.
        serde_json::Value::from(text).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::super::documents;
    use super::*;

    #[test]
    fn what_is_written_reads_the_same() {
        let text = "{a: [1, \"2\", {b: c, d: []}], e: {}, f: \"x: y # z\", g: \"two\\nlines\", h: }";
        let root = documents(text).expect("YAML").remove(0).root;
        let written = lines(&root, 0).join("\n");
        let again = documents(&written).expect("YAML").remove(0).root;
        assert_eq!(lines(&again, 0).join("\n"), written);
        assert_eq!(
            written,
            "a:\n- 1\n- \"2\"\n- b: c\n  d: []\ne: {}\nf: \"x: y # z\"\ng: \"two\\nlines\"\nh:"
        );
    }

    #[test]
    fn strings_stay_strings() {
        for (text, written) in [
            ("proxy=sidecar, app=main", "proxy=sidecar, app=main"),
            ("true", "\"true\""),
            ("30", "\"30\""),
            ("30s", "30s"),
            ("exec:[\"a\"]", "\"exec:[\\\"a\\\"]\""),
        ] {
            assert_eq!(string(text), written);
        }
    }
}
