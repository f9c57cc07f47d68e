//! What a container answers to an `http:` probe. Its test on stable is `fuzz_http_answers`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oci_runtime::bad_input::http_answer(input));
