//! What can be wrong with runtime options. Owns the texts of these errors, which callers see.

use std::io;
use std::path::PathBuf;

use pod_spec::toml::TomlError;
use thiserror::Error;

/// The keys that have an effect, for the error about an unknown one.
const KEYS: &str = "BinaryName, Root, SystemdCgroup, NoPivotRoot, NoNewKeyring, ShimCgroup, IoUid, IoGid, \
                    CriuPath, CriuWorkPath";

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
    /// A message that is not one of containerd's messages with checkpoint options.
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

/// What is wrong in an options table.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// Not the syntax of such a table.
    #[error(transparent)]
    Toml(#[from] TomlError),
    /// A value of the wrong type.
    #[error("line {line}: {key} must be {expected}")]
    WrongType {
        /// Counted from 1.
        line: usize,
        /// The key.
        key: String,
        /// The type that it must have.
        expected: &'static str,
    },
    /// A key that no runtime option has.
    #[error("line {line}: unknown option {key}; known are {KEYS}")]
    UnknownKey {
        /// Counted from 1.
        line: usize,
        /// The key.
        key: String,
    },
}
