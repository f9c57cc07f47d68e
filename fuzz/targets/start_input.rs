//! What containerd writes to the standard input of `start` (CONTRACT §1.2). Its test on stable is `fuzz_start_input`.
//! No crate can depend on a binary, so its file is included here.
#![no_main]
#![allow(dead_code, reason = "only the reader is called")]

#[path = "../../crates/containerd-shim-podshim-v2/src/stdin.rs"]
mod stdin;

libfuzzer_sys::fuzz_target!(|input: &[u8]| stdin::bad_input(input));
