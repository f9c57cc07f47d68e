//! The four messages as containerd sends them, byte for byte, and the merge rule.

use std::path::Path;

use oci_runtime::bundle::Bundle;
use oci_runtime::runtime::CallEnvironment;
use oci_runtime::spec::Spec;
use protobuf::well_known_types::any::Any;

use super::decode::CONFIG_FILE_LIMIT;
use super::runtime::{OPTIONS_FILE, driver_of};
use super::*;

fn any(type_url: &str, value: &[u8]) -> Any {
    Any { type_url: type_url.to_owned(), value: value.to_vec(), ..Any::default() }
}

/// A length-delimited field; its length always as a varint of two bytes.
fn text_field(number: u8, text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len() >> 7).expect("short");
    let mut bytes = vec![number << 3 | 2, 0x80 | (text.len() & 0x7f) as u8, length];
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

fn generic(body: &str) -> Result<RuntimeOptions, OptionsError> {
    runtime_options(Some(&any("runtimeoptions.v1.Options", &text_field(3, body))))
}

#[test]
fn no_message_is_no_options() {
    assert_eq!(runtime_options(None).unwrap(), RuntimeOptions::default());
    assert_eq!(runtime_options(Some(&Any::default())).unwrap(), RuntimeOptions::default());
}

#[test]
fn runc_alone_and_without_hooks_is_called_as_a_brief_go_program() {
    for (binary, spec, expected) in [
        (None, "{}", CallEnvironment::BriefGoProgram),
        (Some("/opt/runc"), "{}", CallEnvironment::BriefGoProgram),
        (Some("crun"), "{}", CallEnvironment::Shims),
        (Some("nvidia-container-runtime"), "{}", CallEnvironment::Shims),
        (None, r#"{"hooks": {"createRuntime": [{"path": "/bin/true"}]}}"#, CallEnvironment::Shims),
    ] {
        let options = RuntimeOptions { binary_name: binary.map(str::to_owned), ..RuntimeOptions::default() };
        assert_eq!(
            options.call_environment(&serde_json::from_str::<Spec>(spec).unwrap()),
            expected,
            "{binary:?}"
        );
    }
}

/// The bytes of `ctr run --runc-binary crun --runc-root /run/x --runc-systemd-cgroup --no-pivot`.
#[test]
fn runc_options_as_recorded() {
    let recorded = b"\x08\x01\x32\x04crun\x3a\x06/run/x\x48\x01";
    let options = runtime_options(Some(&any("containerd.runc.v1.Options", recorded))).unwrap();
    assert_eq!(
        options,
        RuntimeOptions {
            binary_name: Some("crun".into()),
            root: Some("/run/x".into()),
            cgroup_driver: Some(CgroupDriver::Systemd),
            no_pivot_root: true,
            ..RuntimeOptions::default()
        }
    );
}

#[test]
fn runc_options_every_field() {
    let bytes = b"\x10\x01\x1a\x06/shims\x20\xe8\x07\x28\xe9\x07\x42\x04criu\x52\x02/i\x5a\x02/w";
    let options = runtime_options(Some(&any("containerd.runc.v1.Options", bytes))).unwrap();
    assert_eq!(
        options,
        RuntimeOptions {
            no_new_keyring: true,
            shim_cgroup: Some("/shims".into()),
            io_uid: Some(1000),
            io_gid: Some(1001),
            criu_path: Some("criu".into()),
            criu_work_path: Some("/w".into()),
            ..RuntimeOptions::default()
        }
    );
}

/// CONTRACT §1.7: `ctr run --no-pivot` of 1.6 and 1.7 for a runtime that is not called runc.
#[test]
fn create_options_as_recorded() {
    let url = "containerd.linux.runc.CreateOptions";
    let options = runtime_options(Some(&any(url, b"\x08\x01"))).unwrap();
    assert_eq!(options, RuntimeOptions { no_pivot_root: true, ..RuntimeOptions::default() });
    // Fields 6 and 7 are other things here than in runc's message.
    let bytes = b"\x32\x03net\x3a\x04none\x40\x01\x4a\x02/s\x50\x05\x58\x06\x62\x02/w";
    let options = runtime_options(Some(&any(url, bytes))).unwrap();
    assert_eq!(
        options,
        RuntimeOptions {
            no_new_keyring: true,
            shim_cgroup: Some("/s".into()),
            io_uid: Some(5),
            io_gid: Some(6),
            criu_work_path: Some("/w".into()),
            ..RuntimeOptions::default()
        }
    );
}

/// Trap 5: a custom runtime type gets TOML, not runc's message.
#[test]
fn config_body_is_toml() {
    let options = generic(
        "  BinaryName = \"/usr/bin/cr\\\"un\" # the \"fast\" one\n\n# a comment\nSystemdCgroup = true\n\
         Root = '/run/x'\nIoUid = 1_000\nioGid=0\nNoPivotRoot = false\nCriuPath = \"criu\"\n",
    )
    .unwrap();
    assert_eq!(
        options,
        RuntimeOptions {
            binary_name: Some("/usr/bin/cr\"un".into()),
            root: Some("/run/x".into()),
            cgroup_driver: Some(CgroupDriver::Systemd),
            io_uid: Some(1000),
            io_gid: Some(0),
            criu_path: Some("criu".into()),
            ..RuntimeOptions::default()
        }
    );
}

#[test]
fn config_body_errors_name_the_line_and_the_key() {
    for (body, message) in [
        ("\nSystemdCgroups = true", "line 2: unknown option SystemdCgroups; known are BinaryName, Root,"),
        ("SystemdCgroup = \"true\"", "line 1: SystemdCgroup must be true or false"),
        ("BinaryName = crun", "line 1: BinaryName: cannot read crun: a string in quotes"),
        ("BinaryName = \"crun", "line 1: BinaryName: cannot read \"crun: a string in quotes"),
        ("BinaryName = \"crun\" x", "line 1: BinaryName: cannot read \"crun\" x"),
        ("BinaryName = ", "line 1: BinaryName: cannot read "),
        ("Root = 3", "line 1: Root must be a string in quotes"),
        ("IoUid = -1", "line 1: IoUid must be a number from 0 to 4294967295"),
        ("[options]\nRoot = \"/x\"", "line 1: expected `Key = value`, found \"[options]\""),
        ("Root", "line 1: expected `Key = value`, found \"Root\""),
    ] {
        let error = generic(body).unwrap_err().to_string();
        let expected = format!("runtime options in containerd's configuration: {message}");
        assert!(error.starts_with(&expected), "{body:?} gave {error:?}");
    }
}

/// 1.6 drops the table and keeps `ConfigPath`; the table wins where a newer containerd sends both.
#[test]
fn config_path_is_read_and_the_body_is_laid_over_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runtime.toml");
    std::fs::write(&path, "BinaryName = \"crun\"\nSystemdCgroup = true\n").unwrap();
    let mut bytes = text_field(1, "ignored");
    bytes.extend(text_field(2, path.to_str().unwrap()));
    bytes.extend(text_field(3, "SystemdCgroup = false"));
    let options = runtime_options(Some(&any("runtimeoptions.v1.Options", &bytes))).unwrap();
    assert_eq!(options.binary_name.as_deref(), Some("crun"));
    assert_eq!(options.cgroup_driver, Some(CgroupDriver::Cgroupfs));
}

