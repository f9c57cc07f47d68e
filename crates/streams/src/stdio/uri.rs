//! The URIs of standard streams, read as containerd's Go code reads them (CONTRACT §7).
//!
//! Owns percent-decoding and the order of a query. Knows no scheme.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The part after the scheme, without the host, which none of the supported schemes uses, and without the fragment.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Uri {
    /// Percent-decoded.
    pub(super) path: PathBuf,
    /// Each key once, with its first value, in the order of first appearance. Go's shim has no fixed order.
    pub(super) query: Vec<(OsString, OsString)>,
}

impl Uri {
    /// Parses what follows `scheme:`; `None` if the path cannot be decoded or is not absolute.
    pub(super) fn parse(rest: &str) -> Option<Self> {
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let path = match location.strip_prefix("//") {
            Some(authority) => &authority[authority.find('/')?..],
            None => location,
        };
        let path = decode(path, Plus::Literal).filter(|path| path.first() == Some(&b'/'))?;
        Some(Self { path: OsString::from_vec(path).into(), query: parse_query(query) })
    }
}

/// Drops pairs that cannot be decoded, as Go's `url.Query` does.
fn parse_query(query: &str) -> Vec<(OsString, OsString)> {
    let mut pairs: Vec<(OsString, OsString)> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';')) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(key), Some(value)) = (decode(key, Plus::Space), decode(value, Plus::Space)) else {
            continue;
        };
        let key = OsString::from_vec(key);
        if pairs.iter().all(|(known, _)| *known != key) {
            pairs.push((key, OsString::from_vec(value)));
        }
    }
    pairs
}

/// What a plus sign stands for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plus {
    Literal,
    Space,
}

fn decode(text: &str, plus: Plus) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                // invariant: two hexadecimal digits are one byte.
                (high * 16 + low) as u8
            }
            b'+' if plus == Plus::Space => b' ',
            other => other,
        });
    }
    // Neither a path nor an argument can contain a zero byte.
    (!decoded.contains(&0)).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Vec<(String, String)> {
        let uri = Uri::parse(&format!("///bin/logger?{text}")).unwrap();
        let text = |word: OsString| word.into_string().unwrap();
        uri.query.into_iter().map(|(key, value)| (text(key), text(value))).collect()
    }

    fn path(text: &str) -> Option<String> {
        Uri::parse(text).map(|uri| uri.path.into_os_string().into_string().unwrap())
    }

    #[test]
    fn a_path_is_decoded_and_loses_host_query_and_fragment() {
        assert_eq!(path("///var/log/a%20b+c.log").as_deref(), Some("/var/log/a b+c.log"));
        assert_eq!(path("//host/x?k=v#f").as_deref(), Some("/x"));
        assert_eq!(path("/x").as_deref(), Some("/x"));
        for wrong in ["", "//", "//host", "relative", "///x%2", "///x%zz", "///x%00"] {
            assert_eq!(path(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_query_keeps_its_order_and_the_first_value_of_a_key() {
        let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        assert_eq!(query("z=1&a=2&z=3"), pairs(&[("z", "1"), ("a", "2")]));
        // A key without a value has an empty value, which is an argument too.
        assert_eq!(query("-v&k="), pairs(&[("-v", ""), ("k", "")]));
        assert_eq!(query("-c=echo+%26%3d%2B"), pairs(&[("-c", "echo &=+")]));
        assert_eq!(query("a=%zz&b;c=1&&d=4"), pairs(&[("d", "4")]));
    }
}
