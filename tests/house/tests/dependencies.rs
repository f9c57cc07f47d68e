//! What podshim is built from: packages of the registry alone, under licences that deny.toml allows, and no package twice without
//! a reason there.
//!
//! Reads deny.toml as cargo-deny does, and what Cargo says of the packages that Linux needs. A machine that has built all of podshim
//! has these: no network is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use house::root;
use serde_json::Value;
use toml_edit::{Document, Item};

/// A package of a build for Linux.
#[derive(Debug)]
struct Package {
    name: String,
    version: String,
    license: String,
    /// `None` for podshim's own.
    registry: Option<String>,
}

#[allow(clippy::disallowed_methods, reason = "a test asks Cargo")]
fn packages() -> Vec<Package> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &target])
        .current_dir(root())
        .output()
        .expect("cargo");
    let shown = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {shown}");
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let nodes = all["resolve"]["nodes"].as_array().expect("packages");
    let used: BTreeSet<_> = nodes.iter().filter_map(|node| node["id"].as_str()).collect();
    let text = |package: &Value, key: &str| package[key].as_str().map(str::to_owned);
    let packages = all["packages"].as_array().expect("packages").iter();
    let of_linux = packages.filter(|package| package["id"].as_str().is_some_and(|id| used.contains(id)));
    of_linux
        .map(|package| Package {
            name: text(package, "name").unwrap_or_default(),
            version: text(package, "version").unwrap_or_default(),
            license: text(package, "license").unwrap_or_default(),
            registry: text(package, "source"),
        })
        .collect()
}

fn rules() -> Document<String> {
    let text = fs::read_to_string(root().join("deny.toml")).expect("deny.toml");
    Document::parse(text).expect("TOML")
}

fn strings(item: Option<&Item>) -> BTreeSet<String> {
    let values = item.and_then(Item::as_array).into_iter().flatten();
    values.filter_map(|value| value.as_str().map(str::to_owned)).collect()
}

/// Whether one of the licences in each part of `A AND (B OR C)` is allowed. An exception only allows more.
fn is_allowed(license: &str, allowed: &BTreeSet<String>) -> bool {
    let parts = license.split(" AND ");
    let choices = |part: &str| {
        let part = part.trim_matches(['(', ')']).replace(" / ", " OR ").replace('/', " OR ");
        part.split(" OR ").any(|one| allowed.contains(one.split(" WITH ").next().unwrap_or_default()))
    };
    !license.is_empty() && parts.into_iter().all(choices)
}

#[test]
fn all_come_from_the_registry_under_a_licence_that_is_allowed() {
    let allowed = strings(rules().get("licenses").and_then(|it| it.get("allow")));
    let packages = packages();
    assert!(packages.len() > 100, "{} packages", packages.len());
    let wrong: Vec<_> = packages
        .iter()
        .filter(|package| !is_allowed(&package.license, &allowed))
        .chain(packages.iter().filter(|package| {
            package.registry.as_ref().is_some_and(|source| !source.starts_with("registry+"))
        }))
        .collect();
    assert!(wrong.is_empty(), "deny.toml does not allow {wrong:#?}");
}

#[test]
fn no_package_is_built_twice_without_a_reason() {
    let rules = rules();
    let skipped = rules.get("bans").and_then(|it| it.get("skip")).and_then(Item::as_array);
    let crates = skipped.into_iter().flatten().filter_map(|value| {
        let table = value.as_inline_table()?;
        assert!(table.get("reason").is_some_and(|reason| reason.as_str().is_some()), "{table:?}: no reason");
        table.get("crate")?.as_str().map(str::to_owned)
    });
    let skipped: BTreeSet<String> = crates.collect();
    let (mut versions, mut unused) = (BTreeMap::<String, Vec<String>>::new(), skipped.clone());
    for package in packages() {
        let names = |skip: &&String| {
            let version = skip.strip_prefix(&format!("{}@", package.name));
            version.is_some_and(|version| format!("{}.", package.version).starts_with(&format!("{version}.")))
        };
        match skipped.iter().find(names) {
            Some(skip) => drop(unused.remove(skip)),
            None => versions.entry(package.name).or_default().push(package.version),
        }
    }
    versions.retain(|_, all| all.len() > 1);
    assert!(versions.is_empty(), "give deny.toml a reason for the older ones: {versions:?}");
    assert!(unused.is_empty(), "deny.toml has reasons for what is not built twice: {unused:?}");
}

/// Clippy's `incompatible_msrv` holds a crate's code to the version that its manifest says.
#[test]
fn every_crate_says_for_which_rust_it_is() {
    let manifest =
        Document::parse(fs::read_to_string(root().join("Cargo.toml")).expect("Cargo.toml")).expect("TOML");
    let workspace = manifest.get("workspace").expect("a workspace");
    for folder in strings(workspace.get("members")) {
        let text = fs::read_to_string(root().join(&folder).join("Cargo.toml")).expect("a manifest");
        assert!(text.contains("\nrust-version.workspace = true\n"), "{folder} says no rust-version");
        assert!(text.contains("\n[lints]\nworkspace = true\n"), "{folder} has not the workspace's lints");
    }
}

