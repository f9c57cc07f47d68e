//! Reads a text into trees. Owns the limits on size and depth, as a manifest may come from anywhere.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::node::{Document, Node, Position, Quoting, Scalar, Sharing, Style, Value};

/// More nodes than the largest manifest has. An alias counts as all nodes that it stands for.
const MAX_NODES: usize = 500_000;
/// Deeper than any manifest, and far from a stack overflow.
const MAX_DEPTH: usize = 100;

/// Why a text cannot be read as YAML.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct YamlError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: String,
}

/// A mapping or list that has not ended yet.
struct OpenCollection {
    start: Position,
    anchor: usize,
    style: Style,
    nodes: Vec<Node>,
    kind: Kind,
}

#[derive(Clone, Copy)]
enum Kind {
    Mapping,
    Sequence,
}

/// Reads all documents, and leaves out empty ones.
///
/// # Errors
/// The first place that is not YAML, or that exceeds a limit, with its line.
pub fn documents(text: &str) -> Result<Vec<Document>, YamlError> {
    let mut reader = Reader {
        lines: text.lines().collect(),
        open: Vec::new(),
        anchors: BTreeMap::new(),
        documents: Vec::new(),
        sharing: Sharing::None,
        count: 0,
    };
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| YamlError {
            line: error.marker().line().max(1),
            problem: error.info().to_owned(),
        })?;
        reader.take(event, span)?;
    }
    Ok(reader.documents)
}

struct Reader<'a> {
    lines: Vec<&'a str>,
    open: Vec<OpenCollection>,
    anchors: BTreeMap<usize, Node>,
    documents: Vec<Document>,
    sharing: Sharing,
    count: usize,
}

impl Reader<'_> {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<(), YamlError> {
        let (start, end) = (position(span.start), position(span.end));
        match event {
            Event::DocumentStart(_) => {
                self.anchors.clear();
                self.sharing = Sharing::None;
            }
            Event::Scalar(text, style, anchor, _) => {
                let quoting = if style == ScalarStyle::Plain { Quoting::Plain } else { Quoting::Quoted };
                let value = Value::Scalar(Scalar { text: text.into_owned(), quoting });
                self.complete(Node { start, end, value }, anchor)?;
            }
            Event::SequenceStart(anchor, _) => self.begin(start, anchor, Kind::Sequence)?,
            Event::MappingStart(anchor, _) => self.begin(start, anchor, Kind::Mapping)?,
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(open) = self.open.pop() else { return Ok(()) };
                let value = match open.kind {
                    Kind::Sequence => Value::Sequence(open.style, open.nodes),
                    Kind::Mapping => Value::Mapping(open.style, in_pairs(open.nodes)?),
                };
                self.complete(Node { start: open.start, end, value }, open.anchor)?;
            }
            Event::Alias(anchor) => {
                self.sharing = Sharing::Some;
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(wrong(start, "an alias of something that has not ended"));
                };
                let mut node = node.clone();
                self.count += size(&node);
                (node.start, node.end) = (start, end);
                self.complete(node, 0)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, start: Position, anchor: usize, kind: Kind) -> Result<(), YamlError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(wrong(start, &format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let line = self.lines.get(start.line.saturating_sub(1)).copied().unwrap_or_default();
        let style = match line.chars().nth(start.column) {
            Some('{' | '[') => Style::Flow,
            _ => Style::Block,
        };
        self.open.push(OpenCollection { start, anchor, style, nodes: Vec::new(), kind });
        Ok(())
    }

    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), YamlError> {
        self.count += 1;
        if self.count > MAX_NODES {
            return Err(wrong(node.start, &format!("more than {MAX_NODES} values")));
        }
        if anchor > 0 {
            self.sharing = Sharing::Some;
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut() {
            Some(open) => open.nodes.push(node),
            None if node.is_null() => {}
            None => self.documents.push(Document { root: node, sharing: self.sharing }),
        }
        Ok(())
    }
}

/// Pairs alternating keys and values, and refuses a key that is there twice.
fn in_pairs(nodes: Vec<Node>) -> Result<Vec<(Node, Node)>, YamlError> {
    let mut pairs: Vec<(Node, Node)> = Vec::with_capacity(nodes.len() / 2);
    let mut seen = std::collections::BTreeSet::new();
    let mut nodes = nodes.into_iter();
    while let (Some(key), Some(value)) = (nodes.next(), nodes.next()) {
        if let Some(text) = key.text().filter(|text| *text != "<<")
            && !seen.insert(text.to_owned())
        {
            return Err(wrong(key.start, &format!("the key {text:?} is there twice")));
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

fn size(node: &Node) -> usize {
    1 + match &node.value {
        Value::Scalar(_) => 0,
        Value::Sequence(_, items) => items.iter().map(size).sum(),
        Value::Mapping(_, entries) => entries.iter().map(|(key, value)| size(key) + size(value)).sum(),
    }
}

fn position(marker: saphyr_parser::Marker) -> Position {
    Position { line: marker.line(), column: marker.col() }
}

fn wrong(at: Position, problem: &str) -> YamlError {
    YamlError { line: at.line, problem: problem.to_owned() }
}
