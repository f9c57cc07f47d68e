//! A restart of the pod that is asked for from the cluster (R14): a value of `podshim.io/restart` that the pod's shim has not seen.
//!
//! Owns what counts of the value. It is no part of a plan: the value that a pod begins with asks for nothing.

use crate::error::Problem;
use crate::keys::{PREFIX, RESTART_MODES, RESTART_REQUEST};

/// As much of the value counts: a shim keeps it.
const LONGEST: usize = 256;

/// What these annotations ask for; `None` without a value, and for one that is meant for a container.
pub fn restart_request<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> Option<&'a str> {
    let mut annotations = annotations.into_iter();
    let (_, value) = annotations.find(|(key, _)| key.strip_prefix(PREFIX) == Some(RESTART_REQUEST))?;
    let value = value.trim();
    parse(value).ok()?;
    let end = (0..=LONGEST.min(value.len())).rev().find(|end| value.is_char_boundary(*end))?;
    Some(&value[..end]).filter(|value| !value.is_empty())
}

/// Any value, but for those of `restart.<c>`: its container is missing.
pub(crate) fn parse(value: &str) -> Result<(), Problem> {
    let word = value.split(';').next().unwrap_or_default().trim();
    if RESTART_MODES.iter().any(|(mode, _)| *mode == word) {
        return Err(Problem::ContainerMissing { word: RESTART_REQUEST });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r14_any_value_is_a_request_but_those_of_a_container() {
        let request = |value: &'static str| restart_request([("a/b", "x"), ("podshim.io/restart", value)]);
        assert_eq!(request(" 2026-12-01T03:00:00Z "), Some("2026-12-01T03:00:00Z"));
        assert_eq!([request(""), request("  "), request("always"), request("on-failure;limit=3")], [None; 4]);
        assert_eq!(restart_request([("podshim.io/restart.app", "always")]), None);
        let long: &'static str = "\u{e9}x".repeat(1000).leak();
        let kept = request(long).unwrap_or_default();
        assert!(long.starts_with(kept) && (250..=256).contains(&kept.len()), "{}", kept.len());
    }
}
