//! How the OCI runtime is called for a container, and the copy of that in the container's bundle.
//!
//! Owns the defaults and how two sets of options merge. Decoding them is `decode`'s, calling the runtime is `oci-runtime`'s.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cgroups::CgroupDriver;
use node_state::replace::replace;
use oci_runtime::bundle::Bundle;
use oci_runtime::runtime::{CallEnvironment, Runtime};
use oci_runtime::spec::Spec;
use processes::reaper::Reaper;
use serde::{Deserialize, Serialize};

use super::error::OptionsError;

/// The OCI runtime if the options name none.
const DEFAULT_BINARY: &str = "runc";
/// Where containerd's own shim lets runc keep its state; `ctr` and operators look there.
const DEFAULT_ROOT: &str = "/run/containerd/runc";
/// Exists while systemd is the node's init; runc and libsystemd check it too.
const SYSTEMD_RUNS: &str = "/run/systemd/system";
/// The file in a bundle with the options that its container was created with, for `delete`, which gets none.
pub(super) const OPTIONS_FILE: &str = "options.json";
/// The file in a bundle where the `delete` of containerd's own shim looks for the OCI runtime's name (trap 26).
const RUNTIME_FILE: &str = "runtime";

/// How the OCI runtime is called for a container. `None` and `false` mean "not set".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// The OCI runtime: a name to look up in `PATH`, or an absolute path.
    pub binary_name: Option<String>,
    /// The directory under which the runtime keeps its state, a directory for each namespace.
    pub root: Option<PathBuf>,
    /// Who creates the containers' cgroups; if not set, the form of `cgroupsPath` and whether systemd runs decide.
    pub cgroup_driver: Option<CgroupDriver>,
    /// Call `create` with `--no-pivot`.
    pub no_pivot_root: bool,
    /// Call `create` with `--no-new-keyring`.
    pub no_new_keyring: bool,
    /// The cgroup the shim itself moves to, as a path below the cgroup root.
    pub shim_cgroup: Option<String>,
    /// The user that owns the containers' stdio.
    pub io_uid: Option<u32>,
    /// The group that owns the containers' stdio.
    pub io_gid: Option<u32>,
    /// The `criu` that the OCI runtime uses. containerd 1.x has the field; in 2.x its number is reserved.
    pub criu_path: Option<PathBuf>,
    /// Where CRIU works during a restore; by default in the container's work directory.
    pub criu_work_path: Option<PathBuf>,
}

impl RuntimeOptions {
    /// These options, with those that `over` sets in their place. runc's message cannot tell "false" from "not set", so it
    /// never unsets what a file sets (DESIGN §5).
    pub fn overlaid_with(self, over: Self) -> Self {
        Self {
            binary_name: over.binary_name.or(self.binary_name),
            root: over.root.or(self.root),
            cgroup_driver: over.cgroup_driver.or(self.cgroup_driver),
            no_pivot_root: over.no_pivot_root || self.no_pivot_root,
            no_new_keyring: over.no_new_keyring || self.no_new_keyring,
            shim_cgroup: over.shim_cgroup.or(self.shim_cgroup),
            io_uid: over.io_uid.or(self.io_uid),
            io_gid: over.io_gid.or(self.io_gid),
            criu_path: over.criu_path.or(self.criu_path),
            criu_work_path: over.criu_work_path.or(self.criu_work_path),
        }
    }

    /// The OCI runtime's binary, by default runc.
    pub fn binary(&self) -> &Path {
        Path::new(self.binary_name.as_deref().unwrap_or(DEFAULT_BINARY))
    }

    /// The runtime to call for a container with this spec. What is not set has the default of containerd's own shim
    /// (CONTRACT §8).
    pub fn runtime(&self, reaper: Reaper, namespace: &str, spec: &Spec) -> Runtime {
        let driver = self.cgroup_driver_for(spec);
        Runtime::new(reaper, self.binary(), self.runtime_root(namespace), driver)
            .with_criu(self.criu_path.clone())
            .with_environment(self.call_environment(spec))
    }

    /// runc's calls take a twelfth less processor time so. Not those of a container with hooks, which would inherit it, nor
    /// those of a program of another name, which may be runc with hooks of its own.
    pub(super) fn call_environment(&self, spec: &Spec) -> CallEnvironment {
        match self.binary().file_name().is_some_and(|name| name == DEFAULT_BINARY) && spec.hooks.is_none() {
            true => CallEnvironment::BriefGoProgram,
            false => CallEnvironment::Shims,
        }
    }

    /// Who creates the cgroup of a container with this spec.
    pub fn cgroup_driver_for(&self, spec: &Spec) -> CgroupDriver {
        self.cgroup_driver.unwrap_or_else(|| driver_of(spec, Path::new(SYSTEMD_RUNS)))
    }

