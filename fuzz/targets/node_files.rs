//! The node's configuration file. Its test on stable is `fuzz_node_files`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| pod_spec::bad_input::node_file(input));
