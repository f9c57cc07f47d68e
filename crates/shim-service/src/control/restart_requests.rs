//! The restarts that are asked for from the cluster (R14).
//!
//! Owns that each value is one restart, whichever agent asks and however often: a shim lives as long as its pod, an agent does not. The
//! value that the pod began with is no request. Whether the pod can be restarted is `pod-lifecycle`'s to say.

use std::collections::BTreeMap;

use control_api::InspectResponse;
use control_api::text::printable;

/// The last request.
#[derive(Debug, Default)]
pub(crate) struct RestartRequests {
    last: Option<String>,
    refusal: Option<&'static str>,
    /// Since 1970; 0 for what the pod began with.
    asked_ms: i64,
}

impl RestartRequests {
    /// What the pod begins with. A later container's annotations, those of now, are no request: an agent asks.
    pub(crate) fn learn(&mut self, annotations: &BTreeMap<String, String>) {
        if self.last.is_none() {
            let annotations = annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
            self.last = Some(pod_spec::restart_request(annotations).map(printable).unwrap_or_default());
        }
    }

    /// Takes a request, with the reason why the pod cannot be restarted now. Returns whether it is a new one.
    pub(crate) fn take(&mut self, request: String, refusal: Option<&'static str>, now_ms: i64) -> Novelty {
        if request.is_empty() {
            return Novelty::New;
        }
        if self.last.as_ref() == Some(&request) {
            return Novelty::Repeated;
        }
        *self = Self { last: Some(request), refusal, asked_ms: now_ms };
        Novelty::New
    }

    /// Shows the last one.
    pub(crate) fn fill_in(&self, response: &mut InspectResponse) {
        response.restart_request = Some(self.last.clone().unwrap_or_default());
        response.restart_refusal = self.refusal.unwrap_or_default().to_owned();
        response.restart_request_ms = self.asked_ms;
    }
}

/// Whether a request was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Novelty {
    New,
    Repeated,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r14_each_value_is_one_request_and_that_of_the_beginning_is_none() {
        let mut requests = RestartRequests::default();
        let annotations = |value: &str| BTreeMap::from([("podshim.io/restart".to_owned(), value.to_owned())]);
        requests.learn(&annotations("1"));
        requests.learn(&annotations("2"));
        let shown = |requests: &RestartRequests| {
            let mut shown = InspectResponse::default();
            requests.fill_in(&mut shown);
            (shown.restart_request.unwrap(), shown.restart_refusal, shown.restart_request_ms)
        };
        let of = |value: &str, refusal: &str, at| (value.to_owned(), refusal.to_owned(), at);
        assert_eq!(requests.take("1".to_owned(), None, 5), Novelty::Repeated);
        assert_eq!(shown(&requests), of("1", "", 0));
        assert_eq!(requests.take("2".to_owned(), Some("it is complete"), 6), Novelty::New);
        assert_eq!(requests.take("2".to_owned(), None, 7), Novelty::Repeated);
        // `podshim restart` has no value.
        assert_eq!([""; 2].map(|none| requests.take(none.to_owned(), None, 8)), [Novelty::New; 2]);
        assert_eq!(shown(&requests), of("2", "it is complete", 6));
        assert_eq!(requests.take("1".to_owned(), None, 9), Novelty::New);
        assert_eq!(shown(&requests), of("1", "", 9));
    }
}
