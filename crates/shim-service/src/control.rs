//! podshim's own API (proto/podshim/v1/pod.proto), and the owner's side of it. Owns who the pod is to people; decides
//! nothing: what there is to know is the core's, what there is to do are its events and requests.

pub(crate) mod ends;
pub(crate) mod fault;
pub(crate) mod history;
mod inspection;
pub(crate) mod log;

use std::time::Duration;

use async_trait::async_trait;
use control_api::{
    Cost, EventsRequest, EventsResponse, InspectRequest, InspectResponse, Past, StopRequest, StopResponse,
    SwitchRequest, SwitchResponse, VERSION,
};
use oci_runtime::attention;
use oci_runtime::reaper::Charge;
use pod_lifecycle::{Event, Inspection, Request};
use pod_spec::BoundedDuration;
use tracing::info;
use ttrpc::asynchronous::TtrpcContext;

use crate::command::{Command, ControlCommand, LongPoll, OwnerHandle};
use crate::control::inspection::milliseconds;
use crate::notice::wall_time;
use crate::owner::{Owner, wall_clock};

/// The longest wait for an event: a caller that wants more asks again.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

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
        Ok(self.owner.ask(|answer| Command::Control(ControlCommand::Inspect { answer })).await?)
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
        let long_poll = if wait.is_zero() { LongPoll::No } else { LongPoll::Yes };
        let after = request.after;
        let ask = |answer| Command::Control(ControlCommand::Events { after, long_poll, answer });
        let asked = self.owner.ask(ask);
        match long_poll {
            LongPoll::No => Ok(asked.await?),
            LongPoll::Yes => match tokio::time::timeout(wait, asked).await {
                Ok(answer) => Ok(answer?),
                Err(_) => Ok(EventsResponse { version: VERSION, ..Default::default() }),
            },
        }
    }
}

impl Owner {
    /// The pod as it is, with what is known of containers that are gone.
    pub(crate) fn inspect(&self) -> Inspection {
        let mut inspection = self.pod.inspect(self.now());
        self.ends.complete(&mut inspection);
        inspection
    }

    fn response(&self) -> InspectResponse {
        let inspection = self.inspect();
        let fault = self.fault(&inspection);
        inspection::response(self.identity.clone(), inspection, fault, attention::longest(), self.cost())
    }

    /// Processor time that was spent for the pod outside of its containers' cgroups.
    fn cost(&self) -> Cost {
        let of = |charge| milliseconds(self.reaper.processor_time_for(charge));
        Cost {
            shim_ms: milliseconds(oci_runtime::process::processor_time()),
            probes_ms: of(Charge::Probes),
            hooks_ms: of(Charge::Hooks),
            restarts_ms: of(Charge::Restarts),
            requests_ms: of(Charge::Requests),
            ..Default::default()
        }
    }

    /// What is kept of the pod when it is gone. A container of ctr that is no pod leaves nothing.
    pub(crate) fn past(&self) -> Option<Past> {
        // Before any of the work: this is on the way of each `ctr run`.
        if self.identity.pod_name.is_empty() && !self.pod.plan_is_settled() {
            return None;
        }
        let response = Some(self.response()).filter(|response| !response.containers.is_empty())?;
        let mut past = Past {
            version: VERSION,
            pod: Some(response).into(),
            events: Some(self.events.all()).into(),
            ended_at_ms: i64::try_from(wall_time(wall_clock()).0.as_millis()).unwrap_or_default(),
            ..Default::default()
        };
        past.forget_commands();
        // It is gone, whatever it was.
        past.pod.mut_or_insert_default().fault = String::new();
        Some(past)
    }

    /// Answers an operator.
    pub(crate) fn on_control(&mut self, command: ControlCommand) {
        match command {
            ControlCommand::Inspect { answer } => drop(answer.send(Ok(self.response()))),
            ControlCommand::Stop { grace, answer } => {
                info!(?grace, "asked to stop by an operator: the pod is stopped in order");
                let grace = grace.map(|grace| self.at_most(grace));
                self.feed(Event::StopPod { grace });
                drop(answer.send(Ok(())));
            }
            ControlCommand::Events { after, long_poll, answer } => self.events.ask(after, long_poll, answer),
        }
    }
}
