//! Reads fields of a spec as what they must be, or says which field podshim does not do itself.

use serde_json::Value;
use thiserror::Error;

/// What podshim does not do itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotUnderstood(String);

impl NotUnderstood {
    /// For a reason outside of the spec.
    pub fn because(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

/// Whether a field says nothing. The keys of an object of objects say something (`linux.netDevices`).
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) => false,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.iter().all(is_empty),
        Value::Object(map) => map.values().all(|value| !value.is_object() && is_empty(value)),
    }
}

pub(super) fn not_done(field: &str) -> NotUnderstood {
    NotUnderstood(format!("{field} is not done by podshim itself"))
}

static NULL: Value = Value::Null;

pub(super) fn at<'spec>(value: &'spec Value, key: &str) -> &'spec Value {
    value.get(key).unwrap_or(&NULL)
}

pub(super) fn text<'spec>(value: &'spec Value, key: &str) -> Result<&'spec str, NotUnderstood> {
    match at(value, key) {
        Value::Null => Ok(""),
        value => value.as_str().ok_or_else(|| not_done(key)),
    }
}

pub(super) fn list<'spec>(value: &'spec Value, field: &str) -> Result<&'spec [Value], NotUnderstood> {
    match value {
        Value::Null => Ok(&[]),
        value => Ok(value.as_array().ok_or_else(|| not_done(field))?),
    }
}

/// Returns the object, if there is one, after it has checked that every field with a value is a `known` one.
pub(super) fn only<'spec>(
    value: &'spec Value,
    above: &str,
    known: &[&str],
) -> Result<&'spec Value, NotUnderstood> {
    let Some(map) = value.as_object() else {
        return if value.is_null() { Ok(value) } else { Err(not_done(above.trim_end_matches('.'))) };
    };
    match map.iter().find(|(key, value)| !known.contains(&key.as_str()) && !is_empty(value)) {
        Some((key, _)) => Err(not_done(&format!("{above}{key}"))),
        None => Ok(value),
    }
}
