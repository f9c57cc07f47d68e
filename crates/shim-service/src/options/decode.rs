//! The runtime options of a request, from whichever of containerd's messages carries them (CONTRACT §1.7).
//!
//! Owns the decoding of `containerd.runc.v1.Options`, `containerd.linux.runc.CreateOptions` and `runtimeoptions.v1.Options`.
//! Reads one file, the one that `ConfigPath` names. Decides nothing of what the options are for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cgroups::CgroupDriver;
use protobuf::well_known_types::any::Any;

use super::config;
use super::error::OptionsError;
use super::fields::{Field, Value, fields, non_empty, non_zero};
use super::runtime::RuntimeOptions;

/// The largest options file that is read. Such a file is a few lines; a larger one is something else.
pub(super) const CONFIG_FILE_LIMIT: u64 = 64 * 1024;
/// Decodes the options of a request. No message, or one without a type, means no options.
///
/// # Errors
///
/// [`OptionsError`] for a message of another type, for bytes that are not that message, and for TOML
/// (inline or in the file `ConfigPath` names) that is not a list of known keys.
pub fn runtime_options(any: Option<&Any>) -> Result<RuntimeOptions, OptionsError> {
    let Some(any) = any else { return Ok(RuntimeOptions::default()) };
    // Go writes bare names; protobuf's own `pack` prefixes a host.
    let name = any.type_url.rsplit('/').next().unwrap_or_default();
    match name {
        "" if any.value.is_empty() => Ok(RuntimeOptions::default()),
        "containerd.runc.v1.Options" => Ok(from_runc_options(&fields(any)?)),
        "containerd.linux.runc.CreateOptions" => Ok(from_create_options(&fields(any)?)),
        "runtimeoptions.v1.Options" => from_generic_options(&fields(any)?),
        _ => Err(OptionsError::UnknownType { type_url: any.type_url.clone() }),
    }
}

/// `containerd.runc.v1.Options`, the same numbers in every containerd. The path of CRIU images and the
/// task API's address (10, 12, 13) are not used by containerd's own shim either.
fn from_runc_options(fields: &[Field]) -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    for field in fields {
        match (field.number, &field.value) {
            (1, Value::Number(n)) => options.no_pivot_root = *n != 0,
            (2, Value::Number(n)) => options.no_new_keyring = *n != 0,
            (3, Value::Text(text)) => options.shim_cgroup = non_empty(text),
            (4, Value::Number(n)) => options.io_uid = non_zero(*n),
            (5, Value::Number(n)) => options.io_gid = non_zero(*n),
            (6, Value::Text(text)) => options.binary_name = non_empty(text),
            (7, Value::Text(text)) => options.root = non_empty(text).map(PathBuf::from),
            (8, Value::Text(text)) => options.criu_path = non_empty(text).map(PathBuf::from),
            (9, Value::Number(n)) => options.cgroup_driver = (*n != 0).then_some(CgroupDriver::Systemd),
            (11, Value::Text(text)) => options.criu_work_path = non_empty(text).map(PathBuf::from),
            _ => {}
        }
    }
    options
}

/// `containerd.linux.runc.CreateOptions`: what clients of 1.6 and 1.7 send for runtimes whose name does
/// not begin with `io.containerd.runc` (CONTRACT §1.7).
fn from_create_options(fields: &[Field]) -> RuntimeOptions {
    let mut options = RuntimeOptions::default();
    for field in fields {
        match (field.number, &field.value) {
            (1, Value::Number(n)) => options.no_pivot_root = *n != 0,
            (8, Value::Number(n)) => options.no_new_keyring = *n != 0,
            (9, Value::Text(text)) => options.shim_cgroup = non_empty(text),
            (10, Value::Number(n)) => options.io_uid = non_zero(*n),
            (11, Value::Number(n)) => options.io_gid = non_zero(*n),
            (12, Value::Text(text)) => options.criu_work_path = non_empty(text).map(PathBuf::from),
            _ => {}
        }
    }
    options
}

/// `runtimeoptions.v1.Options`: what CRI sends for every runtime type but runc's own. 1.7 and later put the
/// options table into `config_body`; 1.6 drops unknown keys, so there only `ConfigPath` has an effect.
fn from_generic_options(fields: &[Field]) -> Result<RuntimeOptions, OptionsError> {
    let (mut path, mut body) = (None, None);
    for field in fields {
        match (field.number, &field.value) {
            (2, Value::Text(text)) => path = non_empty(text).map(PathBuf::from),
            (3, Value::Text(text)) => body = non_empty(text),
            _ => {}
        }
    }
    let from_file = match path {
        Some(path) => {
            let text = read_config(&path)
                .map_err(|source| OptionsError::Unreadable { path: path.clone(), source })?;
            config::parse(&text).map_err(|source| OptionsError::File { path, source })?
        }
        None => RuntimeOptions::default(),
    };
    match body {
        Some(body) => Ok(from_file.overlaid_with(config::parse(&body)?)),
        None => Ok(from_file),
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
