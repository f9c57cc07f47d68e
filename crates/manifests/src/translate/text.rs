//! Makes the changes as edits of the text, so that comments, quotes and the order of keys stay as the author wrote
//! them.
//!
//! Owns which texts can be edited: block style without anchors. It refuses any other document, and the caller writes
//! that document's tree out.

use super::change::{Change, Injection};
use super::edit::{Edit, begin_of_comments, end_of_block, indent, is_comment, shifted};
use crate::manifest::{self, Template};
use crate::yaml::write::{self, string};
use crate::yaml::{Document, Node, Sharing, Style, Value};

type Refused = &'static str;

/// The edits that make the changes.
///
/// # Errors
/// Why the text cannot be edited.
pub fn edits(text: &str, document: &Document, changes: &[Option<Change>]) -> Result<Vec<Edit>, Refused> {
    each_pod(text, document, changes, |pod, change, edits| {
        pod.add_annotations(&change.annotations, edits)?;
        pod.add_runtime_class(change.runtime_class.as_deref(), edits);
        pod.move_containers(change, edits)
    })
}

/// The edits that add what SidecarSets add.
///
/// # Errors
/// Why the text cannot be edited.
pub fn injected(
    text: &str,
    document: &Document,
    injections: &[Option<Injection>],
) -> Result<Vec<Edit>, Refused> {
    each_pod(text, document, injections, |pod, injection, edits| {
        pod.add_annotations(&injection.annotations, edits)?;
        pod.add_containers(injection, edits)?;
        pod.extend_lists(injection, edits)
    })
}

fn each_pod<T>(
    text: &str,
    document: &Document,
    changes: &[Option<T>],
    edit: impl Fn(&Pod<'_>, &T, &mut Vec<Edit>) -> Result<(), Refused>,
) -> Result<Vec<Edit>, Refused> {
    if document.sharing == Sharing::Some {
        return Err("it has anchors");
    }
    let lines: Vec<&str> = text.lines().collect();
    if lines.iter().any(|line| line.starts_with('\t')) {
        return Err("it has tabs");
    }
    let mut edits = Vec::new();
    for (template, change) in manifest::templates(document).iter().zip(changes) {
        if let Some(change) = change {
            block(template.pod)?;
            block(template.spec)?;
            edit(&Pod { lines: &lines, template }, change, &mut edits)?;
        }
    }
    Ok(edits)
}

struct Pod<'a> {
    lines: &'a [&'a str],
    template: &'a Template<'a>,
}

/// The lines of an item of a list, its comments included.
struct Item {
    from: usize,
    to: usize,
    /// The column of its dash.
    dash: usize,
}

