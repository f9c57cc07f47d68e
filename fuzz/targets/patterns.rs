//! The regular expression of a `log:` gate. Its test on stable is `fuzz_patterns`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| log_pattern::bad_input::pattern(input));
