//! The property of a unit, as D-Bus has it and as an annotation of the spec writes it.

/// What annotations with this prefix say is a property of the scope (runc and crun).
const ANNOTATION: &str = "org.systemd.property.";

/// A property of a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Property {
    pub(crate) name: String,
    pub(crate) value: PropertyValue,
}

/// The kinds of values that the properties of scopes have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PropertyValue {
    Bool(bool),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Text(String),
    Texts(Vec<String>),
    /// Of processes.
    Pids(Vec<u32>),
}

impl Property {
    pub(crate) fn new(name: &str, value: PropertyValue) -> Self {
        Self { name: name.to_owned(), value }
    }

    /// Reads an annotation; `None` if it is none of a property.
    ///
    /// # Errors
    /// Its value, or what the OCI runtimes make of its name, is not one that podshim reads.
    pub(crate) fn of_annotation(key: &str, text: &str) -> Option<Result<Self, ()>> {
        let name = key.strip_prefix(ANNOTATION)?;
        // runc turns seconds into microseconds.
        let is_in_seconds = name.ends_with("Sec") && !name.ends_with("USec");
        let letters = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let value = PropertyValue::read(text).filter(|_| letters && !is_in_seconds);
        Some(value.map(|value| Self::new(name, value)).ok_or(()))
    }
}

impl PropertyValue {
    /// Reads the usual part of GVariant's text format.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim();
        match text {
            "true" => return Some(Self::Bool(true)),
            "false" => return Some(Self::Bool(false)),
            _ => {}
        }
        if let Some(inner) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            // A list without an entry does not say of what.
            return inner
                .split(',')
                .map(|entry| quoted(entry.trim()))
                .collect::<Option<_>>()
                .map(Self::Texts);
        }
        if let Some(text) = quoted(text) {
            return Some(Self::Text(text));
        }
        match text.split_once(' ') {
            None | Some(("int32", _)) => number(text, "int32").map(Self::I32),
            Some(("uint32", _)) => number(text, "uint32").map(Self::U32),
            Some(("int64", _)) => number(text, "int64").map(Self::I64),
            Some(("uint64", _)) => number(text, "uint64").map(Self::U64),
            Some(_) => None,
        }
    }

    /// Its type, in D-Bus' letters.
    pub(super) fn signature(&self) -> &'static str {
        match self {
            Self::Bool(_) => "b",
            Self::I32(_) => "i",
            Self::U32(_) => "u",
            Self::I64(_) => "x",
            Self::U64(_) => "t",
            Self::Text(_) => "s",
            Self::Texts(_) => "as",
            Self::Pids(_) => "au",
        }
    }
}

/// A text in quotes, without anything that would have to be read in another way.
fn quoted(text: &str) -> Option<String> {
    let inner = ['\'', '"'].into_iter().find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))?;
    (!inner.contains(['\'', '"', '\\'])).then(|| inner.to_owned())
}

fn number<T: std::str::FromStr>(text: &str, kind: &str) -> Option<T> {
    text.strip_prefix(kind).unwrap_or(text).trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_are_read_as_the_oci_runtimes_read_them() {
        let read = |name: &str, text: &str| Property::of_annotation(&format!("{ANNOTATION}{name}"), text);
        for (text, value) in [
            ("true", PropertyValue::Bool(true)),
            ("5", PropertyValue::I32(5)),
            ("uint32 5", PropertyValue::U32(5)),
            ("int64 -5", PropertyValue::I64(-5)),
            ("uint64 32000000", PropertyValue::U64(32_000_000)),
            ("'inactive-or-failed'", PropertyValue::Text("inactive-or-failed".into())),
            (
                "['podshim-drain.service', \"b\"]",
                PropertyValue::Texts(vec!["podshim-drain.service".into(), "b".into()]),
            ),
        ] {
            assert_eq!(read("Name", text), Some(Ok(Property::new("Name", value))), "{text}");
        }
        for text in ["", "5.5", "[]", "[1, 2]", "'it\\'s'", "byte 5", "<5>", "word", "@as []"] {
            assert_eq!(read("Name", text), Some(Err(())), "{text}");
        }
        assert_eq!(read("TimeoutStopSec", "5"), Some(Err(())));
        assert!(read("TimeoutStopUSec", "uint64 5").unwrap().is_ok());
        assert_eq!(read("", "5"), Some(Err(())));
        assert_eq!(Property::of_annotation("podshim.io/plan", "5"), None);
    }
}
