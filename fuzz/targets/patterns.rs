//! The regular expression of a `log:` gate. Its test on stable is `fuzz_patterns`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_spec::bad_input::pattern(input));
