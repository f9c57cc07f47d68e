//! One request: an event or a condition as the API wants it, and what its answer means. Decides nothing of when it is sent.

use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Error};
use pod_spec::STARTED_CONDITION;
use serde_json::json;
use tokio::time::error::Elapsed;

use crate::conditions::{ConditionPatch, status_of};
use crate::report::Report;

/// Who writes the events.
pub const CONTROLLER: &str = "podshim.io/agent";
/// The bound of the API on `reportingInstance`; a node's name may be longer.
const LONGEST_INSTANCE: usize = 128;

/// What an answer means.
#[derive(Debug)]
pub enum Verdict {
    /// It is written, or was before.
    Taken,
    /// There is no such pod or namespace any more.
    Gone,
    /// The agent may not write it: rights may be given later.
    Forbidden(String),
    /// It will not be written.
    Refused(String),
    /// It may be written later.
    NoAnswer(String),
}

/// What became of a request.
pub fn verdict(sent: Result<kube::Result<()>, Elapsed>) -> Verdict {
    let error = match sent {
        Ok(Ok(())) => return Verdict::Taken,
        Ok(Err(error)) => error,
        Err(_) => return Verdict::NoAnswer("the time for a request is over".to_owned()),
    };
    match &error {
        // The uid of the pod is another one.
        Error::Api(status) if matches!(status.code, 404 | 409 | 410) => Verdict::Gone,
        Error::Api(status) if status.code == 429 || status.code >= 500 => {
            Verdict::NoAnswer(status.message.clone())
        }
        Error::Api(status) if matches!(status.code, 401 | 403) => Verdict::Forbidden(status.message.clone()),
        Error::Api(status) => Verdict::Refused(status.message.clone()),
        // A proxy's page, or half an answer.
        error => Verdict::NoAnswer(error.to_string()),
    }
}

/// Writes an event. One with this name is the same event: an agent before this one has written it.
///
/// # Errors
/// kube's.
pub async fn write_event(client: &Client, node: &str, report: &Report) -> kube::Result<()> {
    let events: Api<Event> = Api::namespaced(client.clone(), &report.pod.namespace);
    if let Some(series) = report.series {
        // All else of an event cannot be changed.
        let count = i32::try_from(series.count).unwrap_or(i32::MAX);
        let patch = json!({"series": {"count": count, "lastObservedTime": micro(series.last_ms)}});
        let patched = events.patch(&report.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        match patched {
            Err(Error::Api(status)) if status.code == 404 => {}
            patched => return patched.map(drop),
        }
    }
    match events.create(&PostParams::default(), &event_of(node, report)).await {
        Err(Error::Api(status)) if status.code == 409 => Ok(()),
        created => created.map(drop),
    }
}

fn event_of(node: &str, report: &Report) -> Event {
    let pod = &report.pod;
    let mut instance = node.to_owned();
    instance.truncate(LONGEST_INSTANCE);
    Event {
        metadata: ObjectMeta {
            name: Some(report.name.clone()),
            namespace: Some(pod.namespace.clone()),
            ..Default::default()
        },
        event_time: Some(micro(report.at_ms)),
        action: Some(report.topic.reason.action().to_owned()),
        reason: Some(report.topic.reason.word().to_owned()),
        note: Some(report.note.clone()),
        type_: Some(report.severity.word().to_owned()),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some(instance),
        regarding: Some(ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name.clone()),
            namespace: Some(pod.namespace.clone()),
            uid: Some(pod.uid.clone()),
            ..Default::default()
        }),
        series: report.series.map(|series| EventSeries {
            count: i32::try_from(series.count).unwrap_or(i32::MAX),
            last_observed_time: micro(series.last_ms),
        }),
        ..Default::default()
    }
}

/// Writes a pod's condition. The uid makes the API server refuse it for another pod of the same name.
///
/// # Errors
/// kube's.
pub async fn write_condition(client: &Client, patch: &ConditionPatch) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &patch.pod.namespace);
    let condition = json!({
        "type": STARTED_CONDITION,
        "status": status_of(&patch.started).word(),
        "reason": patch.started.reason.word(),
        "message": patch.started.message,
        "lastTransitionTime": Time(at(patch.since_ms)),
    });
    let body = json!({"metadata": {"uid": patch.pod.uid}, "status": {"conditions": [condition]}});
    pods.patch_status(&patch.pod.name, &PatchParams::default(), &Patch::Strategic(&body)).await.map(drop)
}

fn micro(at_ms: i64) -> MicroTime {
    MicroTime(at(at_ms))
}

fn at(at_ms: i64) -> Timestamp {
    Timestamp::from_millisecond(at_ms).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn what_an_answer_means() {
        let of = |code: u16| {
            let status = Status { code, ..Status::failure("text", "reason") };
            verdict(Ok(Err(Error::Api(Box::new(status)))))
        };
        assert!(matches!(of(404), Verdict::Gone) && matches!(of(409), Verdict::Gone));
        assert!(matches!(of(401), Verdict::Forbidden(_)) && matches!(of(403), Verdict::Forbidden(_)));
        assert!(matches!(of(422), Verdict::Refused(_)));
        assert!(matches!(of(429), Verdict::NoAnswer(_)) && matches!(of(503), Verdict::NoAnswer(_)));
    }
}
