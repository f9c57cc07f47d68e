//! YAML as a tree. Each node knows its place in the text.
//!
//! `yaml::node` owns the tree, `yaml::read` reading it (all documents of a text, aliases resolved, sizes bounded),
//! `yaml::make` how a tree is changed, `yaml::write` how it is written. `manifest` owns what the nodes mean.

mod make;
mod node;
mod read;
pub mod write;

pub use node::{Document, Node, Position, Quoting, Scalar, Sharing, Style, Value};
pub use read::{YamlError, documents};

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Node {
        documents(text).expect("YAML").remove(0).root
    }

    #[test]
    fn nodes_know_their_lines() {
        let root = one("# a comment\nmetadata:\n  name: web # another\n  labels: {app: web}\n");
        let (key, value) = root.get("metadata").and_then(|m| m.entry("name")).expect("a name");
        assert_eq!(
            (key.start, value.start),
            (Position { line: 3, column: 2 }, Position { line: 3, column: 8 })
        );
        assert_eq!(value.text(), Some("web"));
        assert!(matches!(
            root.at(&["metadata", "labels"]).map(|it| &it.value),
            Some(Value::Mapping(Style::Flow, _))
        ));
    }

    #[test]
    fn aliases_and_merges_are_followed() {
        let root = one("base: &base {cpu: 1, memory: 2}\nown:\n  <<: *base\n  cpu: 3\nsame: *base\n");
        let own = root.get("own").expect("own");
        assert_eq!((own.text_of("cpu"), own.text_of("memory")), (Some("3"), Some("2")));
        assert_eq!(root.at(&["same", "cpu"]).and_then(Node::text), Some("1"));
    }

    /// Nested aliases are the oldest way to exhaust the memory of a YAML reader.
    #[test]
    fn bounds_hold() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let before = format!("*a{}", level - 1);
            text += &format!("a{level}: &a{level} [{}]\n", vec![before; 10].join(", "));
        }
        assert!(documents(&text).is_err_and(|error| error.to_string().contains("more than")));
        let deep = "[".repeat(5000);
        assert!(documents(&deep).is_err());
    }

    #[test]
    fn what_kubernetes_takes_for_a_string() {
        for (text, is_string) in [
            ("Never", true),
            ("\"true\"", true),
            ("true", false),
            ("10", false),
            ("10s", true),
            ("1e3", false),
            ("no", false),
            ("0x1f", false),
            (".5", false),
            (".inf", false),
            ("nan", true),
            ("infinity", true),
        ] {
            assert_eq!(one(&format!("a: {text}")).get("a").map(Node::is_string), Some(is_string), "{text}");
        }
    }

    #[test]
    fn an_error_has_its_line() {
        let error = documents("a: 1\nb: [1, 2\nc: 3\n").expect_err("no YAML");
        assert!(error.line >= 2, "{error}");
        let error = documents("a: *nothing\n").expect_err("no such anchor");
        assert_eq!(error.line, 1);
    }
}