/// The fuzz targets are a workspace of their own (they need a nightly compiler), whose lock file no other build reads.
#[test]
fn the_lock_of_the_fuzz_targets_is_that_of_the_crates() {
    let packages = |lock: &str| {
        let text = fs::read_to_string(root().join(lock)).expect(lock);
        let lock = Document::parse(text).expect("TOML");
        let packages = lock.get("package").and_then(Item::as_array_of_tables).expect("packages");
        let found = packages.iter().map(|package| {
            let name = package.get("name").and_then(Item::as_str).unwrap_or_default().to_owned();
            // A version stands beside a name that is there twice.
            let needs = strings(package.get("dependencies"));
            (
                name,
                needs
                    .iter()
                    .filter_map(|one| Some(one.split(' ').next()?.to_owned()))
                    .collect::<BTreeSet<_>>(),
            )
        });
        found.collect::<BTreeMap<_, _>>()
    };
    let of_fuzz = packages("fuzz/Cargo.lock");
    let mut seen = 0;
    for (name, locked) in of_fuzz.iter().filter(|(name, _)| root().join("crates").join(name).exists()) {
        let manifest =
            fs::read_to_string(root().join("crates").join(name).join("Cargo.toml")).expect("a manifest");
        let manifest = Document::parse(manifest).expect("TOML");
        let keys = |table: &str| {
            let table = manifest.get(table).and_then(Item::as_table_like);
            // What is optional is of a feature that only tests ask for.
            table
                .into_iter()
                .flat_map(|table| table.iter())
                .filter(|(_, item)| item.get("optional").is_none())
                .map(|(key, _)| key.to_owned())
                .collect::<BTreeSet<_>>()
        };
        let needs: BTreeSet<_> = keys("dependencies").union(&keys("build-dependencies")).cloned().collect();
        assert!(
            needs.is_subset(locked),
            "fuzz/Cargo.lock: {name} needs {needs:?}: run `cargo metadata` in fuzz"
        );
        seen += 1;
    }
    assert!(seen > 10, "{seen} crates");
}

#[test]
fn a_licence_is_read_as_it_is_written() {
    let allowed = BTreeSet::from(["MIT", "Unicode-3.0"].map(str::to_owned));
    for license in
        ["MIT", "MIT/Apache-2.0", "GPL-3.0 OR MIT", "(MIT OR GPL-3.0) AND Unicode-3.0", "MIT WITH X"]
    {
        assert!(is_allowed(license, &allowed), "{license}");
    }
    for license in ["", "GPL-3.0", "MIT AND GPL-3.0", "Apache-2.0 OR GPL-3.0", "MITX"] {
        assert!(!is_allowed(license, &allowed), "{license}");
    }
}

/// The crates that call the system by themselves (cgroups in its tests alone). Each other one forbids unsafe code at its root.
const UNSAFE: [&str; 9] = [
    "threads",
    "processes",
    "cgroups",
    "streams",
    "mounts",
    "own-processes",
    "oci-runtime",
    "containerd-shim-podshim-v2",
    "e2e",
];

#[test]
fn unsafe_code_is_forbidden_where_none_is_needed() {
    let folders =
        fs::read_dir(root().join("crates")).expect("the crates").map(|it| it.expect("a crate").path());
    let others = ["tests", "tests/house", "bench"].map(|folder| root().join(folder));
    let (mut wrong, mut count) = (Vec::new(), 0);
    for folder in folders.chain(others).filter(|folder| folder.join("Cargo.toml").exists()) {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let is_exempt = UNSAFE.iter().any(|name| manifest.contains(&format!("name = \"{name}\"")));
        for root in ["src/lib.rs", "src/main.rs"].map(|root| folder.join(root)) {
            let Ok(text) = fs::read_to_string(&root) else { continue };
            count += 1;
            if text.contains("#![forbid(unsafe_code)]") == is_exempt {
                wrong.push(root);
            }
        }
    }
    assert!(count > 14, "{count} roots");
    assert!(wrong.is_empty(), "say forbid(unsafe_code), or be in the list, and not both: {wrong:#?}");
}

/// What only generated code names.
const GENERATED: [(&str, &str); 1] = [("control-api", "async-trait")];

/// So that the drawing in docs/design.md, which reads the manifests, is one of the imports.
#[test]
fn a_crate_names_what_it_depends_on() {
    let crates = root().join("crates");
    let mut unnamed = Vec::new();
    for entry in fs::read_dir(&crates).expect("the crates").map(|entry| entry.expect("an entry")) {
        let (name, folder) = (entry.file_name().display().to_string(), entry.path());
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        let manifest = Document::parse(manifest).expect("TOML");
        let sources = house::rust_files(&folder.join("src"));
        let read = |file: &String| fs::read_to_string(folder.join("src").join(file)).expect("a source");
        let text = sources.iter().map(read).collect::<String>();
        let words: BTreeSet<_> = text.split(|sign: char| !sign.is_alphanumeric() && sign != '_').collect();
        let table = manifest.get("dependencies").and_then(Item::as_table_like);
        for (dependency, _) in table.into_iter().flat_map(|table| table.iter()) {
            let is_known = GENERATED.contains(&(name.as_str(), dependency));
            if !is_known && !words.contains(dependency.replace('-', "_").as_str()) {
                unnamed.push(format!("{name}: {dependency}"));
            }
        }
    }
    assert_eq!(unnamed, Vec::<String>::new());
}
