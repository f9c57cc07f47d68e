//! podshim's own API on the shim's socket (proto/podshim/v1/pod.proto): the service, and beside it what operators are shown.
//!
//! Owns the translation of requests and answers, the pod's history, its counts and the last exits of its containers. Decides nothing of
//! the pod. Nothing below this folder may know the owner's state.

pub(crate) mod counters;
pub(crate) mod fault;
pub(crate) mod history;
pub(crate) mod inspection;
pub(crate) mod last_exits;
pub(crate) mod log;
pub(crate) mod restart_requests;

use std::time::Duration;

use async_trait::async_trait;
use control_api::{
    EventsRequest, EventsResponse, InspectRequest, InspectResponse, KubeletsOwnRequest, KubeletsOwnResponse,
    RestartRequest, RestartResponse, StopRequest, StopResponse, SwitchRequest, SwitchResponse, VERSION,
};
use pod_lifecycle::Request;
use pod_spec::BoundedDuration;
use ttrpc::asynchronous::TtrpcContext;

use crate::command::{Command, ControlCommand, LongPoll, OwnerHandle};

/// The longest wait for an event; a caller that wants to wait longer asks again. It ends the waits of callers that have gone. Each end
/// wakes the shim of an idle pod, and its caller.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

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

    async fn restart(&self, _: &TtrpcContext, restart: RestartRequest) -> ttrpc::Result<RestartResponse> {
        let request = restart.request;
        self.owner.ask(|answer| Command::Control(ControlCommand::Restart { request, answer })).await?;
        Ok(RestartResponse { version: VERSION, ..Default::default() })
    }

    async fn kubelets_own(
        &self,
        _: &TtrpcContext,
        request: KubeletsOwnRequest,
    ) -> ttrpc::Result<KubeletsOwnResponse> {
        let request = Request::KubeletsOwn(request.names.into_iter().collect());
        self.owner.ask(|answer| Command::Pod { request, answer }).await?;
        Ok(KubeletsOwnResponse { version: VERSION, ..Default::default() })
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
