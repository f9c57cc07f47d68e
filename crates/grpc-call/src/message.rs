//! Messages of protobuf: as much as a call needs whose messages have a few fields.

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A number or a truth value.
    Number(u64),
    /// A text, bytes, or a message.
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    /// The number, if it is one.
    pub fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Bytes(_) => None,
        }
    }

    /// The bytes, if it has some.
    pub fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Number(_) => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }
}

/// The fields of a message with their numbers, but those of fixed length. Ends where the message is not understood.
pub fn fields(message: &[u8]) -> impl Iterator<Item = (u64, Value<'_>)> {
    let mut rest = message;
    std::iter::from_fn(move || {
        loop {
            let key = varint(&mut rest)?;
            match key & 7 {
                0 => return Some((key >> 3, Value::Number(varint(&mut rest)?))),
                1 => rest = rest.get(8..)?,
                2 => {
                    let length = usize::try_from(varint(&mut rest)?).ok()?;
                    let (value, after) = rest.split_at_checked(length)?;
                    rest = after;
                    return Some((key >> 3, Value::Bytes(value)));
                }
                5 => rest = rest.get(4..)?,
                _ => return None,
            }
        }
    })
}

/// The first field with this number.
pub fn first(message: &[u8], wanted: u64) -> Option<Value<'_>> {
    fields(message).find(|(number, _)| *number == wanted).map(|(_, value)| value)
}

/// A field with a text, bytes or a message, as it is sent.
///
/// # Panics
/// In a debug build, if the field's number is above 15, which takes another form.
pub fn field(number: u8, value: &[u8]) -> Vec<u8> {
    debug_assert!((1..16).contains(&number), "its number and kind are one byte");
    let mut bytes = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(value);
    bytes
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_read_as_it_is_written() {
        for value in ["", "a", &"é".repeat(100), &"x".repeat(20_000)] {
            let message = field(15, value.as_bytes());
            assert_eq!(fields(&message).collect::<Vec<_>>(), [(15, Value::Bytes(value.as_bytes()))]);
        }
    }

    #[test]
    fn fields_that_are_not_known_are_passed() {
        let message = b"\x11abcdefgh\x25abcd\x08\x03\xf8\x07\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        let found: Vec<_> = fields(message).collect();
        assert_eq!(found, [(1, Value::Number(3)), (127, Value::Number(u64::MAX))]);
        assert_eq!(first(message, 127), Some(Value::Number(u64::MAX)));
        assert_eq!(first(message, 2), None);
        let (number, bytes) = (first(message, 1).unwrap(), Value::Bytes(b"ab"));
        assert_eq!((number.number(), number.bytes()), (Some(3), None));
        assert_eq!((bytes.number(), bytes.bytes()), (None, Some(&b"ab"[..])));
    }

    #[test]
    fn a_message_that_is_cut_off_ends_there() {
        for cut in [&b"\x08"[..], b"\x11abc", b"\x25ab", b"\x0a\x7fa", b"\x0b", &[0x80; 40]] {
            assert_eq!(fields(cut).count(), 0, "{}", cut.escape_ascii());
        }
    }
}
