//! The mapping of file owners that the mount options `uidmap=` and `gidmap=` describe.

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
    /// A reason that names the invalid part.
    pub(super) fn parse(users: &str, groups: &str) -> Result<Self, String> {
        Ok(Self { users: lines(users)?, groups: lines(groups)? })
    }
}

fn lines(mappings: &str) -> Result<String, String> {
    let line = |mapping: &str| {
        let numbers: Option<Vec<u32>> = mapping.split(':').map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some([inside, outside, size]) if *size > 0 => Ok(format!("{inside} {outside} {size}\n")),
            _ => Err(format!("{mapping:?} is not a mapping `container-id:host-id:size`")),
        }
    };
    mappings.split(',').map(line).collect()
}
