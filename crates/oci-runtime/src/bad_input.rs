//! Feeds bad input, as containers and OCI runtimes could write it: parsing must not panic, and its results must stay
//! small. Only for tests and the targets of `fuzz/`.

use std::path::Path;

use crate::notify::{Message, Readiness, STATUS_LONGEST};
use crate::probe::status_of;
use crate::runtime::errors_in;
use crate::spec::Spec;

/// A datagram on a container's notify socket.
pub fn notify_datagram(input: &[u8]) {
    let message = Message::parse(input);
    let says_ready = input.split(|byte| *byte == b'\n').any(|line| line == b"READY=1");
    assert_eq!(message.readiness == Readiness::Ready, says_ready);
    assert!(message.status.is_none_or(|status| status.len() <= 3 * STATUS_LONGEST));
}

/// The answer to an `http:` probe.
pub fn http_answer(input: &[u8]) {
    if let Some(status) = status_of(input) {
        assert!(status <= 999 && input.starts_with(b"HTTP/1."));
    }
}

/// The log of an OCI runtime, even of one that crashes.
pub fn runtime_log(input: &[u8]) {
    // A JSON escape has six bytes, its character at most three.
    assert!(errors_in(input).iter().map(String::len).sum::<usize>() <= 3 * input.len());
}

/// A bundle's spec. The runtime reads it too and may refuse it; here it must only not break anything.
pub fn oci_spec(input: &[u8]) {
    if let Ok(spec) = serde_json::from_slice::<Spec>(input) {
        spec.pid_namespace();
        spec.bind_source(Path::new("/log"));
    }
}

#[cfg(test)]
mod tests {
    use fuzz_input::fuzz;

    use super::*;

    #[test]
    fn fuzz_notify_datagrams() {
        fuzz("notify_datagrams", notify_datagram);
    }

    #[test]
    fn fuzz_http_answers() {
        fuzz("http_answers", http_answer);
    }

    #[test]
    fn fuzz_runtime_logs() {
        fuzz("runtime_logs", runtime_log);
    }

    #[test]
    fn fuzz_oci_specs() {
        fuzz("oci_specs", oci_spec);
    }
}
