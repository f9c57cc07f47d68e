//! A pod author's annotations. Its test on stable is `fuzz_annotations`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_spec::bad_input::annotations(input));
