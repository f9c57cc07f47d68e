//! The options table of containerd's configuration, as it arrives inside `runtimeoptions.v1.Options`.
//!
//! Owns its keys. The syntax is `pod_spec::toml`'s, a part of TOML: containerd writes nothing else for runc's options.

use std::path::PathBuf;

use cgroups::CgroupDriver;
use pod_spec::toml::{Assignment, Switch, Value, assignments};

use super::error::ConfigError;
use super::runtime::RuntimeOptions;

/// Keys of runc's options that containerd's own shim ignores too. A table may set them.
const WITHOUT_EFFECT: [&str; 3] = ["CriuImagePath", "TaskApiAddress", "TaskApiVersion"];

/// Reads an options table.
///
/// # Errors
///
/// [`ConfigError`] for the first line that is not an option the shim knows.
pub(super) fn parse(text: &str) -> Result<RuntimeOptions, ConfigError> {
    let mut options = RuntimeOptions::default();
    for assignment in assignments(text) {
        apply(&assignment?, &mut options)?;
    }
    Ok(options)
}

fn apply(assignment: &Assignment<'_>, options: &mut RuntimeOptions) -> Result<(), ConfigError> {
    // Go's TOML libraries ignore the case of keys, and a table that works with runc's shim must work here.
    let is = |name: &str| assignment.key.eq_ignore_ascii_case(name);
    if is("BinaryName") {
        options.binary_name = text_of(assignment)?;
    } else if is("Root") {
        options.root = text_of(assignment)?.map(PathBuf::from);
    } else if is("SystemdCgroup") {
        options.cgroup_driver = Some(match switch_of(assignment)? {
            Switch::On => CgroupDriver::Systemd,
            Switch::Off => CgroupDriver::Cgroupfs,
        });
    } else if is("NoPivotRoot") {
        options.no_pivot_root = switch_of(assignment)? == Switch::On;
    } else if is("NoNewKeyring") {
        options.no_new_keyring = switch_of(assignment)? == Switch::On;
    } else if is("ShimCgroup") {
        options.shim_cgroup = text_of(assignment)?;
    } else if is("IoUid") {
        options.io_uid = Some(id_of(assignment)?);
    } else if is("IoGid") {
        options.io_gid = Some(id_of(assignment)?);
    } else if is("CriuPath") {
        options.criu_path = text_of(assignment)?.map(PathBuf::from);
    } else if is("CriuWorkPath") {
        options.criu_work_path = text_of(assignment)?.map(PathBuf::from);
    } else if !WITHOUT_EFFECT.iter().any(|name| is(name)) {
        return Err(ConfigError::UnknownKey { line: assignment.line, key: assignment.key.to_owned() });
    }
    Ok(())
}

/// An empty string means "not set", as in runc's message.
fn text_of(assignment: &Assignment<'_>) -> Result<Option<String>, ConfigError> {
    match &assignment.value {
        Value::Text(text) => Ok((!text.is_empty()).then(|| text.clone())),
        _ => Err(wrong_type(assignment, "a string in quotes")),
    }
}

fn switch_of(assignment: &Assignment<'_>) -> Result<Switch, ConfigError> {
    match assignment.value {
        Value::Switch(switch) => Ok(switch),
        _ => Err(wrong_type(assignment, "true or false")),
    }
}

fn id_of(assignment: &Assignment<'_>) -> Result<u32, ConfigError> {
    match assignment.value {
        Value::Number(number) => {
            u32::try_from(number).map_err(|_| wrong_type(assignment, "a number from 0 to 4294967295"))
        }
        _ => Err(wrong_type(assignment, "a number")),
    }
}

fn wrong_type(assignment: &Assignment<'_>, expected: &'static str) -> ConfigError {
    ConfigError::WrongType { line: assignment.line, key: assignment.key.to_owned(), expected }
}
