//! D-Bus messages: the calls that podshim makes, and as much of the answers as it needs.
//!
//! Only bytes. All of it little-endian, which every message says of itself.

use std::ops::Range;

use super::property::{Property, PropertyValue};

/// The part of a message whose length is known: kind, lengths, serial number, and the length of the fields.
pub(super) const START: usize = 16;
const DESTINATION: &str = "org.freedesktop.systemd1";
const OBJECT: &str = "/org/freedesktop/systemd1";
const INTERFACE: &str = "org.freedesktop.systemd1.Manager";

/// The arguments of a call.
#[derive(Debug, Default)]
pub(super) struct Body {
    signature: String,
    bytes: Bytes,
}

impl Body {
    pub(super) fn text(mut self, text: &str) -> Self {
        self.signature.push('s');
        self.bytes.text(text);
        self
    }

    pub(super) fn bool(mut self, value: bool) -> Self {
        self.signature.push('b');
        self.bytes.u32(value.into());
        self
    }

    pub(super) fn properties(mut self, properties: &[Property]) -> Self {
        self.signature.push_str("a(sv)");
        self.bytes.array(8, |bytes| {
            for property in properties {
                bytes.align(8);
                bytes.text(&property.name);
                bytes.variant(&property.value);
            }
        });
        self
    }

    /// The units that are to be made beside it: none.
    pub(super) fn no_units(mut self) -> Self {
        self.signature.push_str("a(sa(sv))");
        self.bytes.array(8, |_| {});
        self
    }
}

/// A call of systemd's manager.
pub(super) fn call(serial: u32, member: &str, body: &Body) -> Vec<u8> {
    let mut bytes = Bytes::default();
    let method_call = [b'l', 1, 0, 1];
    bytes.0.extend(method_call);
    bytes.u32(u32::try_from(body.bytes.0.len()).unwrap_or(u32::MAX));
    bytes.u32(serial);
    bytes.array(8, |bytes| {
        for (field, kind, text) in [
            (1, "o", OBJECT),
            (2, "s", INTERFACE),
            (3, "s", member),
            (6, "s", DESTINATION),
            (8, "g", &body.signature),
        ] {
            bytes.align(8);
            bytes.0.push(field);
            bytes.signature(kind);
            match kind {
                "g" => bytes.signature(text),
                _ => bytes.text(text),
            }
        }
    });
    bytes.align(8);
    bytes.0.extend(&body.bytes.0);
    bytes.0
}

/// What an answer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The call with this number was done.
    Done { call: u32 },
    /// It was refused, with D-Bus' name of the error and words for people.
    Refused { call: u32, name: String, reason: String },
    /// A signal, or what else is no answer.
    Other,
}

