//! What an OCI runtime writes to its log (trap 24). Its test on stable is `fuzz_runtime_logs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oci_runtime::bad_input::runtime_log(input));
