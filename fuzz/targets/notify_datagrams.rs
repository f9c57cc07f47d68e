//! What a container sends to its notify socket. Its test on stable is `fuzz_notify_datagrams`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| oci_runtime::bad_input::notify_datagram(input));