/// The lengths of the fields and of the rest of a message, from its start; `None` if it is no message.
pub(super) fn lengths(start: &[u8; START]) -> Option<(usize, usize)> {
    let length = |place: Range<usize>| {
        let bytes: [u8; 4] = start.get(place)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let (body, fields) = (length(4..8)?, length(12..16)?);
    // D-Bus allows 128 MiB; what is answered here has some hundred bytes.
    (start[0] == b'l' && body <= 1 << 20 && fields <= 1 << 20)
        .then(|| (fields, fields.next_multiple_of(8) + body))
}

/// Reads a message, whose start and rest these are.
pub(super) fn read(start: &[u8; START], fields: usize, rest: &[u8]) -> Option<Reply> {
    let mut reader = Reader { bytes: rest.get(..fields)?, at: 0 };
    let (mut call, mut name, mut signature) = (None, String::new(), String::new());
    while reader.at < fields {
        reader.align(8);
        let field = reader.u8()?;
        let kind = reader.signature()?;
        match (field, kind) {
            (5, "u") => call = Some(reader.u32()?),
            (4, "s") => name = reader.text()?.to_owned(),
            (8, "g") => signature = reader.signature()?.to_owned(),
            (_, "u") => drop(reader.u32()?),
            (_, "s" | "o") => drop(reader.text()?),
            (_, "g") => drop(reader.signature()?),
            _ => return None,
        }
    }
    let (method_return, error) = (2, 3);
    Some(match (start[1], call) {
        (kind, Some(call)) if kind == method_return => Reply::Done { call },
        (kind, Some(call)) if kind == error => {
            let mut body = Reader { bytes: rest.get(fields.next_multiple_of(8)..)?, at: 0 };
            let reason = if signature.starts_with('s') { body.text()? } else { "" };
            Reply::Refused { call, name, reason: reason.to_owned() }
        }
        _ => Reply::Other,
    })
}

/// Bytes that are written. Places count from the first one, as in a message.
#[derive(Debug, Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn u32(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.align(8);
        self.0.extend(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.u32(u32::try_from(text.len()).unwrap_or(u32::MAX));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    fn signature(&mut self, text: &str) {
        self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// An array whose entries begin at multiples of `alignment`, which do not count for its length.
    fn array(&mut self, alignment: usize, entries: impl FnOnce(&mut Self)) {
        self.u32(0);
        let length = self.0.len() - 4;
        self.align(alignment);
        let begin = self.0.len();
        entries(self);
        let bytes = u32::try_from(self.0.len() - begin).unwrap_or(u32::MAX);
        self.0[length..length + 4].copy_from_slice(&bytes.to_le_bytes());
    }

    fn variant(&mut self, value: &PropertyValue) {
        self.signature(value.signature());
        match value {
            PropertyValue::Bool(value) => self.u32((*value).into()),
            PropertyValue::I32(number) => self.u32(number.cast_unsigned()),
            PropertyValue::U32(number) => self.u32(*number),
            PropertyValue::I64(number) => self.u64(number.cast_unsigned()),
            PropertyValue::U64(number) => self.u64(*number),
            PropertyValue::Text(text) => self.text(text),
            PropertyValue::Texts(texts) => {
                self.array(4, |bytes| texts.iter().for_each(|text| bytes.text(text)));
            }
            PropertyValue::Pids(pids) => self.array(4, |bytes| pids.iter().for_each(|pid| bytes.u32(*pid))),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn align(&mut self, to: usize) {
        self.at = self.at.next_multiple_of(to);
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(taken)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.align(4);
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    fn string(&mut self, length: usize) -> Option<&'a str> {
        let text = std::str::from_utf8(self.take(length)?).ok()?;
        self.take(1)?;
        Some(text)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.u32()?).ok()?;
        self.string(length)
    }

    fn signature(&mut self) -> Option<&'a str> {
        let length = self.u8()?.into();
        self.string(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of a message that another implementation wrote: `busctl` asks systemd for `StopUnit`.
    #[test]
    fn a_call_has_the_bytes_of_the_specification() {
        let bytes = call(2, "StopUnit", &Body::default().text("a.scope").text("replace"));
        assert_eq!(&bytes[..4], [b'l', 1, 0, 1]);
        let text = String::from_utf8_lossy(&bytes);
        for word in [OBJECT, INTERFACE, DESTINATION, "StopUnit", "\u{2}ss\0", "a.scope\0", "replace\0"] {
            assert!(text.contains(word), "{word:?} in {text:?}");
        }
        let start: &[u8; START] = bytes[..START].try_into().unwrap();
        let (fields, rest) = lengths(start).unwrap();
        assert_eq!(bytes.len(), START + rest);
        // "a.scope": 4 + 7 + 1; "replace" after it begins at 12: 4 + 7 + 1.
        assert_eq!(rest - fields.next_multiple_of(8), 24);
    }

    #[test]
    fn properties_are_aligned_structures() {
        let property = |value| Property::new("P", value);
        let body = Body::default().properties(&[
            property(PropertyValue::Bool(true)),
            property(PropertyValue::U64(7)),
            property(PropertyValue::Texts(vec!["a".into()])),
            property(PropertyValue::Pids(vec![9])),
        ]);
        #[rustfmt::skip]
        let expected = [
            // The array's length, and the padding before its first structure.
            84, 0, 0, 0, 0, 0, 0, 0,
            1, 0, 0, 0, b'P', 0, 1, b'b', 0, 0, 0, 0, 1, 0, 0, 0,
            1, 0, 0, 0, b'P', 0, 1, b't', 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0,
            1, 0, 0, 0, b'P', 0, 2, b'a', b's', 0, 0, 0, 6, 0, 0, 0, 1, 0, 0, 0, b'a', 0, 0, 0,
            1, 0, 0, 0, b'P', 0, 2, b'a', b'u', 0, 0, 0, 4, 0, 0, 0, 9, 0, 0, 0,
        ];
        assert_eq!(body.bytes.0, expected);
    }

    fn answer(kind: u8, fields: &[(u8, &str, u32, &str)], body: &[u8]) -> ([u8; START], Vec<u8>) {
        let mut bytes = Bytes(vec![b'l', kind, 0, 1]);
        bytes.u32(u32::try_from(body.len()).unwrap());
        bytes.u32(1);
        bytes.array(8, |bytes| {
            for (field, kind, number, text) in fields {
                bytes.align(8);
                bytes.0.push(*field);
                bytes.signature(kind);
                match *kind {
                    "u" => bytes.u32(*number),
                    "g" => bytes.signature(text),
                    _ => bytes.text(text),
                }
            }
        });
        bytes.align(8);
        bytes.0.extend(body);
        (bytes.0[..START].try_into().unwrap(), bytes.0[START..].to_vec())
    }

    fn message((start, rest): &([u8; START], Vec<u8>)) -> Option<Reply> {
        let (fields, length) = lengths(start)?;
        assert_eq!(length, rest.len());
        read(start, fields, rest)
    }

    #[test]
    fn answers_are_distinguished_from_signals() {
        let done = answer(2, &[(5, "u", 7, ""), (7, "s", 0, ":1.1"), (8, "g", 0, "o")], &[]);
        assert_eq!(message(&done), Some(Reply::Done { call: 7 }));
        let mut words = Bytes::default();
        words.text("Unit a.scope not loaded.");
        let fields = [(4, "s", 0, "org.freedesktop.systemd1.NoSuchUnit"), (5, "u", 7, ""), (8, "g", 0, "s")];
        let refused = answer(3, &fields, &words.0);
        let (name, reason) =
            ("org.freedesktop.systemd1.NoSuchUnit".into(), "Unit a.scope not loaded.".into());
        assert_eq!(message(&refused), Some(Reply::Refused { call: 7, name, reason }));
        let signal = answer(4, &[(1, "o", 0, "/a"), (2, "s", 0, "b.C"), (3, "s", 0, "UnitNew")], &[]);
        assert_eq!(message(&signal), Some(Reply::Other));
    }

    /// systemd is trusted, but what is no message must not be read as one.
    #[test]
    fn what_is_no_message_is_refused() {
        let (start, rest) = answer(2, &[(5, "u", 7, "")], &[]);
        assert_eq!(read(&start, 100, &rest), None);
        assert_eq!(read(&start, 3, &rest), None);
        let mut big = start;
        big[0] = b'B';
        assert_eq!(lengths(&big), None);
        let mut long = start;
        long[15] = 0xff;
        assert_eq!(lengths(&long), None);
    }
}
