//! `hack/image`: the archive is an OCI layout of two programs, for each architecture, and the same programs give the same
//! bytes. tests/tests/operator/image.rs has containerd take it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A directory with two files in the place of the programs.
fn programs(directory: &Path, architecture: &str) -> PathBuf {
    let programs = directory.join(architecture);
    fs::create_dir_all(&programs).expect("a directory");
    for name in ["podshim", "containerd-shim-podshim-v2", "podshim-agent"] {
        fs::write(programs.join(name), format!("{name} for {architecture}")).expect("a program");
    }
    programs
}

#[allow(clippy::disallowed_methods, reason = "a test runs the script as its users do")]
fn run(program: impl AsRef<std::ffi::OsStr>, words: &[&str]) -> Output {
    Command::new(program).args(words).output().expect("it runs")
}

fn succeeds(program: impl AsRef<std::ffi::OsStr>, words: &[&str]) -> String {
    let output = run(program, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/image")
}

/// The archive of both architectures.
fn archive(directory: &Path, name: &str) -> PathBuf {
    let arch = |name: &str| format!("{name}={}", programs(directory, name).display());
    let output = directory.join(name);
    let words =
        ["--arch", &arch("amd64"), "--arch", &arch("arm64"), "--output", output.to_str().expect("UTF-8")];
    assert_eq!(succeeds(script(), &words).trim(), output.to_str().expect("UTF-8"));
    output
}

/// What a descriptor names, after its digest and size were compared.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().expect("a digest").strip_prefix("sha256:").expect("SHA-256");
    let path = layout.join("blobs/sha256").join(digest);
    assert_eq!(succeeds("sha256sum", &[path.to_str().expect("UTF-8")]).split(' ').next(), Some(digest));
    assert_eq!(descriptor["size"], fs::metadata(&path).expect("a blob").len(), "{descriptor}");
    path
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
}

#[test]
fn every_digest_is_right_and_each_image_has_two_programs() {
    let directory = tempfile::tempdir().expect("a directory");
    let archive = archive(directory.path(), "image.tar");
    let layout = directory.path().join("layout");
    fs::create_dir(&layout).expect("a directory");
    succeeds("tar", &["-C", layout.to_str().expect("UTF-8"), "-xf", archive.to_str().expect("UTF-8")]);
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let index = json(&layout.join("index.json"));
    let [named] = &index["manifests"].as_array().expect("a list")[..] else { panic!("{index}") };
    let version = env!("CARGO_PKG_VERSION");
    // No registry: who pushes the image names it.
    assert_eq!(named["annotations"]["io.containerd.image.name"], format!("podshim:{version}"));
    assert_eq!(named["annotations"]["org.opencontainers.image.ref.name"], version);
    let images = json(&blob(&layout, named));
    let images = images["manifests"].as_array().expect("a list");
    assert_eq!(images.len(), 2);
    let mut seen = 1;
    for (image, architecture) in images.iter().zip(["amd64", "arm64"]) {
        assert_eq!(image["platform"], serde_json::json!({"architecture": architecture, "os": "linux"}));
        let manifest = json(&blob(&layout, image));
        let config = json(&blob(&layout, &manifest["config"]));
        assert_eq!(config["architecture"], architecture);
        assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/podshim"]));
        let [layer] = &manifest["layers"].as_array().expect("a list")[..] else { panic!("{manifest}") };
        assert_eq!(config["rootfs"]["diff_ids"], serde_json::json!([layer["digest"]]));
        let layer = blob(&layout, layer);
        let listed = succeeds("tar", &["--numeric-owner", "-tvf", layer.to_str().expect("UTF-8")]);
        let files: Vec<Vec<_>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
        let names: Vec<_> = files.iter().map(|file| *file.last().expect("a name")).collect();
        assert_eq!(names, ["./", "./containerd-shim-podshim-v2", "./podshim"]);
        assert!(files.iter().all(|file| file[0].ends_with("rwxr-xr-x") && file[1] == "0/0"), "{listed}");
        let content = succeeds("tar", &["-xOf", layer.to_str().expect("UTF-8"), "./podshim"]);
        assert_eq!(content, format!("podshim for {architecture}"));
        seen += 3;
    }
    assert_eq!(
        fs::read_dir(layout.join("blobs/sha256")).expect("blobs").count(),
        seen,
        "no blob is left over"
    );
}

/// docs/agent.md: the agent's has the agent, and podshim for `kubectl podshim`.
#[test]
fn the_agents_image_has_two_programs() {
    let directory = tempfile::tempdir().expect("a directory");
    let programs = format!("amd64={}", programs(directory.path(), "amd64").display());
    let archive = directory.path().join("image.tar");
    let layout = directory.path().join("layout");
    fs::create_dir(&layout).expect("a directory");
    let [output, unpacked] = [&archive, &layout].map(|path| path.to_str().expect("UTF-8"));
    succeeds(script(), &["--agent", "--arch", &programs, "--output", output]);
    succeeds("tar", &["-C", unpacked, "-xf", output]);
    let named = json(&layout.join("index.json"))["manifests"][0].clone();
    let name = format!("podshim-agent:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(named["annotations"]["io.containerd.image.name"], name);
    let manifest = json(&blob(&layout, &json(&blob(&layout, &named))["manifests"][0]));
    let config = json(&blob(&layout, &manifest["config"]));
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/podshim-agent"]));
    let layer = blob(&layout, &manifest["layers"][0]);
    let listed = succeeds("tar", &["-tf", layer.to_str().expect("UTF-8")]);
    assert_eq!(listed, "./\n./podshim\n./podshim-agent\n");
}

#[test]
fn the_same_programs_give_the_same_bytes() {
    let (one, other) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
    let bytes = |directory: &Path, name: &str| fs::read(archive(directory, name)).expect("an archive");
    assert!(bytes(one.path(), "a.tar") == bytes(other.path(), "b.tar"));
}

#[test]
fn what_cannot_be_an_image_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let dynamic = programs(directory.path(), "dynamic");
    fs::copy("/bin/true", dynamic.join("podshim")).expect("a program");
    let empty = directory.path().join("empty");
    fs::create_dir(&empty).expect("a directory");
    for (words, reason) in [
        (vec!["--arch".to_owned(), format!("amd64={}", dynamic.display())], "is not a static program"),
        (
            vec!["--arch".to_owned(), format!("amd64={}", empty.display())],
            "has no containerd-shim-podshim-v2",
        ),
        (vec!["--arch".to_owned(), "riscv64".to_owned()], "is it amd64 or arm64?"),
        (vec!["--name".to_owned(), "podshim".to_owned()], "has no tag"),
    ] {
        let image = directory.path().join("image.tar");
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let words = [&["--output", image.to_str().expect("UTF-8")][..], &words].concat();
        let output = run(script(), &words);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && errors.contains(reason), "{words:?}: {errors}");
        assert!(!image.exists());
    }
}
