//! Builds podshim's small programs (`programs`) for the shim's target, as files of a few kB that `src/program.rs` includes.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=programs");
    println!("cargo::rerun-if-changed=build.rs");
    for name in ["pause", "exec"] {
        build(name);
    }
}

#[expect(clippy::disallowed_methods, reason = "a build script has no reaper")]
fn build(name: &str) {
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let output = PathBuf::from(variable("OUT_DIR")).join(name);
    let target = variable("TARGET");
    let mut rustc = Command::new(variable("RUSTC"));
    rustc.args(["--edition", "2024", "--crate-name", name, "--target", &target]);
    for option in ["opt-level=z", "panic=abort", "strip=symbols", "relocation-model=static", "lto=yes"] {
        rustc.args(["-C", option]);
    }
    // No library and no start-up code. The headers and the code are in one page of the file.
    rustc.args(["-C", "force-unwind-tables=no", "-C", "target-feature=+crt-static"]);
    if target.contains("musl") {
        rustc.args(["-C", "link-self-contained=no"]);
    }
    let linker = env::var("RUSTC_LINKER").unwrap_or_default();
    // hack/build links for another architecture with Rust's own linker, which is no C compiler.
    let is_compiler = !linker.ends_with("lld");
    if !linker.is_empty() {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    let of_linker = if is_compiler { "-Wl," } else { "" };
    let of_compiler = if is_compiler { &["-nostartfiles"][..] } else { &[] };
    for option in ["-nostdlib", "-static"].iter().chain(of_compiler) {
        rustc.args(["-C", &format!("link-arg={option}")]);
    }
    for option in ["--build-id=none", "--no-eh-frame-hdr", "-znoseparate-code", "-zmax-page-size=4096"] {
        rustc.args(["-C", &format!("link-arg={of_linker}{option}")]);
    }
    let status =
        rustc.arg("-o").arg(&output).arg(format!("programs/{name}.rs")).status().expect("rustc runs");
    assert!(status.success(), "rustc cannot build programs/{name}.rs");
}
