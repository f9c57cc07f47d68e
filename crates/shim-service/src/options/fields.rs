//! The fields of containerd's option messages, as they are on the wire.
//!
//! Owns reading them without generated types, which the protocol's crate does not have for these messages.

use std::io;

use protobuf::well_known_types::any::Any;
use protobuf::well_known_types::empty::Empty;
use protobuf::{Message, UnknownValueRef};

use super::error::OptionsError;

/// One field of a message, whatever its type.
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) value: Value,
}

/// A field's value, of the types that option messages have.
pub(super) enum Value {
    Number(u64),
    Text(String),
}

/// The fields of any message: parsed as `Empty`, which knows no field, it keeps them all as unknown fields.
pub(super) fn fields(any: &Any) -> Result<Vec<Field>, OptionsError> {
    let malformed = |source| OptionsError::Malformed { type_url: any.type_url.clone(), source };
    let message = Empty::parse_from_bytes(&any.value).map_err(malformed)?;
    let mut fields = Vec::new();
    for (number, value) in message.special_fields.unknown_fields().iter() {
        let value = match value {
            UnknownValueRef::Varint(n) => Value::Number(n),
            UnknownValueRef::LengthDelimited(bytes) => match String::from_utf8(bytes.to_vec()) {
                Ok(text) => Value::Text(text),
                Err(error) => return Err(malformed(io::Error::other(error).into())),
            },
            UnknownValueRef::Fixed32(_) | UnknownValueRef::Fixed64(_) => continue,
        };
        fields.push(Field { number, value });
    }
    Ok(fields)
}

/// An empty string means "not set", as in proto3, which does not even send it.
pub(super) fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// proto3 cannot tell 0 from "not set"; user 0 is the default anyway.
pub(super) fn non_zero(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|id| *id != 0)
}