    /// The directory in which the runtime keeps the state of a namespace's containers.
    pub fn runtime_root(&self, namespace: &str) -> PathBuf {
        self.root.as_deref().unwrap_or(Path::new(DEFAULT_ROOT)).join(namespace)
    }

    /// These options, with the OCI runtime of the pod's sandbox where they do not name one.
    ///
    /// containerd creates the sandbox with the runtime's options. A container's options may be those of its task instead, which
    /// replace them and hold nothing but the owner of its stdio (trap 6).
    pub fn with_runtime_of(self, sandbox: &Self) -> Self {
        Self {
            binary_name: self.binary_name.or_else(|| sandbox.binary_name.clone()),
            root: self.root.or_else(|| sandbox.root.clone()),
            cgroup_driver: self.cgroup_driver.or(sandbox.cgroup_driver),
            ..self
        }
    }

    /// Writes the options into a bundle, for `delete`: it must call the same runtime, and no request names it.
    ///
    /// # Errors
    ///
    /// The system's answer, with the path in [`OptionsError::Unwritable`].
    pub fn save(&self, bundle: &Bundle) -> Result<(), OptionsError> {
        let write = |name: &str, bytes: &[u8]| {
            let path = bundle.path().join(name);
            // A shim that is killed here must not leave a part of a file, which `delete` could not read (N3).
            let temporary = bundle.path().join(format!(".{name}"));
            replace(&path, &temporary, bytes).map_err(|source| OptionsError::Unwritable { path, source })
        };
        let options = serde_json::to_vec(&Stored::from(self)).map_err(|error| OptionsError::Unwritable {
            path: bundle.path().join(OPTIONS_FILE),
            source: error.into(),
        })?;
        write(OPTIONS_FILE, &options)?;
        write(RUNTIME_FILE, self.binary_name.as_deref().unwrap_or_default().as_bytes())
    }

    /// The options in a bundle, all defaults if there are none. Fields that a newer release has added are ignored.
    ///
    /// # Errors
    ///
    /// [`OptionsError::Recorded`].
    pub fn load(bundle: &Bundle) -> Result<Self, OptionsError> {
        let path = bundle.path().join(OPTIONS_FILE);
        let stored = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice::<Stored>(&bytes).map_err(io::Error::from),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Stored::default()),
            Err(error) => Err(error),
        };
        stored.map(Self::from).map_err(|source| OptionsError::Recorded { path, source })
    }
}

/// The form of `cgroupsPath` decides: `slice:prefix:name` is a systemd unit. Where systemd does not run it is a path like any
/// other, as for runc without `--systemd-cgroup`; crictl and critest send that form there too.
pub(super) fn driver_of(spec: &Spec, systemd_runs: &Path) -> CgroupDriver {
    let path = spec.linux.as_ref().and_then(|linux| linux.cgroups_path.as_deref()).unwrap_or_default();
    if !path.starts_with('/') && path.split(':').count() == 3 && systemd_runs.is_dir() {
        CgroupDriver::Systemd
    } else {
        CgroupDriver::Cgroupfs
    }
}

/// The options as a file. Every field may be missing: a shim reads what an earlier release has written.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Stored {
    binary_name: Option<String>,
    root: Option<PathBuf>,
    systemd_cgroup: Option<bool>,
    no_pivot_root: bool,
    no_new_keyring: bool,
    shim_cgroup: Option<String>,
    io_uid: Option<u32>,
    io_gid: Option<u32>,
    criu_path: Option<PathBuf>,
    criu_work_path: Option<PathBuf>,
}

impl From<&RuntimeOptions> for Stored {
    fn from(options: &RuntimeOptions) -> Self {
        let options = options.clone();
        Self {
            binary_name: options.binary_name,
            root: options.root,
            systemd_cgroup: options.cgroup_driver.map(|driver| driver == CgroupDriver::Systemd),
            no_pivot_root: options.no_pivot_root,
            no_new_keyring: options.no_new_keyring,
            shim_cgroup: options.shim_cgroup,
            io_uid: options.io_uid,
            io_gid: options.io_gid,
            criu_path: options.criu_path,
            criu_work_path: options.criu_work_path,
        }
    }
}

impl From<Stored> for RuntimeOptions {
    fn from(stored: Stored) -> Self {
        Self {
            binary_name: stored.binary_name,
            root: stored.root,
            cgroup_driver: stored.systemd_cgroup.map(|systemd| match systemd {
                true => CgroupDriver::Systemd,
                false => CgroupDriver::Cgroupfs,
            }),
            no_pivot_root: stored.no_pivot_root,
            no_new_keyring: stored.no_new_keyring,
            shim_cgroup: stored.shim_cgroup,
            io_uid: stored.io_uid,
            io_gid: stored.io_gid,
            criu_path: stored.criu_path,
            criu_work_path: stored.criu_work_path,
        }
    }
}
