//! Feeds arbitrary bytes to the decoders of runtime options, which containerd takes from its configuration and its clients, and of a
//! pod's configuration, which its author writes: none may panic, each error has a text. For tests and the targets of `fuzz/` only.

use protobuf::well_known_types::any::Any;

use crate::options;
use crate::pod_sandbox::config::PodConfig;

/// All messages that carry runtime options (CONTRACT §1.7), and one that does not.
const TYPES: [&str; 4] = [
    "containerd.runc.v1.Options",
    "runtimeoptions.v1.Options",
    "containerd.linux.runc.CreateOptions",
    "containerd.runc.v1.CheckpointOptions",
];

/// Decodes the bytes as each of these messages, and as CRI's of a pod.
pub fn runtime_options(input: &[u8]) {
    for type_url in TYPES {
        let any = Any { type_url: type_url.to_owned(), value: input.to_vec(), ..Any::default() };
        if let Err(error) = options::runtime_options(Some(&any)) {
            assert!(!error.to_string().is_empty());
        }
    }
    let pod =
        Any { type_url: "runtime.v1.PodSandboxConfig".to_owned(), value: input.to_vec(), ..Any::default() };
    if let Err(error) = PodConfig::of(Some(&pod)) {
        assert!(!error.to_string().is_empty());
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
