//! The runtime options of a pod, from whichever of containerd's four messages carries them.
//!
//! Owns the decoding of `containerd.runc.v1.Options`, `containerd.linux.runc.CreateOptions`,
//! `runtimeoptions.v1.Options` and of none (CONTRACT §1.7), and the rule how two sets merge. Reads one file,
//! the one `ConfigPath` names; decides nothing about what the options are for.

pub(crate) mod checkpoint;
mod config;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use oci_runtime::bundle::Bundle;
use oci_runtime::reaper::Reaper;
use oci_runtime::runtime::Runtime;
use oci_runtime::spec::Spec;
use protobuf::well_known_types::any::Any;
use protobuf::well_known_types::empty::Empty;
use protobuf::{Message, UnknownValueRef};
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use config::ConfigError;
pub use oci_runtime::runtime::CgroupDriver;

/// A node's options file is a handful of lines; a larger one is something else.
const CONFIG_FILE_LIMIT: u64 = 64 * 1024;
/// What is called if neither the options nor the node's file name a runtime.
const DEFAULT_BINARY: &str = "runc";
/// Where containerd's own shim lets runc keep its state; `ctr` and people look there.
const DEFAULT_ROOT: &str = "/run/containerd/runc";
/// There while systemd is the node's init: so runc and libsystemd ask.
const SYSTEMD_RUNS: &str = "/run/systemd/system";
/// Where a bundle keeps the options its container was created with; `delete` gets none.
const OPTIONS_FILE: &str = "options.json";
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

/// Why runtime options could not be used.
#[derive(Debug, Error)]
pub enum OptionsError {
    /// A message that is not one of containerd's option messages.
    #[error(
        "runtime options of type {type_url:?} are not known; use containerd.runc.v1.Options, \
         containerd.linux.runc.CreateOptions or runtimeoptions.v1.Options"
    )]
    UnknownType {
        /// The type as containerd sent it.
        type_url: String,
    },
    /// A message that is not one of containerd's for checkpoints.
    #[error(
        "checkpoint options of type {type_url:?} are not known; use containerd.runc.v1.CheckpointOptions"
    )]
    UnknownCheckpointType {
        /// The type as containerd sent it.
        type_url: String,
    },
    /// The bytes are not the message they claim to be.
    #[error("runtime options of type {type_url:?} cannot be decoded: {source}")]
    Malformed {
        /// The type as containerd sent it.
        type_url: String,
        /// What protobuf says.
        source: protobuf::Error,
    },
    /// The options table of containerd's configuration is wrong.
    #[error("runtime options in containerd's configuration: {0}")]
    Config(#[from] ConfigError),
    /// The file that `ConfigPath` names is wrong.
    #[error("runtime options in {path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong in it.
        source: ConfigError,
    },
    /// The file that `ConfigPath` names cannot be read.
    #[error("cannot read the runtime options' ConfigPath {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The options that a bundle has recorded cannot be used.
    #[error("cannot read {path}: {source}", path = path.display())]
    Recorded {
        /// The file.
        path: PathBuf,
        /// The system's answer, or what is wrong in it.
        source: io::Error,
    },
    /// The options cannot be recorded in the bundle.
    #[error("cannot write {path}: {source}", path = path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
}

impl RuntimeOptions {
    /// Decodes the options of a request; no message, or one without a type, is no options.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] for a message of another type, for bytes that are not that message, and for TOML
    /// (inline or in the file `ConfigPath` names) that is not a list of known keys.
    pub fn from_any(any: Option<&Any>) -> Result<Self, OptionsError> {
        let Some(any) = any else { return Ok(Self::default()) };
        // Go writes bare names, protobuf's own `pack` puts a host before them.
        let name = any.type_url.rsplit('/').next().unwrap_or_default();
        match name {
            "" if any.value.is_empty() => Ok(Self::default()),
            "containerd.runc.v1.Options" => Ok(Self::from_runc_options(&fields(any)?)),
            "containerd.linux.runc.CreateOptions" => Ok(Self::from_create_options(&fields(any)?)),
            "runtimeoptions.v1.Options" => Self::from_generic_options(&fields(any)?),
            _ => Err(OptionsError::UnknownType { type_url: any.type_url.clone() }),
        }
    }

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

