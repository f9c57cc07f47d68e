//! What containerd 2.3.4 sent (`containerd-2.3.4.txt`), and what its CRI wrote into the specs of those pods' containers.

use protobuf::Message;
use serde_json::Value;

const REQUESTS: &str = include_str!("containerd-2.3.4.txt");
const SPECS: &str = include_str!("containerd-2.3.4-specs.json");

/// A request of a pod or of its container `web`, decoded.
pub fn request<M: Message>(pod: &str, method: &str) -> M {
    let start = format!("{pod} {method} ");
    let digits = REQUESTS.lines().find_map(|line| line.strip_prefix(&start)).expect("it was recorded");
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    M::parse_from_bytes(&bytes).expect("it can be decoded")
}

/// The namespaces and mounts of a container of the pod.
pub fn spec(pod: &str) -> Value {
    let specs: Value = serde_json::from_str(SPECS).expect("JSON");
    specs[pod].clone()
}
