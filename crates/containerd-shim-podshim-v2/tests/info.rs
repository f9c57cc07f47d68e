//! `-info` as containerd 2.x calls it: no other flag, any working directory, options or nothing on stdin.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use common::{failed, finish, spawn};
use containerd_shim_protos::protobuf::Message;
use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::types::introspection::RuntimeInfo;

const FEATURES: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

fn ask(input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_containerd-shim-podshim-v2"));
    command.arg("-info").current_dir("/").env_remove("NAMESPACE");
    let mut child = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    child.stdin.take().unwrap().write_all(input).unwrap();
    finish(child)
}

fn answer(output: Output) -> RuntimeInfo {
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{}", output.status);
    RuntimeInfo::parse_from_bytes(&output.stdout).unwrap()
}

fn options(type_url: &str, value: impl Into<Vec<u8>>) -> Any {
    Any { type_url: type_url.to_owned(), value: value.into(), ..Any::default() }
}

/// `runtimeoptions.v1.Options` with this options table in its `config_body`.
fn table(body: &str) -> Any {
    let mut value = vec![3 << 3 | 2, u8::try_from(body.len()).unwrap()];
    value.extend_from_slice(body.as_bytes());
    options("runtimeoptions.v1.Options", value)
}

fn ask_with(options: &Any) -> RuntimeInfo {
    answer(ask(&options.write_to_bytes().unwrap()))
}

/// An OCI runtime that answers `features` with `text`.
fn fake_runtime(directory: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("runtime");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// CONTRACT M1: 2.3 calls it before its first Create. The features are those of the runtime that would be used.
#[test]
fn without_options_it_describes_runc() {
    let info = answer(ask(b""));
    assert_eq!(info.name, "io.containerd.podshim.v2");
    assert_eq!(info.version.version, env!("CARGO_PKG_VERSION"));
    assert!(info.options.is_none() && info.annotations.is_empty(), "{info:?}");
    assert_eq!(info.features.type_url, FEATURES);
    let answered: serde_json::Value = serde_json::from_slice(&info.features.value).unwrap();
    let runc =
        finish(spawn(Command::new("runc").arg("features").stdin(Stdio::null()).stdout(Stdio::piped())));
    let known: serde_json::Value = serde_json::from_slice(&runc.stdout).unwrap();
    assert_eq!(answered, known);
    // The kubelet needs these: recursive read-only mounts and user namespaces.
    assert!(answered["mountOptions"].as_array().unwrap().iter().any(|option| option == "rro"));
    assert!(answered["linux"]["namespaces"].as_array().unwrap().iter().any(|namespace| namespace == "user"));
}

/// Trap 6 (containerd issue 11169): `-info` describes the runtime that the options select.
#[test]
fn the_options_select_the_runtime_and_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = fake_runtime(&directory, r#"echo "{\"ociVersionMax\": \"$*\"}""#);
    let name = runtime.to_str().unwrap();
    let mut value = vec![6 << 3 | 2, u8::try_from(name.len()).unwrap()];
    value.extend_from_slice(name.as_bytes());
    for options in [
        options("containerd.runc.v1.Options", value),
        table(&format!("BinaryName = \"{name}\"\nRoot = \"/run/x\"")),
    ] {
        let info = ask_with(&options);
        assert_eq!(info.options.as_ref(), Some(&options));
        // Only `features`: `--root` has no use without a container, and upstream does not pass it.
        assert_eq!(info.features.value, br#"{"ociVersionMax":"features"}"#);
    }
}

/// youki, and crun before 1.8.6, have no such command; podshim works with them all the same.
#[test]
fn a_runtime_without_features_is_described_without() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = fake_runtime(&directory, "echo 'unknown command features' >&2; exit 1");
    let info = ask_with(&table(&format!("BinaryName = \"{}\"", runtime.display())));
    assert_eq!(info.name, "io.containerd.podshim.v2");
    assert!(info.features.is_none(), "{info:?}");
}

#[test]
fn what_cannot_be_answered_is_reported() {
    let missing = table("BinaryName = \"no-such-runtime\"").write_to_bytes().unwrap();
    let unknown = options("acme.Options", "x").write_to_bytes().unwrap();
    let misspelt = table("BinryName = \"runc\"").write_to_bytes().unwrap();
    for (input, message) in [
        (&missing[..], "cannot run the OCI runtime no-such-runtime: No such file or directory"),
        (&unknown, "runtime options of type \"acme.Options\" are not known"),
        (&misspelt, "runtime options in containerd's configuration: line 1: unknown option BinryName"),
        (b"\xff\xff\xff", "standard input is not a google.protobuf.Any with runtime options"),
    ] {
        let error = failed(ask(input));
        assert!(error.starts_with(message), "{error}");
    }
}
