//! containerd's runtime options, in all four messages (CONTRACT §1.7). Its test on stable is `fuzz_runtime_options`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| shim_service::bad_input::runtime_options(input));
