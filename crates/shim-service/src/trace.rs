//! The trace that a request belongs to, by the `traceparent` that containerd sends where its tracing is on (containerd 2.0 and
//! later; W3C Trace Context).
//!
//! Owns one log line for each request of such a trace that changes something: with the trace's id, so that the spans of a slow or
//! failed request lead to the shim's log, and with its end. Without a trace, as a rule, nothing is logged or copied.

use std::collections::HashMap;

use tokio::time::Instant;
use tracing::{info, warn};
use ttrpc::asynchronous::TtrpcContext;

/// Lower-case in ttrpc's metadata.
const KEY: &str = "traceparent";

/// The work of a request, with a line in the log at its end if the request belongs to a trace.
pub(crate) async fn logged<T>(
    context: &TtrpcContext,
    request: &'static str,
    container: &str,
    work: impl Future<Output = ttrpc::Result<T>>,
) -> ttrpc::Result<T> {
    let Some(trace) = trace_id(&context.metadata) else { return work.await };
    let began = Instant::now();
    let result = work.await;
    let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    match &result {
        Ok(_) => info!(container, trace_id = trace, request, took_ms, "request of a trace"),
        Err(error) => {
            // The status's own text has the code and protobuf's unknown fields besides.
            let error = match error {
                ttrpc::Error::RpcStatus(status) => status.message.clone(),
                other => other.to_string(),
            };
            warn!(container, trace_id = trace, request, took_ms, error, "request of a trace failed");
        }
    }
    result
}

/// The id of a valid `traceparent` whose trace is recorded: `00-<32 digits>-<16 digits>-<flags>`.
fn trace_id(metadata: &HashMap<String, Vec<String>>) -> Option<&str> {
    let header = metadata.get(KEY)?.first()?;
    let mut parts = header.split('-');
    let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_number = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_some = |text: &str| text.bytes().any(|byte| byte != b'0');
    let is_valid = is_number(version, 2) && version != "ff"
        // A later version may have more parts.
        && (version != "00" || parts.next().is_none())
        && is_number(trace, 32) && is_some(trace)
        && is_number(span, 16) && is_some(span)
        && is_number(flags, 2);
    // The last bit: sampled. No backend has the spans of another trace.
    let is_recorded = u8::from_str_radix(flags, 16).is_ok_and(|flags| flags & 1 == 1);
    (is_valid && is_recorded).then_some(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_valid_context_of_a_recorded_trace_counts() {
        let of = |text: &str| {
            let metadata = HashMap::from([(KEY.to_owned(), vec![text.to_owned()])]);
            trace_id(&metadata).map(str::to_owned)
        };
        let (trace, span) = ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7");
        assert_eq!(of(&format!("00-{trace}-{span}-01")).as_deref(), Some(trace));
        assert_eq!(of(&format!("01-{trace}-{span}-03-more")).as_deref(), Some(trace));
        for wrong in [
            String::new(),
            format!("00-{trace}-{span}"),
            format!("00-{trace}-{span}-00"),
            format!("00-{trace}-{span}-01-more"),
            format!("ff-{trace}-{span}-01"),
            format!("00-{}-{span}-01", "0".repeat(32)),
            format!("00-{trace}-{}-01", "0".repeat(16)),
            format!("00-{}-{span}-01", trace.to_uppercase()),
            format!("00-{}\n-{span}-01", &trace[1..]),
        ] {
            assert_eq!(of(&wrong), None, "{wrong:?}");
        }
        assert_eq!(trace_id(&HashMap::new()), None);
    }
}
