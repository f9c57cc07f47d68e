//! The configurations of the tests' own containerds (`hack/lib/config.sh`), for the runtimes that tests rely on.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml_edit::{DocumentMut, Item};

fn hack() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack")
}

/// The runtimes that `containerd_config` writes, and the names of all of them.
fn runtimes(version: &str, default: &str, oci_runtime: &str, handler: Option<&str>) -> Item {
    let directory = tempfile::tempdir().expect("a directory");
    let write = |name: &str, text: &str| fs::write(directory.path().join(name), text).expect("a file");
    for (name, text) in [
        ("containerd-version", version),
        ("bin", "/bin"),
        ("cgroup-driver", "systemd"),
        ("oci-runtime", oci_runtime),
        ("oci-runtime-path", "/usr/bin/crun"),
    ] {
        write(name, text);
    }
    handler.iter().for_each(|handler| write("handler", handler));
    let call = format!("source {}/lib/config.sh && containerd_config \"$0\" {default}", hack().display());
    #[allow(clippy::disallowed_methods, reason = "a test runs the script as its users do")]
    let output = Command::new("bash").args(["-euc", &call]).arg(directory.path()).output().expect("bash");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let document: DocumentMut = text.parse().unwrap_or_else(|error| panic!("{error}:\n{text}"));
    let plugin = if version == "2.1" { "io.containerd.cri.v1.runtime" } else { "io.containerd.grpc.v1.cri" };
    document["plugins"][plugin]["containerd"]["runtimes"].clone()
}

/// The keys and values of one runtime, without the places in the file that they have.
fn table(runtimes: &Item, name: &str) -> Vec<String> {
    let mut lines = Vec::new();
    lines_of(&mut lines, "", &runtimes[name]);
    assert!(!lines.is_empty(), "no {name}");
    lines
}

fn lines_of(lines: &mut Vec<String>, key: &str, item: &Item) {
    if let Some(table) = item.as_table_like() {
        table.iter().for_each(|(own, item)| lines_of(lines, &format!("{key}.{own}"), item));
    } else if let Some(array) = item.as_array() {
        let texts: Vec<_> = array.iter().map(|value| value.as_str().expect("a text")).collect();
        lines.push(format!("{key}={texts:?}"));
    } else {
        lines.push(format!("{key}={:?} {:?}", item.as_str(), item.as_bool()));
    }
}

/// Kubernetes' own specs of RuntimeClass use the handler `test-handler`: hack/conformance gives the default runtime that name too.
#[test]
fn the_default_runtime_has_the_name_that_kubernetes_tests_use() {
    for version in ["1.6", "1.7", "2.1"] {
        for default in ["runc", "podshim"] {
            for oci_runtime in ["runc", "crun"] {
                let all = runtimes(version, default, oci_runtime, Some("test-handler"));
                assert_eq!(table(&all, "test-handler"), table(&all, default), "{version} {default}");
                let plain = runtimes(version, default, oci_runtime, None);
                assert!(plain.get("test-handler").is_none(), "{version} {default}");
                assert_eq!(table(&plain, "podshim").len(), table(&all, "podshim").len());
            }
        }
    }
    let script = fs::read_to_string(hack().join("conformance")).expect("the script");
    assert!(script.contains("--handler test-handler"));
    let skip = fs::read_to_string(hack().join("conformance.d/skip")).expect("the list");
    assert!(!skip.contains("RuntimeClass"), "{skip}");
}
