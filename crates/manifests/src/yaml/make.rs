//! Builds and changes trees, apart from any text. Owns how nodes are put together; the caller decides what they say.

use super::node::{Node, Position, Quoting, Scalar, Style, Value};

impl Node {
    /// A string, even if its text looks like a number or a boolean.
    pub(crate) fn string(text: &str) -> Self {
        Self::made(Value::Scalar(Scalar { text: text.to_owned(), quoting: Quoting::Quoted }))
    }

    /// Keys and values.
    pub(crate) fn mapping(entries: Vec<(&str, Self)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (Self::key(key), value)).collect();
        Self::made(Value::Mapping(Style::Block, entries))
    }

    /// A list.
    pub(crate) fn sequence(items: Vec<Self>) -> Self {
        Self::made(Value::Sequence(Style::Block, items))
    }

    /// A node that has no place in a text yet.
    fn made(value: Value) -> Self {
        Self { start: Position::default(), end: Position::default(), value }
    }

    fn key(key: &str) -> Self {
        let quoting = if key.contains(['[', '"', '#']) { Quoting::Quoted } else { Quoting::Plain };
        Self::made(Value::Scalar(Scalar { text: key.to_owned(), quoting }))
    }

    /// The value of a key of the mapping's own; keys that `<<` merges in are not found.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Value::Mapping(_, entries) = &mut self.value else { return None };
        entries.iter_mut().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    /// Sets a key of a mapping.
    pub(crate) fn set(&mut self, key: &str, value: Self) {
        if let Some(place) = self.get_mut(key) {
            *place = value;
        } else if let Value::Mapping(_, entries) = &mut self.value {
            entries.push((Self::key(key), value));
        }
    }

    /// Adds items to the list of a key; creates the list if there is none.
    pub(crate) fn extend(&mut self, key: &str, items: impl IntoIterator<Item = Self>) {
        if self.get(key).is_none_or(Self::is_null) {
            self.set(key, Self::sequence(Vec::new()));
        }
        if let Some(Value::Sequence(_, own)) = self.get_mut(key).map(|node| &mut node.value) {
            own.extend(items);
        }
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: &str) {
        if let Value::Mapping(_, entries) = &mut self.value {
            entries.retain(|(name, _)| name.text() != Some(key));
        }
    }

    /// Removes the last key of a path of nested keys.
    pub(crate) fn remove_at(&mut self, path: &[&str]) {
        if let Some((last, above)) = path.split_last()
            && let Some(node) = above.iter().try_fold(self, |node, key| node.get_mut(key))
        {
            node.remove(last);
        }
    }
}