    /// `containerd.runc.v1.Options`, the same numbers in every containerd. The path of CRIU images and the
    /// task API's address (10, 12, 13) are not used by containerd's own shim either.
    fn from_runc_options(fields: &[Field]) -> Self {
        let mut options = Self::default();
        for field in fields {
            match (field.number, &field.value) {
                (1, Value::Number(n)) => options.no_pivot_root = *n != 0,
                (2, Value::Number(n)) => options.no_new_keyring = *n != 0,
                (3, Value::Text(text)) => options.shim_cgroup = said(text),
                (4, Value::Number(n)) => options.io_uid = said_id(*n),
                (5, Value::Number(n)) => options.io_gid = said_id(*n),
                (6, Value::Text(text)) => options.binary_name = said(text),
                (7, Value::Text(text)) => options.root = said(text).map(PathBuf::from),
                (8, Value::Text(text)) => options.criu_path = said(text).map(PathBuf::from),
                (9, Value::Number(n)) => options.cgroup_driver = (*n != 0).then_some(CgroupDriver::Systemd),
                (11, Value::Text(text)) => options.criu_work_path = said(text).map(PathBuf::from),
                _ => {}
            }
        }
        options
    }

    /// `containerd.linux.runc.CreateOptions`: what clients of 1.6 and 1.7 send for runtimes whose name does
    /// not begin with `io.containerd.runc` (CONTRACT §1.7).
    fn from_create_options(fields: &[Field]) -> Self {
        let mut options = Self::default();
        for field in fields {
            match (field.number, &field.value) {
                (1, Value::Number(n)) => options.no_pivot_root = *n != 0,
                (8, Value::Number(n)) => options.no_new_keyring = *n != 0,
                (9, Value::Text(text)) => options.shim_cgroup = said(text),
                (10, Value::Number(n)) => options.io_uid = said_id(*n),
                (11, Value::Number(n)) => options.io_gid = said_id(*n),
                (12, Value::Text(text)) => options.criu_work_path = said(text).map(PathBuf::from),
                _ => {}
            }
        }
        options
    }

    /// `runtimeoptions.v1.Options`: what CRI sends for every runtime type but runc's own. 1.7 and later put the
    /// options table into `config_body`; 1.6 drops unknown keys, so only `ConfigPath` can say anything there.
    fn from_generic_options(fields: &[Field]) -> Result<Self, OptionsError> {
        let (mut path, mut body) = (None, None);
        for field in fields {
            match (field.number, &field.value) {
                (2, Value::Text(text)) => path = said(text).map(PathBuf::from),
                (3, Value::Text(text)) => body = said(text),
                _ => {}
            }
        }
        let from_file = match path {
            Some(path) => {
                let text = read_config(&path)
                    .map_err(|source| OptionsError::Unreadable { path: path.clone(), source })?;
                config::parse(&text).map_err(|source| OptionsError::File { path, source })?
            }
            None => Self::default(),
        };
        match body {
            Some(body) => Ok(from_file.overlaid_with(config::parse(&body)?)),
            None => Ok(from_file),
        }
    }
}

/// The form of `cgroupsPath` tells who makes the cgroup: `slice:prefix:name` is a systemd unit. Where systemd does not
/// run it is a path like any other, as to runc without `--systemd-cgroup`; crictl and critest send it there too.
fn driver_of(spec: &Spec, systemd_runs: &Path) -> CgroupDriver {
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

/// Reads a configuration file, which must be a small regular file: a fifo here would hang the shim.
fn read_config(path: &Path) -> io::Result<String> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > CONFIG_FILE_LIMIT {
        return Err(io::Error::other(format!("larger than {CONFIG_FILE_LIMIT} bytes")));
    }
    fs::read_to_string(path)
}

/// One field of a message, whatever its type.
struct Field {
    number: u32,
    value: Value,
}

/// A field's value as far as the option messages use it.
enum Value {
    Number(u64),
    Text(String),
}

/// The fields of a message for which no type is generated: `Empty` knows none of them and keeps them all.
fn fields(any: &Any) -> Result<Vec<Field>, OptionsError> {
    let malformed = |source| OptionsError::Malformed { type_url: any.type_url.clone(), source };
    let message = Empty::parse_from_bytes(&any.value).map_err(malformed)?;
    let mut fields = Vec::new();
    for (number, value) in message.special_fields.unknown_fields().iter() {
        let value = match value {
            UnknownValueRef::Varint(n) => Value::Number(n),
            UnknownValueRef::LengthDelimited(bytes) => match String::from_utf8(bytes.to_vec()) {
                Ok(text) => Value::Text(text),
                Err(error) => return Err(malformed(io::Error::other(error).into())),
            },
            UnknownValueRef::Fixed32(_) | UnknownValueRef::Fixed64(_) => continue,
        };
        fields.push(Field { number, value });
    }
    Ok(fields)
}

/// proto3 does not send empty strings: one that arrives says nothing either.
fn said(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

/// User 0 is proto3's "not said" and the default anyway.
fn said_id(number: u64) -> Option<u32> {
    u32::try_from(number).ok().filter(|id| *id != 0)
}
