//! The restart that is asked for from the cluster: which value of the pod's annotation its shim has yet to get, and what came of the last.
//!
//! Owns that a value is passed on once. Whether it is a new one its shim decides, which keeps the last one (R14): an agent that was
//! restarted, or a second one, asks for nothing again. Knows no clock.

use control_api::InspectResponse;

use crate::report::Reason;

/// The annotation in words.
const ANNOTATION: &str = "the annotation podshim.io/restart";

/// The requests of a pod.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// What the pod's object asks for.
    wanted: Option<String>,
    /// What the shim was asked for last.
    passed: Option<String>,
    /// What the shim has got, before any agent or from one. A shim of an earlier release does not say.
    done: Option<String>,
    /// When the result that is reported was asked for.
    reported_ms: i64,
    /// The value that such a shim is not asked for, and that is reported.
    refused_early: Option<String>,
}

/// What came of a request.
pub(super) struct Answer {
    pub(super) reason: Reason,
    pub(super) value: String,
    pub(super) at_ms: i64,
    pub(super) note: String,
}

impl Requests {
    /// Takes what the shim shows. Returns what came of a request, once.
    pub(super) fn see(&mut self, seen: &InspectResponse) -> Option<Answer> {
        self.done.clone_from(&seen.restart_request);
        let (value, at_ms) = (seen.restart_request.clone()?, seen.restart_request_ms);
        if at_ms == self.reported_ms {
            return None;
        }
        self.reported_ms = at_ms;
        let (reason, end) = match seen.restart_refusal.as_str() {
            "" => (Reason::RestartAsked, "it begins".to_owned()),
            why => (Reason::RestartRefused, format!("podshim does not do it: {why}")),
        };
        let note = format!("{ANNOTATION} asks for a restart of the pod in place ({value:?}): {end}");
        Some(Answer { reason, value, at_ms, note })
    }

    /// Takes what the object asks for. Returns the answer for a shim that would restart at each call.
    pub(super) fn want(&mut self, value: Option<&str>, now_ms: i64) -> Option<Answer> {
        if self.wanted.as_deref() != value {
            self.wanted = value.map(str::to_owned);
        }
        let value = self.wanted.clone().filter(|_| self.done.is_none())?;
        if self.refused_early.as_ref() == Some(&value) {
            return None;
        }
        self.refused_early = Some(value.clone());
        let note = format!(
            "{ANNOTATION} asks for a restart of the pod in place ({value:?}): its shim is of an earlier release, which cannot"
        );
        Some(Answer { reason: Reason::RestartRefused, value, at_ms: now_ms, note })
    }

    /// Whether there is a value to be passed on.
    pub(super) fn is_due(&self) -> bool {
        self.due().is_some()
    }

    fn due(&self) -> Option<&String> {
        let (wanted, done) = (self.wanted.as_ref()?, self.done.as_ref()?);
        Some(wanted).filter(|wanted| *wanted != done && Some(*wanted) != self.passed.as_ref())
    }

    /// The value that is to be passed on now.
    pub(super) fn take(&mut self) -> Option<String> {
        let due = self.due().cloned()?;
        self.passed = Some(due.clone());
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(value: Option<&str>, refusal: &str, at_ms: i64) -> InspectResponse {
        InspectResponse {
            restart_request: value.map(str::to_owned),
            restart_refusal: refusal.to_owned(),
            restart_request_ms: at_ms,
            ..Default::default()
        }
    }

    fn note(answer: Option<Answer>) -> String {
        answer.map(|answer| format!("{} {}", answer.reason.word(), answer.note)).unwrap_or_default()
    }

    #[test]
    fn each_value_is_passed_on_once() {
        let mut requests = Requests::default();
        assert_eq!(
            (note(requests.want(Some("1"), 0)).is_empty(), requests.take()),
            (false, None),
            "no shim has answered"
        );
        assert_eq!(note(requests.see(&seen(Some("1"), "", 0))), "", "the pod was made with it");
        assert_eq!((note(requests.want(Some("1"), 0)), requests.take()), (String::new(), None));
        requests.want(Some("2"), 0);
        assert_eq!((requests.is_due(), requests.take()), (true, Some("2".to_owned())));
        requests.see(&seen(Some("1"), "", 0));
        requests.want(Some("2"), 0);
        assert_eq!((requests.is_due(), requests.take()), (false, None), "its request is on its way");
        let begins = "RestartAsked the annotation podshim.io/restart asks for a restart of the pod in place (\"2\"): it begins";
        assert_eq!(note(requests.see(&seen(Some("2"), "", 7))), begins);
        assert_eq!(note(requests.see(&seen(Some("2"), "", 7))), "");
        requests.want(None, 0);
        requests.want(Some("2"), 0);
        assert_eq!(requests.take(), None, "the shim has had it");
        requests.want(Some("1"), 0);
        assert_eq!(requests.take(), Some("1".to_owned()), "the last one counts");
        let refused = note(requests.see(&seen(Some("1"), "it is complete", 9)));
        assert!(
            refused.starts_with("RestartRefused ")
                && refused.ends_with(": podshim does not do it: it is complete"),
            "{refused}"
        );
    }

    /// It would restart the pod once for each agent.
    #[test]
    fn a_shim_of_an_earlier_release_is_not_asked() {
        let mut requests = Requests::default();
        assert_eq!(note(requests.see(&seen(None, "", 0))), "");
        assert!(note(requests.want(Some("1"), 0)).starts_with("RestartRefused "));
        assert_eq!((note(requests.want(Some("1"), 0)), requests.take()), (String::new(), None));
    }
}