#[test]
fn config_path_errors_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| {
        runtime_options(Some(&any("runtimeoptions.v1.Options", &text_field(2, path))))
            .unwrap_err()
            .to_string()
    };
    assert!(at("/no/such.toml").starts_with("cannot read the runtime options' ConfigPath /no/such.toml:"));
    assert!(at(dir.path().to_str().unwrap()).ends_with("not a regular file"));
    let large = dir.path().join("large.toml");
    std::fs::write(&large, "#".repeat(CONFIG_FILE_LIMIT as usize + 1)).unwrap();
    assert!(at(large.to_str().unwrap()).ends_with("larger than 65536 bytes"));
    let path = dir.path().join("r.toml");
    std::fs::write(&path, "Rot = \"/\"").unwrap();
    let error = at(path.to_str().unwrap());
    assert!(error.starts_with(&format!("runtime options in {}: line 1: unknown option Rot", path.display())));
}

#[test]
fn other_types_are_named() {
    let error = runtime_options(Some(&any("acme.io/acme.v1.Options", b""))).unwrap_err();
    assert!(
        error.to_string().starts_with("runtime options of type \"acme.io/acme.v1.Options\" are not known")
    );
    let error = runtime_options(Some(&any("containerd.runc.v1.Options", b"\x32\x7f"))).unwrap_err();
    assert!(matches!(error, OptionsError::Malformed { .. }), "{error}");
}

#[test]
fn a_host_before_the_type_does_not_matter() {
    let url = "type.googleapis.com/containerd.runc.v1.Options";
    assert!(runtime_options(Some(&any(url, b"\x08\x01"))).unwrap().no_pivot_root);
}

