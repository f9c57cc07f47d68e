//! Links the release binary without unwind tables (`release.ld`) and with short relocations, for its size (DESIGN §7).

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=release.ld");
    // Only that profile aborts on a panic. Cargo's `CARGO_CFG_PANIC` does not reflect a profile's setting.
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    // mold does not read this kind of linker script; with it the binary only gets larger.
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    if is_release && !flags.contains("fuse-ld=mold") {
        let directory = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
        // hack/build links for another architecture with Rust's own linker, which is no C compiler.
        let is_compiler = !env::var("RUSTC_LINKER").is_ok_and(|linker| linker.ends_with("lld"));
        let to_linker = if is_compiler { "-Wl," } else { "" };
        println!("cargo::rustc-link-arg-bins={to_linker}-T{directory}/release.ld");
        println!("cargo::rustc-link-arg-bins={to_linker}--no-eh-frame-hdr");
        // A list of addresses instead of a table of entries: 100 KB less. An older glibc refuses such a binary.
        if env::var("CARGO_CFG_TARGET_ENV").is_ok_and(|libc| libc == "musl") {
            println!("cargo::rustc-link-arg-bins={to_linker}-zpack-relative-relocs");
        }
    }
}
