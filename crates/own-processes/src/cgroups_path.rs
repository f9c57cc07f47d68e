//! Where the processes of a sandbox are kept: control groups of a path, or a scope of systemd.

use std::path::Path;

use super::field::{NotUnderstood, not_done};
use super::limits::Limits;
use cgroups::CgroupDriver;

/// What a scope without a slice is in (runc, crun).
const USUAL_SLICE: &str = "system.slice";

/// What `linux.cgroupsPath` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CgroupsPath {
    /// Control groups, by their path.
    Groups(String),
    /// A scope, which systemd makes.
    Scope(Scope),
}

/// A unit of processes that systemd did not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The slice that it is in.
    pub slice: String,
    /// Its own name.
    pub unit: String,
    /// Of its control groups.
    path: String,
}

impl CgroupsPath {
    /// Whether a sandbox that is kept here can have these limits.
    ///
    /// # Errors
    /// A period that not every scope can have: systemd before 242 has no property for one, and writes its own.
    pub fn check(&self, limits: &Limits) -> Result<(), NotUnderstood> {
        match self {
            Self::Scope(_) if limits.has_unusual_period() => {
                Err(not_done("linux.resources.cpu.period of a scope"))
            }
            Self::Scope(_) | Self::Groups(_) => Ok(()),
        }
    }

    /// Reads the path as the OCI runtimes do with that driver.
    pub(super) fn of(cgroups_path: &str, driver: CgroupDriver) -> Result<Self, NotUnderstood> {
        let parts: Vec<&str> = cgroups_path.split(':').collect();
        let names_a_group = cgroups_path.starts_with('/') && Path::new(cgroups_path).file_name().is_some();
        match (driver, &*parts) {
            (CgroupDriver::Cgroupfs, _)
                if names_a_group && !cgroups_path.split('/').any(|part| part == "..") =>
            {
                return Ok(Self::Groups(cgroups_path.to_owned()));
            }
            // A name with the suffix of a slice makes a slice.
            (CgroupDriver::Systemd, [slice, prefix, name])
                if is_word(prefix) && is_word(name) && !name.ends_with(".slice") =>
            {
                let slice = if slice.is_empty() { USUAL_SLICE } else { slice };
                let unit = format!("{prefix}-{name}.scope");
                if let Some(above) = slice_path(slice) {
                    return Ok(Self::Scope(Scope {
                        path: format!("{above}/{unit}"),
                        slice: slice.to_owned(),
                        unit,
                    }));
                }
            }
            _ => {}
        }
        Err(NotUnderstood::because(&format!(
            "linux.cgroupsPath {cgroups_path:?} is not done by podshim itself with this cgroup driver"
        )))
    }

    /// The path of its control groups.
    pub fn path(&self) -> &str {
        match self {
            Self::Groups(path) | Self::Scope(Scope { path, .. }) => path,
        }
    }
}

/// The unit whose control groups these are, if they are a scope's.
pub fn scope_at(path: &str) -> Option<&str> {
    path.rsplit('/').next().filter(|name| name.ends_with(".scope"))
}

/// What needs no escapes in a unit's name.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// The path of a slice's groups: `a-b.slice` is in `a.slice`. `None` if it is no slice's name.
pub fn slice_path(slice: &str) -> Option<String> {
    let name = slice.strip_suffix(".slice")?;
    if name == "-" {
        return Some(String::new());
    }
    let parts: Vec<&str> = name.split('-').collect();
    let is_slice = parts.iter().all(|part| is_word(part));
    let above = (1..=parts.len()).map(|count| format!("/{}.slice", parts[..count].join("-")));
    is_slice.then(|| above.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_is_where_systemd_puts_it() {
        for (text, slice, unit, path) in [
            (
                "kubepods-burstable-pod1_2.slice:cri-containerd:abc",
                "kubepods-burstable-pod1_2.slice",
                "cri-containerd-abc.scope",
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-abc.scope",
            ),
            (":ctr:web", "system.slice", "ctr-web.scope", "/system.slice/ctr-web.scope"),
            ("-.slice:ctr:web", "-.slice", "ctr-web.scope", "/ctr-web.scope"),
        ] {
            let cgroups_path = CgroupsPath::of(text, CgroupDriver::Systemd).unwrap();
            assert_eq!(cgroups_path.path(), path);
            assert_eq!(scope_at(cgroups_path.path()), Some(unit));
            let CgroupsPath::Scope(scope) = cgroups_path else { panic!("{text} is no scope") };
            assert_eq!((&*scope.slice, &*scope.unit), (slice, unit));
        }
        assert_eq!(scope_at("/kubepods/pod1/abc"), None);
    }

    #[test]
    fn what_an_oci_runtime_refuses_or_escapes_is_its_own() {
        for text in [
            "/a/b",
            "a:b",
            "a.slice:b:c.slice",
            "a:b:c",
            "a--b.slice:c:d",
            ".slice:b:c",
            "a/b.slice:c:d",
            "a.slice::c",
            "a.slice:b:",
            "a.slice:b:c@d",
            "",
            "a.slice:b:c:d",
        ] {
            assert!(CgroupsPath::of(text, CgroupDriver::Systemd).is_err(), "{text:?}");
        }
        for text in ["a.slice:b:c", "relative", "/a/../b", "", "/"] {
            assert!(CgroupsPath::of(text, CgroupDriver::Cgroupfs).is_err(), "{text:?}");
        }
    }
}