/// DESIGN §5: runc's message cannot say "no", so it never unsets what a file sets.
#[test]
fn what_the_upper_options_do_not_say_stays() {
    let file = RuntimeOptions {
        binary_name: Some("crun".into()),
        cgroup_driver: Some(CgroupDriver::Systemd),
        no_pivot_root: true,
        ..RuntimeOptions::default()
    };
    let merged = file.clone().overlaid_with(RuntimeOptions::default());
    assert_eq!(merged, file);
    let merged = file.overlaid_with(RuntimeOptions {
        binary_name: Some("runc".into()),
        no_new_keyring: true,
        ..RuntimeOptions::default()
    });
    assert_eq!(merged.binary_name.as_deref(), Some("runc"));
    assert_eq!(merged.cgroup_driver, Some(CgroupDriver::Systemd));
    assert!(merged.no_pivot_root && merged.no_new_keyring);
}

/// Trap 6: a container's options may name nothing but the owner of its stdio; its pod's runtime is the sandbox's.
#[test]
fn a_container_uses_the_runtime_of_its_sandbox() {
    let sandbox = RuntimeOptions {
        binary_name: Some("crun".into()),
        root: Some("/run/x".into()),
        cgroup_driver: Some(CgroupDriver::Systemd),
        no_pivot_root: true,
        ..RuntimeOptions::default()
    };
    let owner = RuntimeOptions { io_uid: Some(7), ..RuntimeOptions::default() };
    let expected = RuntimeOptions { no_pivot_root: false, io_uid: Some(7), ..sandbox.clone() };
    assert_eq!(owner.with_runtime_of(&sandbox), expected);
    let own = RuntimeOptions { binary_name: Some("runc".into()), ..RuntimeOptions::default() };
    assert_eq!(own.with_runtime_of(&sandbox).binary_name.as_deref(), Some("runc"));
}

/// `delete` calls the runtime the container was created with, although no request names it.
#[test]
fn a_bundle_keeps_the_options() {
    let dir = tempfile::tempdir().unwrap();
    let bundle = Bundle::new(dir.path());
    assert_eq!(RuntimeOptions::load(&bundle).unwrap(), RuntimeOptions::default());
    let options = RuntimeOptions {
        binary_name: Some("crun".into()),
        root: Some("/run/x".into()),
        cgroup_driver: Some(CgroupDriver::Cgroupfs),
        no_pivot_root: true,
        io_uid: Some(7),
        ..RuntimeOptions::default()
    };
    options.save(&bundle).unwrap();
    assert_eq!(RuntimeOptions::load(&bundle).unwrap(), options);
    assert_eq!(options.runtime_root("k8s.io"), Path::new("/run/x/k8s.io"));
    // A file of another release: unknown and missing fields.
    std::fs::write(dir.path().join(OPTIONS_FILE), r#"{"binary_name":"runc","new":1}"#).unwrap();
    assert_eq!(RuntimeOptions::load(&bundle).unwrap().binary_name.as_deref(), Some("runc"));
    std::fs::write(dir.path().join(OPTIONS_FILE), r#"{"binary_name":{"name":"runc"}}"#).unwrap();
    let error = RuntimeOptions::load(&bundle).unwrap_err().to_string();
    assert!(error.contains("options.json: invalid type: map, expected a string"), "{error}");
    // What cannot be read is no file that is missing: `delete` would call another runtime than the pod's.
    std::fs::remove_file(dir.path().join(OPTIONS_FILE)).unwrap();
    std::fs::create_dir(dir.path().join(OPTIONS_FILE)).unwrap();
    let error = RuntimeOptions::load(&bundle).unwrap_err().to_string();
    assert!(error.contains("options.json: Is a directory"), "{error}");
}

/// DESIGN §5: if nothing names the cgroup driver, the form of `cgroupsPath` does; where systemd does not run it is a path.
#[test]
fn the_cgroup_path_names_the_driver() {
    let systemd_runs = tempfile::tempdir().unwrap();
    let does_not_run = systemd_runs.path().join("none");
    for (path, driver) in [
        ("kubepods-besteffort.slice:cri-containerd:abc", CgroupDriver::Systemd),
        ("/kubepods/besteffort/abc", CgroupDriver::Cgroupfs),
        ("/a:b:c", CgroupDriver::Cgroupfs),
        ("", CgroupDriver::Cgroupfs),
    ] {
        let spec = Spec {
            linux: Some(oci_runtime::spec::Linux { cgroups_path: Some(path.into()), ..Default::default() }),
            ..Spec::default()
        };
        assert_eq!(driver_of(&spec, systemd_runs.path()), driver, "{path}");
        assert_eq!(driver_of(&spec, &does_not_run), CgroupDriver::Cgroupfs, "{path}");
        // A driver that is named counts on any node.
        for driver in [CgroupDriver::Systemd, CgroupDriver::Cgroupfs] {
            let options = RuntimeOptions { cgroup_driver: Some(driver), ..RuntimeOptions::default() };
            assert_eq!(options.cgroup_driver_for(&spec), driver, "{path}");
        }
    }
}
