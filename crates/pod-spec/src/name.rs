//! Owns what a container's name may be.

use crate::limits::MAX_NAME_BYTES;

/// Whether a text is a container's name. Wider than the kubelet's DNS labels, because `ctr` has no rule; narrow enough to leave `,=+|@*` to podshim.
pub fn is_name(text: &str) -> bool {
    let end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= MAX_NAME_BYTES
        && end(bytes.first())
        && end(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}
