//! Bad input in what containerd passes on of its own configuration and of its clients': no panic, and words for people. In
//! tests and in the targets of `fuzz/` only.

use protobuf::well_known_types::any::Any;

use crate::options::RuntimeOptions;

/// All messages that carry options (CONTRACT §1.7), and one that does not.
const TYPES: [&str; 4] = [
    "containerd.runc.v1.Options",
    "runtimeoptions.v1.Options",
    "containerd.linux.runc.CreateOptions",
    "containerd.runc.v1.CheckpointOptions",
];

/// The bytes of a message with runtime options.
pub fn runtime_options(input: &[u8]) {
    for type_url in TYPES {
        let any = Any { type_url: type_url.to_owned(), value: input.to_vec(), ..Any::default() };
        if let Err(error) = RuntimeOptions::from_any(Some(&any)) {
            assert!(!error.to_string().is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_runtime_options() {
        fuzz_input::fuzz("runtime_options", runtime_options);
    }
}
