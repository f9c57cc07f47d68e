//! `hack/setup` installs what a part of the project needs and no more, leaves no service that runs or is enabled, and says which
//! Rust it needs. Its programs of the machine are stand-ins that note their calls; the root directory of the packages is the
//! test's own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Enables a service as Debian's packages of daemons do, in both ways, and asks whether it may start.
const APT: &str = r#"#!/bin/sh
[ "$1" = install ] || exit 0
shift
echo "$*" >>"$HOME/installed"
"$DPKG_ROOT/usr/sbin/policy-rc.d" prometheus start
echo $? >>"$HOME/policy"
touch "$DPKG_ROOT/etc/systemd/system/multi-user.target.wants/prometheus.service" "$DPKG_ROOT/etc/rc2.d/S01prometheus"
exit "${APT_FAILS:-0}"
"#;
const HELPER: &str = r#"#!/bin/sh
# As Debian's own: it does nothing, with an exit code of 0, where no script of a package calls it.
[ -n "$DPKG_MAINTSCRIPT_PACKAGE" ] || exit 0
[ "$1" = disable ] && rm "$DPKG_ROOT"/etc/systemd/system/*.wants/"$2"
"#;
const UPDATE_RC: &str = r#"#!/bin/sh
[ "$2" = disable ] && rm "$DPKG_ROOT"/etc/rc?.d/S??"$1"
"#;

struct Machine {
    directory: tempfile::TempDir,
}

impl Machine {
    /// A machine of which only what every Debian has is installed, and a service of its own is enabled.
    fn new(rust: &str) -> Self {
        let machine = Self { directory: tempfile::tempdir().expect("a directory") };
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for name in ["hack/setup", "hack/build", "hack/demo", "Cargo.toml"] {
            machine.script(&format!("work/{name}"), &fs::read_to_string(own.join(name)).expect("a script"));
        }
        symlink(own.join("hack/lib").canonicalize().expect("hack/lib"), machine.at("work/hack/lib"))
            .expect("a link");
        let cargo = "#!/bin/sh\necho \"cargo $*\" >>\"$HOME/cargo\"\n";
        for (name, text) in [
            ("apt-get", APT),
            ("deb-systemd-helper", HELPER),
            ("update-rc.d", UPDATE_RC),
            ("dpkg", "#!/bin/sh\nexit 1\n"),
            ("id", "#!/bin/sh\necho 0\n"),
            ("cargo", cargo),
            ("rustc", &format!("#!/bin/sh\necho 'rustc {rust} (0 2026-01-01)'\n")),
        ] {
            machine.script(&format!("tools/{name}"), text);
        }
        for directory in ["usr/sbin", "etc/systemd/system/multi-user.target.wants", "etc/rc2.d"] {
            fs::create_dir_all(machine.at("root").join(directory)).expect("a directory");
        }
        fs::write(machine.at("root/etc/systemd/system/multi-user.target.wants/ssh.service"), "")
            .expect("a file");
        fs::write(machine.at("root/etc/rc2.d/S01ssh"), "").expect("a file");
        machine
    }

    fn at(&self, path: &str) -> PathBuf {
        self.directory.path().join(path)
    }

    fn script(&self, path: &str, text: &str) {
        fs::create_dir_all(self.at(path).parent().expect("a directory")).expect("a directory");
        fs::write(self.at(path), text).expect("a file");
        fs::set_permissions(self.at(path), fs::Permissions::from_mode(0o755)).expect("permissions");
    }

    #[allow(clippy::disallowed_methods, reason = "a test runs the script as its users do")]
    fn runs(&self, call: &[&str], environment: &[(&str, &str)]) -> Output {
        let path = format!("{}:/usr/bin:/bin", self.at("tools").display());
        let mut command = Command::new(self.at(&format!("work/hack/{}", call[0])));
        command.args(&call[1..]).env("PATH", path).env("HOME", self.at("")).env("DPKG_ROOT", self.at("root"));
        command.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_HOME").envs(environment.iter().copied());
        command.output().expect("bash")
    }

    fn setup(&self, part: &str) -> Output {
        self.runs(&["setup", "--for", part], &[])
    }

    /// The packages that apt-get was asked for.
    fn installed(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.at("installed")).unwrap_or_default();
        let words = calls.split_whitespace().filter(|word| !word.starts_with('-'));
        words.map(str::to_owned).collect()
    }

    /// What starts with the machine, and what says whether a package may start its service.
    fn services(&self) -> Vec<String> {
        let mut found = Vec::new();
        for directory in ["etc/systemd/system/multi-user.target.wants", "etc/rc2.d", "usr/sbin"] {
            let entries = fs::read_dir(self.at("root").join(directory)).expect("a directory");
            found.extend(entries.map(|entry| entry.expect("an entry").file_name().display().to_string()));
        }
        found.sort();
        found
    }
}

fn printed(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// What was enabled before stays so, and no more: also where apt-get fails, and where the machine says itself what may start.
#[test]
fn found_n4_no_service_of_a_package_is_started_or_stays_enabled() {
    for (fails, policy) in [("0", None), ("0", Some("#!/bin/sh\nexit 0\n")), ("100", None)] {
        let machine = Machine::new("1.99.0");
        if let Some(policy) = policy {
            machine.script("root/usr/sbin/policy-rc.d", policy);
        }
        let before = machine.services();
        let output = machine.runs(&["setup"], &[("APT_FAILS", fails)]);
        assert_eq!(output.status.success(), fails == "0", "{}", printed(&output));
        assert!(machine.installed().contains(&"prometheus".to_owned()), "all that the tests need");
        let asked = fs::read_to_string(machine.at("policy")).expect("a package asked");
        assert_eq!(asked, "101\n", "no package may start its service");
        let left = fs::read_to_string(machine.at("root/usr/sbin/policy-rc.d")).ok();
        assert_eq!(left.as_deref(), policy);
        if fails == "0" {
            assert_eq!(machine.services(), before);
        }
    }
}

/// The file that denies a start denies nothing when its setup is gone, as after `kill -9`.
#[test]
#[allow(clippy::disallowed_methods, reason = "a test runs what dpkg runs")]
fn found_n4_what_a_killed_setup_leaves_denies_nothing() {
    let machine = Machine::new("1.99.0");
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../hack/lib/packages.sh");
    let mut shell = Command::new("bash");
    shell.args(["-c", "source $0 && deny_services"]).arg(packages).env("DPKG_ROOT", machine.at("root"));
    let output = shell.output().expect("bash");
    assert!(output.status.success(), "{}", printed(&output));
    let asked = Command::new(machine.at("root/usr/sbin/policy-rc.d")).output().expect("the file");
    assert_eq!(asked.status.code(), Some(0));
}

#[test]
fn found_n4_each_part_gets_what_it_needs() {
    let build = ["build-essential", "libprotobuf-dev", "protobuf-compiler"];
    let demo =
        ["busybox-static", "containerd", "containernetworking-plugins", "iproute2", "runc", "util-linux"];
    for (part, packages) in [("build", build.to_vec()), ("demo", [&build[..], &demo].concat())] {
        let machine = Machine::new("1.99.0");
        let output = machine.setup(part);
        assert!(output.status.success(), "{}", printed(&output));
        assert_eq!(machine.installed(), packages);
        assert!(!machine.at("cargo").exists(), "no program is compiled for it");
    }
    let output = Machine::new("1.99.0").setup("demos");
    assert!(printed(&output).contains("--for is build, demo or tests, not demos"), "{}", printed(&output));
}

#[test]
fn found_n4_the_demo_installs_its_own_part_only() {
    let machine = Machine::new("1.99.0");
    machine.script("work/hack/build", "#!/bin/sh\nexit 7\n");
    let output = machine.runs(&["demo"], &[]);
    assert_eq!(output.status.code(), Some(7), "{}", printed(&output));
    assert!(!machine.installed().is_empty());
    for package in ["prometheus", "fish", "zsh", "checkpolicy"] {
        assert!(!machine.installed().contains(&package.to_owned()), "{package}");
    }
}

/// Debian's own cargo says "expected a boolean or an integer" of Cargo.toml.
#[test]
fn found_n18_a_rust_that_is_too_old_is_an_error_before_anything_else() {
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    for call in [&["setup"][..], &["setup", "--for", "build"], &["build"], &["demo"]] {
        let machine = Machine::new("1.63.0");
        let output = machine.runs(call, &[]);
        assert!(!output.status.success(), "{call:?}");
        let text = printed(&output);
        let begin = format!(
            "{}: needs Rust {wanted} or later, and ",
            if call[0] == "build" { "build" } else { "setup" }
        );
        assert!(text.starts_with(&begin) && text.contains("/tools/rustc is 1.63.0"), "{text}");
        assert!(!machine.at("installed").exists() && !machine.at("cargo").exists(), "nothing else was done");
    }
    for enough in [&format!("{wanted}.0"), "2.0.0", "1.200.1"] {
        let output = Machine::new(enough).setup("build");
        assert!(output.status.success(), "{enough}: {}", printed(&output));
    }
}

/// The README and the toolchain's file say it too.
#[test]
fn found_n18_the_readme_and_the_toolchain_file_have_the_version_of_rust() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).expect("the README");
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    assert!(readme.contains(&format!("Rust {wanted} or later")));
    let file = fs::read_to_string(root.join("rust-toolchain.toml")).expect("a toolchain file");
    assert!(file.contains("channel = \"stable\""), "{file}");
    let contributing = fs::read_to_string(root.join("CONTRIBUTING.md")).expect("a page");
    assert!(contributing.contains(&format!("Rust {wanted} or later")));
}
