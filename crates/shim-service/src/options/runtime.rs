//! How the OCI runtime is called for a container, and the record of it in the container's bundle.
//!
//! Owns the defaults, and the rule how two sets merge. Where options come from is `decode`'s; what they do is `oci-runtime`'s.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use oci_runtime::bundle::Bundle;
use oci_runtime::reaper::Reaper;
use oci_runtime::runtime::{CgroupDriver, Runtime};
use oci_runtime::spec::Spec;
use serde::{Deserialize, Serialize};

use super::error::OptionsError;

/// What is called if neither the options nor the node's file name a runtime.
const DEFAULT_BINARY: &str = "runc";
/// Where containerd's own shim lets runc keep its state; `ctr` and people look there.
const DEFAULT_ROOT: &str = "/run/containerd/runc";
/// There while systemd is the node's init: so runc and libsystemd ask.
const SYSTEMD_RUNS: &str = "/run/systemd/system";
/// Where a bundle keeps the options its container was created with; `delete` gets none.
pub(super) const OPTIONS_FILE: &str = "options.json";
/// Where containerd's own shim looks for the OCI runtime's name, should its `delete` end a container of ours (trap 26).
const RUNTIME_FILE: &str = "runtime";

/// How the OCI runtime is to be called for the containers of a pod. `None` and `false` mean "not said".
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeOptions {
    /// The OCI runtime: a name to look up in `PATH`, or an absolute path.
    pub binary_name: Option<String>,
    /// The directory under which the runtime keeps its state, a directory for each namespace.
    pub root: Option<PathBuf>,
    /// Who creates the containers' cgroups; if neither says, the form of `cgroupsPath` and whether systemd runs decide.
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
    /// The `criu` the OCI runtime is to use. containerd 1.x has the field; in 2.x its number is reserved.
    pub criu_path: Option<PathBuf>,
    /// Where CRIU works during a restore; by default in the container's work directory.
    pub criu_work_path: Option<PathBuf>,
}

impl RuntimeOptions {
    /// These options with `over`'s laid on top. What `over` does not say stays as it is: runc's message cannot
    /// tell "false" from "not said", so it never unsets what a file sets (DESIGN §5).
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

    /// The OCI runtime's binary, runc if neither says.
    pub fn binary(&self) -> &Path {
        Path::new(self.binary_name.as_deref().unwrap_or(DEFAULT_BINARY))
    }

    /// The runtime to call for a container with this spec, with the defaults of containerd's own shim where
    /// nothing is said (CONTRACT §8).
    pub fn runtime(&self, reaper: Reaper, namespace: &str, spec: &Spec) -> Runtime {
        let driver = self.cgroup_driver_for(spec);
        Runtime::new(reaper, self.binary(), self.runtime_root(namespace), driver)
            .with_criu(self.criu_path.clone())
    }

    /// Who makes the cgroup of a container with this spec.
    pub fn cgroup_driver_for(&self, spec: &Spec) -> CgroupDriver {
        self.cgroup_driver.unwrap_or_else(|| driver_of(spec, Path::new(SYSTEMD_RUNS)))
    }

    /// The directory in which the runtime keeps a directory for each container of a namespace.
    pub fn runtime_root(&self, namespace: &str) -> PathBuf {
        self.root.as_deref().unwrap_or(Path::new(DEFAULT_ROOT)).join(namespace)
    }

    /// These options, with the OCI runtime of the pod's sandbox where they do not say which and how.
    ///
    /// containerd makes the sandbox with the options of its runtime. Those of a container may be a message of the
    /// task that replaces them and holds nothing but the owner of its stdio (trap 6).
    pub fn with_runtime_of(self, sandbox: &Self) -> Self {
        Self {
            binary_name: self.binary_name.or_else(|| sandbox.binary_name.clone()),
            root: self.root.or_else(|| sandbox.root.clone()),
            cgroup_driver: self.cgroup_driver.or(sandbox.cgroup_driver),
            ..self
        }
    }

    /// Records the options in a bundle, for `delete`, which must call the same runtime without a request that names it.
    ///
    /// # Errors
    ///
    /// The system's answer, with the path in [`OptionsError::Unwritable`].
    pub fn save(&self, bundle: &Bundle) -> Result<(), OptionsError> {
        let write = |name: &str, bytes: &[u8]| {
            let path = bundle.path().join(name);
            fs::write(&path, bytes).map_err(|source| OptionsError::Unwritable { path, source })
        };
        let options = serde_json::to_vec(&Stored::from(self)).map_err(|error| OptionsError::Unwritable {
            path: bundle.path().join(OPTIONS_FILE),
            source: error.into(),
        })?;
        write(OPTIONS_FILE, &options)?;
        write(RUNTIME_FILE, self.binary_name.as_deref().unwrap_or_default().as_bytes())
    }

    /// The options recorded in a bundle, none if none are. What a newer release has added to them is not looked at.
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

/// The form of `cgroupsPath` tells who makes the cgroup: `slice:prefix:name` is a systemd unit. Where systemd does not
/// run it is a path like any other, as to runc without `--systemd-cgroup`; crictl and critest send it there too.
pub(super) fn driver_of(spec: &Spec, systemd_runs: &Path) -> CgroupDriver {
    let path = spec.linux.as_ref().and_then(|linux| linux.cgroups_path.as_deref()).unwrap_or_default();
    if !path.starts_with('/') && path.split(':').count() == 3 && systemd_runs.is_dir() {
        CgroupDriver::Systemd
    } else {
        CgroupDriver::Cgroupfs
    }
}

/// The options as a file. Every field may be missing: a shim reads what the release before wrote.
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