impl Pod<'_> {
    fn add_annotations(
        &self,
        annotations: &[(String, String)],
        edits: &mut Vec<Edit>,
    ) -> Result<(), Refused> {
        if annotations.is_empty() {
            return Ok(());
        }
        let new = |column: usize| {
            annotations
                .iter()
                .map(move |(key, value)| format!("{}{key}: {}", " ".repeat(column), string(value)))
        };
        let pad = |column: usize, word: &str| format!("{}{word}:", " ".repeat(column));
        let insert = |at: usize, lines: Vec<String>| Edit { from: at, to: at, lines };
        let pod = self.template.pod;
        let Some((key, metadata)) = pod.entry("metadata") else {
            let (spec, _) = pod.entry("spec").ok_or("it has no spec")?;
            let column = spec.start.column;
            let head = [pad(column, "metadata"), pad(column + 2, "annotations")];
            let at = begin_of_comments(self.lines, spec.start.line - 1, column);
            edits.push(insert(at, head.into_iter().chain(new(column + 4)).collect()));
            return Ok(());
        };
        let first = block(metadata)?.first().ok_or("its metadata is empty")?;
        let column = first.0.start.column;
        match metadata.entry("annotations") {
            Some((own, found)) if !found.entries().is_empty() => {
                if annotations.iter().any(|(key, _)| found.get(key).is_some()) {
                    return Err("an annotation of it gets another value");
                }
                let first = block(found)?.first().ok_or("its annotations are empty")?;
                let end = end_of_block(self.lines, own.start.line - 1, own.start.column);
                edits.push(insert(end, new(first.0.start.column).collect()));
            }
            Some((own, _)) => {
                let line = own.start.line - 1;
                let lines = [pad(column, "annotations")].into_iter().chain(new(column + 2)).collect();
                edits.push(Edit { from: line, to: line + 1, lines });
            }
            None => {
                let end = end_of_block(self.lines, key.start.line - 1, key.start.column);
                let lines = [pad(column, "annotations")].into_iter().chain(new(column + 2)).collect();
                edits.push(insert(end, lines));
            }
        }
        Ok(())
    }

    fn add_runtime_class(&self, class: Option<&str>, edits: &mut Vec<Edit>) {
        let (Some(class), Some((key, _)), Some(first)) =
            (class, self.template.pod.entry("spec"), self.template.spec.entries().first())
        else {
            return;
        };
        let pad = " ".repeat(first.0.start.column);
        let lines = vec![format!("{pad}runtimeClassName: {}", string(class))];
        edits.push(Edit { from: key.start.line, to: key.start.line, lines });
    }

    /// Adds the new items of `containers`, and puts the replacing ones in place of the old.
    fn add_containers(&self, injection: &Injection, edits: &mut Vec<Edit>) -> Result<(), Refused> {
        let (_, containers) = self.template.spec.entry("containers").ok_or("it has no containers")?;
        let (first, last) =
            containers.items().first().zip(containers.items().last()).ok_or("it has no containers")?;
        let (first, last) = (self.item(first)?, self.item(last)?);
        let items = |nodes: &[Node]| write::items(nodes, first.dash);
        for (index, node) in &injection.replaced {
            let container = containers.items().get(*index).ok_or("it has fewer containers")?;
            let from = container.start.line - 1;
            let lines = items(std::slice::from_ref(node));
            edits.push(Edit { from, to: self.item(container)?.to, lines });
        }
        edits.push(Edit { from: first.from, to: first.from, lines: items(&injection.front) });
        edits.push(Edit { from: last.to, to: last.to, lines: items(&injection.back) });
        Ok(())
    }

    /// Adds new items at the end of other lists. A missing list goes behind `containers`, `initContainers` before it.
    fn extend_lists(&self, injection: &Injection, edits: &mut Vec<Edit>) -> Result<(), Refused> {
        let spec = self.template.spec;
        let (key, containers) = spec.entry("containers").ok_or("it has no containers")?;
        let (line, column) = (key.start.line - 1, key.start.column);
        let last = self.item(containers.items().last().ok_or("it has no containers")?)?;
        let mut lists = injection.lists();
        // Of edits at the same line, those that extend a list must precede those that add a key.
        lists.sort_by_key(|(name, _)| spec.get(name).is_none());
        for (name, new) in lists.into_iter().filter(|(_, new)| !new.is_empty()) {
            match spec.entry(name) {
                Some((_, list)) => {
                    let Value::Sequence(Style::Block, items) = &list.value else {
                        return Err("a list is empty, or in brackets");
                    };
                    let line = items.last().ok_or("a list is empty")?.start.line - 1;
                    let text = self.lines.get(line).filter(|line| line.trim_start().starts_with("- "));
                    let dash = indent(text.ok_or("an item does not begin beside its dash")?);
                    let end = end_of_block(self.lines, line, dash);
                    edits.push(Edit { from: end, to: end, lines: write::items(new, dash) });
                }
                None => {
                    let is_init = name == "initContainers";
                    let at = if is_init { begin_of_comments(self.lines, line, column) } else { last.to };
                    let head = [format!("{}{name}:", " ".repeat(column))];
                    let lines = head.into_iter().chain(write::items(new, column + 2)).collect();
                    edits.push(Edit { from: at, to: at, lines });
                }
            }
        }
        Ok(())
    }

    fn move_containers(&self, change: &Change, edits: &mut Vec<Edit>) -> Result<(), Refused> {
        if change.removed.is_empty() {
            return Ok(());
        }
        let spec = self.template.spec;
        let (inits_key, inits) = spec.entry("initContainers").ok_or("it has no initContainers")?;
        let (_, containers) = spec.entry("containers").ok_or("it has no containers")?;
        let target = self.item(containers.items().first().ok_or("it has no containers")?)?;
        let mut moved = Vec::new();
        let mut range: Option<(usize, usize)> = None;
        for (container, removed) in inits.items()[change.stay..].iter().zip(&change.removed) {
            let item = self.item(container)?;
            let kept = self.without(container, &item, removed)?;
            moved.extend(shifted(&kept, item.dash, target.dash));
            range = Some((range.map_or(item.from, |(from, _)| from), item.to));
        }
        let (mut from, to) = range.ok_or("nothing is to be moved")?;
        if change.stay == 0 {
            // No item is left, so the key goes too, with all lines between it and its first item.
            from = inits_key.start.line - 1;
        }
        edits.push(Edit { from, to, lines: Vec::new() });
        edits.push(Edit { from: target.from, to: target.from, lines: moved });
        Ok(())
    }

    fn item(&self, container: &Node) -> Result<Item, Refused> {
        block(container)?;
        let line = container.start.line - 1;
        let text = self.lines.get(line).ok_or("it has odd line ends")?;
        if !text.trim_start().starts_with("- ") {
            return Err("a container does not begin beside its dash");
        }
        let dash = indent(text);
        Ok(Item {
            from: begin_of_comments(self.lines, line, dash),
            to: end_of_block(self.lines, line, dash),
            dash,
        })
    }

    /// An item's lines without some of its fields.
    fn without(
        &self,
        container: &Node,
        item: &Item,
        removed: &[Vec<&'static str>],
    ) -> Result<Vec<String>, Refused> {
        let mut lines: Vec<Option<String>> =
            self.lines[item.from..item.to].iter().map(|line| Some((*line).to_owned())).collect();
        let first = container.start.line - 1;
        let mut needs_dash = false;
        for path in removed {
            let (last, above) = path.split_last().ok_or("a field without a name")?;
            let Some(parent) = container.at(above) else { continue };
            block(parent)?;
            let Some((key, _)) = parent.entry(last) else { continue };
            let line = key.start.line - 1;
            let end = end_of_block(self.lines, line, key.start.column).min(item.to);
            needs_dash |= line == first;
            for index in line..end {
                lines[index - item.from] = None;
            }
        }
        if needs_dash {
            // The removed field stood beside the dash: the next field takes its place.
            let column = container.start.column;
            let next = lines[first - item.from..].iter_mut().flatten();
            let line = next.into_iter().find(|line| indent(line) == column && !is_comment(line));
            let line = line.ok_or("a container has nothing else")?;
            let rest = line.trim_start().to_owned();
            let gap = " ".repeat(column - item.dash - 1);
            *line = format!("{}-{gap}{rest}", " ".repeat(item.dash));
        }
        Ok(lines.into_iter().flatten().collect())
    }
}

/// The entries of a mapping in block style.
fn block(node: &Node) -> Result<&[(Node, Node)], Refused> {
    match &node.value {
        Value::Mapping(Style::Block, entries) => Ok(entries),
        _ => Err("it is written in braces"),
    }
}
