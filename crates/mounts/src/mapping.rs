//! The mapping of file owners that the mount options `uidmap=` and `gidmap=` describe.

use thiserror::Error;

/// Which ids of a file system appear as which other ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdMapping {
    /// Lines of `/proc/<pid>/uid_map`.
    pub(super) users: String,
    /// Lines of `/proc/<pid>/gid_map`.
    pub(super) groups: String,
}

impl IdMapping {
    /// Parses both in containerd's form, `container-id:host-id:size[,...]`.
    ///
    /// # Errors
    ///
    /// [`MappingError`].
    pub(super) fn parse(users: &str, groups: &str) -> Result<Self, MappingError> {
        Ok(Self { users: lines(users)?, groups: lines(groups)? })
    }
}

/// A part of a mapping that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{part:?} is not a mapping `container-id:host-id:size`")]
pub struct MappingError {
    part: String,
}

fn lines(mappings: &str) -> Result<String, MappingError> {
    let line = |mapping: &str| {
        let numbers: Option<Vec<u32>> = mapping.split(':').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([inside, outside, size]) if *size > 0 => Ok(format!("{inside} {outside} {size}\n")),
            _ => Err(MappingError { part: mapping.to_owned() }),
        }
    };
    mappings.split(',').map(line).collect()
}
