//! The nodes of a document, and looking things up in them.

/// A node of a document.
#[derive(Clone, Debug)]
pub struct Node {
    /// Where it begins.
    pub start: Position,
    /// Where it ends. For a block: where the next node begins, after comments and empty lines.
    pub end: Position,
    /// What it is.
    pub value: Value,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Counted from 1.
    pub line: usize,
    /// The number of characters before it in the line.
    pub column: usize,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum Value {
    /// A string, a number, a word.
    Scalar(Scalar),
    /// Keys and values in their order.
    Mapping(Style, Vec<(Node, Node)>),
    /// A list.
    Sequence(Style, Vec<Node>),
}

/// A scalar.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// Without quotes, escapes read.
    pub text: String,
    /// Whether YAML may take it for something other than a string.
    pub quoting: Quoting,
}

/// How a scalar is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quoting {
    /// As it is: `true` is a boolean.
    Plain,
    /// In quotes, or as a block: always a string.
    Quoted,
}

/// How a mapping or list is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// One entry a line.
    Block,
    /// In brackets, as in JSON.
    Flow,
}

/// A document of a text.
#[derive(Clone, Debug)]
pub struct Document {
    /// Its outermost node.
    pub root: Node,
    /// Whether it has anchors or aliases; then its text cannot be moved freely.
    pub sharing: Sharing,
}

/// Whether nodes are shared by `&anchor` and `*alias`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// There are none.
    None,
    /// There are some.
    Some,
}

impl Node {
    /// The value of a key, also if `<<` merges the key in.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entry(key).map(|(_, value)| value)
    }

    /// A key and its value, also if `<<` merges the key in.
    pub fn entry(&self, key: &str) -> Option<(&Node, &Node)> {
        let Value::Mapping(_, entries) = &self.value else { return None };
        let own = entries.iter().find(|(name, _)| name.text() == Some(key));
        own.map(|(name, value)| (name, value)).or_else(|| {
            let merged = entries.iter().filter(|(name, _)| name.text() == Some("<<"));
            merged
                .flat_map(|(_, value)| match &value.value {
                    Value::Sequence(_, items) => items.iter().collect(),
                    _ => vec![value],
                })
                .find_map(|value| value.entry(key))
        })
    }

    /// The value below several nested keys.
    pub fn at(&self, keys: &[&str]) -> Option<&Node> {
        keys.iter().try_fold(self, |node, key| node.get(key))
    }

    /// The text of a scalar.
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(scalar) => Some(&scalar.text),
            _ => None,
        }
    }

    /// The text of a key's scalar.
    pub fn text_of(&self, key: &str) -> Option<&str> {
        self.get(key)?.text()
    }

    /// A key's value, if it is a whole number.
    pub fn number_of(&self, key: &str) -> Option<u64> {
        self.text_of(key)?.parse().ok()
    }

    /// The items of a list; empty for any other node.
    pub fn items(&self) -> &[Node] {
        match &self.value {
            Value::Sequence(_, items) => items,
            _ => &[],
        }
    }

    /// The entries of a mapping; empty for any other node.
    pub fn entries(&self) -> &[(Node, Node)] {
        match &self.value {
            Value::Mapping(_, entries) => entries,
            _ => &[],
        }
    }

    /// Its items or the values of its entries, in the order of the text.
    pub fn children(&self) -> impl Iterator<Item = &Node> {
        self.items().iter().chain(self.entries().iter().map(|(_, value)| value))
    }

    /// The same, to be changed.
    pub fn children_mut(&mut self) -> Vec<&mut Node> {
        match &mut self.value {
            Value::Sequence(_, items) => items.iter_mut().collect(),
            Value::Mapping(_, entries) => entries.iter_mut().map(|(_, value)| value).collect(),
            Value::Scalar(_) => Vec::new(),
        }
    }

    /// Whether YAML takes it for a string, as an annotation's value must be.
    pub fn is_string(&self) -> bool {
        match &self.value {
            Value::Scalar(scalar) => scalar.quoting == Quoting::Quoted || !is_word_or_number(&scalar.text),
            _ => false,
        }
    }

    /// Whether it is null: `key:` or `key: null`.
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(Scalar { text, quoting: Quoting::Plain })
            if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
    }
}

/// Whether a plain scalar is a boolean, a number or null in YAML 1.1, which Kubernetes reads.
pub(crate) fn is_word_or_number(text: &str) -> bool {
    let words = ["", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_start_matches(['+', '-']);
    words.contains(&lower.as_str())
        // Rust also reads `inf` and `nan`, which are strings.
        || (digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') && digits.parse::<f64>().is_ok())
        || matches!(digits, ".inf" | ".nan")
        || digits.strip_prefix("0x").is_some_and(|hex| u64::from_str_radix(hex, 16).is_ok())
        || digits.strip_prefix("0o").is_some_and(|octal| u64::from_str_radix(octal, 8).is_ok())
}
