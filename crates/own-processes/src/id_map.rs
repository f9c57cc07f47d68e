//! The users and groups of a user namespace: which of the node's each of them is.

use std::ffi::CStr;
use std::fs::File;
use std::io;

use serde_json::Value;

use super::field::{NotUnderstood, at, list, not_done, only};
use super::owned;

/// The kernel takes no more (Linux 4.15).
const MOST_RANGES: usize = 340;

/// What is written to `uid_map` and `gid_map`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdMaps {
    pub(super) uids: String,
    pub(super) gids: String,
}

impl IdMaps {
    /// Whether an existing user namespace has these maps, in any order.
    ///
    /// # Errors
    /// The kernel's, also that it is no user namespace.
    pub(super) fn are_of(&self, namespace: &File) -> io::Result<bool> {
        let is_same = |map: &str, file: &'static CStr| {
            Ok::<_, io::Error>(sorted(map) == sorted(&owned::map(namespace, file)?))
        };
        Ok(is_same(&self.uids, c"/proc/self/uid_map")? && is_same(&self.gids, c"/proc/self/gid_map")?)
    }
}

/// The ranges of a map. The kernel pads its numbers.
fn sorted(map: &str) -> Vec<Vec<&str>> {
    let mut ranges: Vec<_> = map.lines().map(|line| line.split_whitespace().collect()).collect();
    ranges.sort_unstable();
    ranges
}

/// Reads both mappings; `None` if there is neither.
pub(super) fn id_maps(uids: &Value, gids: &Value) -> Result<Option<IdMaps>, NotUnderstood> {
    let (uids, gids) = (text(uids, "linux.uidMappings")?, text(gids, "linux.gidMappings")?);
    match (uids.is_empty(), gids.is_empty()) {
        (true, true) => Ok(None),
        (false, false) => Ok(Some(IdMaps { uids, gids })),
        _ => Err(not_done("a user namespace without both of its mappings")),
    }
}

fn text(map: &Value, field: &str) -> Result<String, NotUnderstood> {
    let ranges = list(map, field)?;
    if ranges.len() > MOST_RANGES {
        return Err(not_done(&format!("{field} of {} ranges", ranges.len())));
    }
    let lines = ranges.iter().map(|range| {
        let range = only(range, &format!("{field}."), &["containerID", "hostID", "size"])?;
        let number = |key| match at(range, key) {
            Value::Null => Ok(0),
            id => id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| not_done(field)),
        };
        Ok(format!("{} {} {}\n", number("containerID")?, number("hostID")?, number("size")?))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn maps_are_written_as_the_kernel_reads_them() {
        let map =
            json!([{"containerID": 0, "hostID": 65536, "size": 65536}, {"containerID": 70000, "size": 1}]);
        let text = "0 65536 65536\n70000 0 1\n".to_owned();
        assert_eq!(id_maps(&map, &map).unwrap(), Some(IdMaps { uids: text.clone(), gids: text }));
        assert_eq!(id_maps(&Value::Null, &json!([])), Ok(None));
        for (uids, gids) in [
            (map.clone(), Value::Null),
            (json!([{"hostID": -1, "size": 1}]), map.clone()),
            (json!([{"hostID": 1, "size": 1, "new": 2}]), map.clone()),
            (json!({"hostID": 1}), map.clone()),
        ] {
            assert!(id_maps(&uids, &gids).is_err(), "{uids} {gids}");
        }
    }
}
