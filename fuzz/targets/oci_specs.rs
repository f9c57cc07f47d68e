//! A bundle's OCI spec. Its test on stable is `fuzz_oci_specs`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oci_runtime::bad_input::oci_spec(input));
