//! `hack/release`: what it packs is the commit, whatever the work tree has, and the same whatever the caller's environment is.
//! The repository is made for the test: the real scripts that pack, and stand-ins for what builds.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The scripts that are as in this repository.
const REAL: [&str; 10] = [
    "hack/release",
    "hack/deb",
    "hack/rpm",
    "hack/sysext",
    "hack/image",
    "hack/lib/common.sh",
    "hack/lib/package.sh",
    "hack/lib/oci.sh",
    "hack/lib/pack-release",
    "hack/lib/releases.sh",
];

/// A file of each directory that is for a cluster.
const FOR_CLUSTERS: [&str; 3] =
    ["dist/kubernetes/base/a.yaml", "dist/monitoring/alerts.yaml", "dist/policy/policy.yaml"];

/// The programs of the checkout say what its file `source` says. The command installs as the real one does: directories get
/// the modes that the umask leaves. It says what the compiler would get of the environment, too.
const BUILD: &str = r#"#!/usr/bin/env bash
set -euo pipefail
source "$(dirname "$0")/lib/common.sh"
bin=$TARGET/node-${2:-native}
mkdir -p "$bin"
cat >"$bin/podshim" <<'END'
#!/bin/sh
[ "$1" = install ] || exit 1
mkdir -p "$3/etc" "$3/usr/bin" "$3/usr/share/podshim"
echo text >"$3/usr/share/podshim/page"
END
sed 's/^/# /' "$ROOT/source" >>"$bin/podshim"
flags="${RUSTFLAGS:-} ${CARGO_ENCODED_RUSTFLAGS:-} ${CARGO_BUILD_RUSTFLAGS:-} ${RUSTC_WRAPPER:-} ${CARGO_PROFILE_RELEASE_DEBUG:-}"
sed 's/^/# compiled:/' <<<"$flags" >>"$bin/podshim"
cp "$ROOT/source" "$bin/containerd-shim-podshim-v2"
chmod 755 "$bin"/*
echo "$bin"
"#;

/// Stands for cargo, rpmbuild and mksquashfs: their package is a list of the files with their modes, and what the tool sees of the caller.
const LIST: &str = r#"list() { (cd "$1" && find . -printf '%M %p\n' | sort && cat usr/bin/*); }
seen() { umask; date +%Z; ls -A ~; echo "${LC_ALL:-} ${TAR_OPTIONS:-}"; }
"#;
const CARGO: &str = r#"case $1 in
metadata) echo '{"packages": [], "resolve": {"nodes": []}}' ;;
deb) while [ "$1" != --output ]; do shift; done; { list target/package; umask; date +%Z; echo "${LC_ALL:-}"; } >"$2" ;;
esac
"#;
const MKSQUASHFS: &str = r#"{ list "$1"; umask; date +%Z; echo "${LC_ALL:-} $SOURCE_DATE_EPOCH"; } >"$2"
"#;
const RPMBUILD: &str = r#"for word; do
    case $word in
    "_topdir "*) top=${word#_topdir } ;;
    "stage "*) stage=${word#stage } ;;
    *-linux) machine=${word%-linux} ;;
    esac
done
mkdir -p "$top/RPMS/$machine"
{ list "$stage"; seen; } >"$top/RPMS/$machine/podshim-1.rpm"
"#;

struct Repository {
    directory: tempfile::TempDir,
}

impl Repository {
    fn new() -> Self {
        let repository = Self { directory: tempfile::tempdir().expect("a directory") };
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in REAL {
            let text = fs::read_to_string(own.join(name)).unwrap_or_default();
            repository.script(&format!("work/{name}"), &text);
        }
        let filter = fs::read_to_string(own.join("hack/lib/spdx.jq")).expect("the filter");
        repository.write("work/hack/lib/spdx.jq", &filter);
        repository.script("work/hack/build", BUILD);
        repository.script("work/hack/setup", "#!/bin/sh\n");
        repository.script("work/hack/lib/try-programs", "#!/bin/sh\n");
        repository.write("work/hack/lib/emulate.sh", "emulated() { shift && \"$@\"; }\n");
        repository.write("work/Cargo.toml", "[workspace.package]\nversion = \"1.2.3\"\n\n");
        repository.write("work/source", "the commit's program\n");
        for name in ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE", "docs/page.md"]
            .into_iter()
            .chain(FOR_CLUSTERS)
            .chain(["dist/debian/lintian-overrides", "dist/debian/license"])
        {
            repository.write(&format!("work/{name}"), "the commit's\n");
        }
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"00\"\n";
        repository.write("work/Cargo.lock", lock);
        repository.write("work/.gitignore", "target\n");
        for (name, text) in
            [("cargo", CARGO), ("rpmbuild", RPMBUILD), ("mksquashfs", MKSQUASHFS), ("rustc", "echo /rust\n")]
        {
            repository
                .script(&format!("tools/{name}"), &format!("#!/usr/bin/env bash\nset -eu\n{LIST}{text}"));
        }
        for words in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "--message=one"]] {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@example", "-C"];
            let work = repository.at("work");
            let git = [&identity[..], &[work.to_str().expect("UTF-8")], words].concat();
            #[allow(clippy::disallowed_methods, reason = "a test runs git as users do")]
            let output = Command::new("git").args(git).output().expect("git");
            assert!(output.status.success(), "{}", printed(&output));
        }
        repository
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().expect("a directory")).expect("a directory");
        fs::write(self.at(path), text).expect("a file");
    }

    fn script(&self, path: &str, text: &str) {
        self.write(path, text);
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    /// Makes a release with this umask and environment; the directory of its files.
    fn release(&self, name: &str, umask: &str, environment: &[(&str, &str)], more: &str) -> PathBuf {
        let output = self.at(name);
        let call = format!("umask {umask} && hack/release --output {} {more}", output.display());
        self.runs(&call, environment);
        output
    }

    /// Runs this in the work tree, as a user with this environment does.
    #[allow(clippy::disallowed_methods, reason = "a test runs the script as its users do")]
    fn runs(&self, call: &str, environment: &[(&str, &str)]) {
        let path = format!("{}:{}", self.at("tools").display(), std::env::var("PATH").expect("a PATH"));
        let mut command = Command::new("bash");
        command.args(["-c", call]).current_dir(self.at("work")).env("PATH", path);
        command.env_remove("CARGO_TARGET_DIR").env("HOME", self.at("")).envs(environment.iter().copied());
        let ran = command.output().expect("bash");
        assert!(ran.status.success(), "{}", printed(&ran));
    }
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// All files of an archive in one text.
#[allow(clippy::disallowed_methods, reason = "a test looks into the archive as users do")]
fn content(archive: &Path) -> String {
    let output = Command::new("tar").arg("-xOf").arg(archive).output().expect("tar");
    assert!(output.status.success(), "{}", printed(&output));
    printed(&output)
}

/// Programs, pages and scripts that are changed and not committed, and a file that no commit has.
#[test]
fn what_is_packed_is_the_commit() {
    let repository = Repository::new();
    repository.write("work/source", "the work tree's program\n");
    repository.write("work/README.md", "the work tree's\n");
    repository.write("work/docs/new.md", "the work tree's\n");
    let packing = fs::read_to_string(repository.at("work/hack/lib/package.sh")).expect("the script");
    let edited =
        packing.replace("install -m 755", "echo \"# the work tree's\" >>\"$bin/podshim\"; install -m 755");
    assert_ne!(packing, edited);
    repository.write("work/hack/lib/package.sh", &edited);
    let files = repository.release("out", "022", &[], "");
    let mut seen = 0;
    for entry in fs::read_dir(&files).expect("files") {
        let path = entry.expect("an entry").path();
        let text = match path.to_str().expect("UTF-8") {
            name if name.ends_with(".tar.gz") => content(&path),
            _ => String::from_utf8_lossy(&fs::read(&path).expect("a file")).into_owned(),
        };
        assert!(!text.contains("the work tree's"), "{}: {text}", path.display());
        seen += usize::from(text.contains("the commit's program"));
    }
    assert_eq!(seen, 9, "two tarballs, two of each package and of the image for systemd-sysext, one image");
}

/// The names of the files in an archive, or in the list that stands for a package.
#[allow(clippy::disallowed_methods, reason = "a test looks into the archive as users do")]
fn names(file: &Path) -> String {
    if !file.to_string_lossy().ends_with(".tar.gz") {
        return fs::read_to_string(file).expect("a list");
    }
    let output = Command::new("tar").arg("-tf").arg(file).output().expect("tar");
    assert!(output.status.success(), "{}", printed(&output));
    printed(&output)
}

/// A node that has only a package or the tarball has what a cluster needs too, and every page.
#[test]
fn found_n13_each_file_for_a_node_has_the_manifests_and_the_pages() {
    let repository = Repository::new();
    let mut seen = 0;
    for entry in fs::read_dir(repository.release("out", "022", &[], "")).expect("files") {
        let path = entry.expect("an entry").path();
        let is_for_a_node =
            [".tar.gz", ".deb", ".rpm"].iter().any(|end| path.to_string_lossy().ends_with(end));
        if !is_for_a_node {
            continue;
        }
        let names = names(&path);
        let manifests = FOR_CLUSTERS.map(|name| name.replace("dist/", "share/podshim/"));
        let pages = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/page.md"].map(str::to_owned);
        for wanted in manifests.iter().chain(&pages) {
            assert!(names.contains(wanted.as_str()), "{} lacks {wanted}:\n{names}", path.display());
        }
        seen += 1;
    }
    assert_eq!(seen, 6);
}

/// Each link of the pages leads to a file that is packed with them. In Debian's package the text of the license is elsewhere.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test runs the script as its users do")]
fn found_n13_the_packed_pages_link_to_packed_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let call = "source hack/lib/common.sh && source hack/lib/package.sh && pages \"$0\"";
    let output = Command::new("bash").args(["-euc", call]).arg(directory.path()).current_dir(&own).output();
    let output = output.expect("bash");
    assert!(output.status.success(), "{}", printed(&output));
    let (mut unread, mut links) = (vec![directory.path().to_owned()], 0);
    while let Some(folder) = unread.pop() {
        for path in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if path.is_dir() {
                unread.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                let text = fs::read_to_string(&path).expect("a page");
                for link in text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
                    let is_file =
                        !link.is_empty() && !link.contains("://") && !link.contains(char::is_whitespace);
                    if is_file {
                        assert!(path.with_file_name("").join(link).exists(), "{}: no {link}", path.display());
                        links += 1;
                    }
                }
            }
        }
    }
    assert!(links > 100, "only {links} links");
    let deb = fs::read_to_string(own.join("hack/deb")).expect("the script");
    assert!(deb.contains("rm \"$doc/pages/LICENSE\"\nsed -i 's|](LICENSE)|](../copyright)|'"), "{deb}");
}

/// What the compiler takes from a caller's environment.
const COMPILER: [(&str, &str); 5] = [
    ("RUSTFLAGS", "-C target-cpu=native"),
    ("CARGO_ENCODED_RUSTFLAGS", "-Cencoded"),
    ("CARGO_BUILD_RUSTFLAGS", "-Cbuild"),
    ("RUSTC_WRAPPER", "a-wrapper"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "a-profile"),
];

/// `hack/deb`, `hack/rpm`, `hack/sysext` and `hack/image`, called by hand: nothing of the caller's flags is in the programs.
#[test]
fn the_callers_compiler_flags_are_in_no_package() {
    let repository = Repository::new();
    for package in ["deb", "rpm", "sysext", "image"] {
        let made = |name: &str, environment: &[(&str, &str)]| {
            let output = repository.at(name);
            repository.runs(&format!("hack/{package} --output {}", output.display()), environment);
            String::from_utf8_lossy(&fs::read(output).expect("the package")).into_owned()
        };
        let plain = made("plain", &[]);
        assert!(plain.contains("the commit's program") && plain.contains("# compiled:"), "{plain}");
        assert_eq!(made("other", &COMPILER), plain, "{package}");
    }
}

/// The same commit with other settings of the caller gives the same bytes.
#[test]
fn the_callers_environment_does_not_get_in() {
    let repository = Repository::new();
    let plain = repository.release("plain", "022", &[], "--twice");
    repository.write("other/.rpmmacros", "%_binary_payload w1.gzdio\n");
    repository.write("other/.gitconfig", "[tar]\n\tumask = 0077\n[core]\n\tautocrlf = true\n");
    let home = repository.at("other").to_str().expect("UTF-8").to_owned();
    let environment = [
        ("HOME", home.as_str()),
        ("LC_ALL", "C.UTF-8"),
        ("LANG", "C.UTF-8"),
        ("TZ", "Asia/Tokyo"),
        ("TAR_OPTIONS", "--format=pax"),
    ];
    let other = repository.release("another", "077", &[&environment[..], &COMPILER].concat(), "");
    for entry in fs::read_dir(&plain).expect("files") {
        let name = entry.expect("an entry").file_name();
        let text = |directory: &Path| fs::read(directory.join(&name)).expect("a file");
        let shown = || String::from_utf8_lossy(&text(&other)).into_owned();
        assert!(text(&plain) == text(&other), "{}: {}", name.to_string_lossy(), shown());
    }
    assert_eq!(fs::read_dir(&plain).expect("files").count(), fs::read_dir(&other).expect("files").count());
}

/// The programs name no directory of the machine that builds them, whatever characters it has, and the compiler gets the caller's
/// flags.
#[test]
fn the_build_shortens_the_directories_that_the_programs_name() {
    let repository = Repository::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in ["hack/build", "hack/lib/common.sh"] {
        let text = fs::read_to_string(own.join(name)).expect("the script");
        repository.script(&format!("a place/{name}"), &text);
    }
    repository.write("a place/Cargo.toml", "rust-version = \"1.91\"\n");
    let compiler = "#!/bin/sh\ncase $* in --version) echo rustc 1.91.0 ;; *target-libdir*) echo / ;; *) echo '/the rust' ;; esac\n";
    repository.script("tools/rustc", compiler);
    let cargo = r#"#!/bin/sh
printf %s "$CARGO_ENCODED_RUSTFLAGS" | tr '\037' '\n' >~/flags
built=$CARGO_TARGET_DIR/$(uname -m)-unknown-linux-musl/release
mkdir -p "$built" && touch "$built/containerd-shim-podshim-v2" "$built/podshim"
"#;
    repository.script("tools/cargo", cargo);
    repository.write("cargo's/registry/src/index-1/README", "a package\n");
    let at = |path: &str| repository.at(path).to_str().expect("UTF-8").to_owned();
    let environment = [
        ("RUSTFLAGS", "-C debuginfo=1"),
        ("CARGO_TARGET_DIR", &*at("built here")),
        ("CARGO_HOME", &at("cargo's")),
    ];
    repository.runs("'../a place/hack/build'", &environment);
    let flags = fs::read_to_string(repository.at("flags")).expect("the flags");
    let outliner = "-C\nllvm-args=-enable-machine-outliner=always";
    let short = [
        (at("a place"), "podshim"),
        (at("built here"), "target"),
        ("/the rust".to_owned(), "rust"),
        (at("cargo's"), "cargo"),
        (at("cargo's/registry/src/index-1"), "crates"),
    ];
    let short = short.map(|(path, name)| format!("--remap-path-prefix={path}={name}")).join("\n");
    assert_eq!(flags, format!("-C\ndebuginfo=1\n{outliner}\n{short}"));
}

/// Each build of a work tree names its commit, not only a release: with a + where something was changed.
#[test]
fn found_n15_each_build_names_its_commit() {
    let repository = Repository::new();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let script = fs::read_to_string(own.join("hack/build")).expect("the script");
    repository
        .write("work/Cargo.toml", "[workspace.package]\nversion = \"1.2.3\"\nrust-version = \"1.91\"\n\n");
    repository.script("work/hack/build", &script);
    let git = "git -c user.name=a -c user.email=a@example";
    repository.runs(&format!("{git} add . && {git} commit --quiet --message=two"), &[]);
    repository
        .script("tools/rustc", "#!/bin/sh\ncase $* in --version) echo rustc 1.91.0 ;; *) echo / ;; esac\n");
    let cargo = r#"#!/bin/sh
echo "$PODSHIM_REVISION" >~/revision
built=target/$(uname -m)-unknown-linux-musl/release
mkdir -p "$built" && touch "$built/containerd-shim-podshim-v2" "$built/podshim"
"#;
    repository.script("tools/cargo", cargo);
    let revision = |environment: &[(&str, &str)]| {
        repository.runs("hack/build", environment);
        fs::read_to_string(repository.at("revision")).expect("cargo ran").trim().to_owned()
    };
    repository.runs("git rev-parse --short=12 HEAD >~/head", &[]);
    let head = fs::read_to_string(repository.at("head")).expect("a commit").trim().to_owned();
    assert_eq!(revision(&[]), head);
    assert_eq!(revision(&[("PODSHIM_REVISION", "of-a-release")]), "of-a-release");
    repository.write("work/source", "changed\n");
    assert_eq!(revision(&[]), format!("{head}+"));
}

/// Tests call `hack/ctr` thousands of times, so it finds its files without a program; and however it is called.
#[test]
fn ctr_finds_its_files_wherever_it_is_called_from() {
    let hack = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack").canonicalize().expect("hack");
    let whole = hack.join("ctr").to_str().expect("UTF-8").to_owned();
    for (directory, script) in
        [("", "ctr"), ("", "./ctr"), ("..", "hack/ctr"), ("lib", "../ctr"), ("..", &whole)]
    {
        let mut command = Command::new("bash");
        command.args([script, "--help"]).current_dir(hack.join(directory));
        #[allow(clippy::disallowed_methods, reason = "a test runs the script as its users do")]
        let output = command.output().expect("bash");
        assert!(output.status.success(), "{directory} {script}: {}", printed(&output));
        assert!(printed(&output).starts_with("usage: hack/ctr"), "{}", printed(&output));
    }
}
