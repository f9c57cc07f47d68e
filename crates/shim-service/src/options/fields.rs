//! The fields of containerd's option messages, as they are on the wire.
//!
//! Owns reading them without a generated type: four releases of containerd have four messages for the same options.

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

/// A field's value as far as the option messages use it.
pub(super) enum Value {
    Number(u64),
    Text(String),
}

/// The fields of a message for which no type is generated: `Empty` knows none of them and keeps them all.
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

/// proto3 does not send empty strings: one that arrives says nothing either.
pub(super) fn non_empty(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// User 0 is proto3's "not said" and the default anyway.
pub(super) fn non_zero(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|id| *id != 0)
}
