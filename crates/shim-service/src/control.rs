//! podshim's own API (proto/podshim/v1/pod.proto), and the owner's side of it. Owns who the pod is to people; decides
//! nothing: what there is to know is the core's, what there is to do are its events and requests.

pub(crate) mod history;
mod inspection;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use control_api::{
    EventsRequest, EventsResponse, InspectRequest, InspectResponse, StopRequest, StopResponse, SwitchRequest,
    SwitchResponse, VERSION,
};
use oci_runtime::attention::{self, Away};
use pod_lifecycle::{Event, Inspection, Request};
use pod_spec::BoundedDuration;
use tracing::info;
use ttrpc::asynchronous::TtrpcContext;

use crate::command::{Answer, Command, OwnerHandle};
use crate::details::CONTAINER_TYPE;
use crate::owner::Owner;

/// The longest wait for an event: a caller that wants more asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What only operators ask.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// The pod as it is.
    Inspect { answer: Answer<(Identity, Inspection, Away)> },
    /// An ordered stop (T12c); answered at once.
    Stop { grace: Option<Duration>, answer: Answer<()> },
    /// What has happened after that event; with `Wait` answered when there is something.
    Events { after: u64, patience: Patience, answer: Answer<EventsResponse> },
}

/// What is answered where nothing has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Patience {
    None,
    Wait,
}

/// Who the pod is, to people. Kubernetes' names are those of the CRI's annotations (F7).
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) id: String,
    pub(crate) namespace: String,
    pub(crate) pod_name: String,
    pub(crate) pod_namespace: String,
    pub(crate) pod_uid: String,
    /// Since 1970.
    pub(crate) started_at_ms: i64,
}

impl Identity {
    /// Takes over what the CRI writes into each container's spec.
    pub(crate) fn learn(&mut self, annotations: &BTreeMap<String, String>) {
        // A CRI container says the same as its sandbox, or has been told to by somebody else.
        if annotations.get(CONTAINER_TYPE).is_some_and(|kind| kind != "sandbox") {
            return;
        }
        let known = [
            ("io.kubernetes.cri.sandbox-name", &mut self.pod_name),
            ("io.kubernetes.cri.sandbox-namespace", &mut self.pod_namespace),
            ("io.kubernetes.cri.sandbox-uid", &mut self.pod_uid),
        ];
        for (key, place) in known {
            if let Some(value) = annotations.get(key) {
                place.clone_from(value);
            }
        }
    }
}

/// The pod's service for operators.
#[derive(Debug)]
pub(crate) struct ControlService {
    owner: OwnerHandle,
}

impl ControlService {
    pub(crate) fn new(owner: OwnerHandle) -> Self {
        Self { owner }
    }
}

#[async_trait]
impl control_api::Pod for ControlService {
    async fn inspect(&self, _: &TtrpcContext, _: InspectRequest) -> ttrpc::Result<InspectResponse> {
        let ask = |answer| Command::Control(ControlCommand::Inspect { answer });
        let (identity, inspection, away) = self.owner.ask(ask).await?;
        Ok(inspection::response(identity, inspection, away))
    }

    async fn stop(&self, _: &TtrpcContext, request: StopRequest) -> ttrpc::Result<StopResponse> {
        let grace = request.grace_ms.map(|grace| BoundedDuration::of_milliseconds(grace).get());
        self.owner.ask(|answer| Command::Control(ControlCommand::Stop { grace, answer })).await?;
        Ok(StopResponse { version: VERSION, ..Default::default() })
    }

    async fn switch(&self, _: &TtrpcContext, request: SwitchRequest) -> ttrpc::Result<SwitchResponse> {
        let request = Request::Switch(request.container);
        self.owner.ask(|answer| Command::Pod { request, answer }).await?;
        Ok(SwitchResponse { version: VERSION, ..Default::default() })
    }

    async fn events(&self, _: &TtrpcContext, request: EventsRequest) -> ttrpc::Result<EventsResponse> {
        let wait = Duration::from_millis(request.wait_ms).min(LONGEST_WAIT);
        let patience = if wait.is_zero() { Patience::None } else { Patience::Wait };
        let after = request.after;
        let ask = |answer| Command::Control(ControlCommand::Events { after, patience, answer });
        let asked = self.owner.ask(ask);
        match patience {
            Patience::None => Ok(asked.await?),
            Patience::Wait => match tokio::time::timeout(wait, asked).await {
                Ok(answer) => Ok(answer?),
                Err(_) => Ok(EventsResponse { version: VERSION, ..Default::default() }),
            },
        }
    }
}

impl Owner {
    /// Answers an operator.
    pub(crate) fn on_control(&mut self, command: ControlCommand) {
        match command {
            ControlCommand::Inspect { answer } => {
                let inspection = self.pod.inspect(self.now());
                drop(answer.send(Ok((self.identity.clone(), inspection, attention::longest()))));
            }
            ControlCommand::Stop { grace, answer } => {
                info!(?grace, "asked to stop by an operator: the pod is stopped in order");
                let grace = grace.map(|grace| self.at_most(grace));
                self.feed(Event::StopPod { grace });
                drop(answer.send(Ok(())));
            }
            ControlCommand::Events { after, patience, answer } => self.events.ask(after, patience, answer),
        }
    }
}
