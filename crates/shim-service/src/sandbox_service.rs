//! containerd's Sandbox service, for `sandboxer = "shim"` (CONTRACT §5).
//!
//! Owns the translation between its messages and commands. What a request needs more than one command for runs in a task of its
//! own: containerd can drop a handler at any await (DESIGN §3).

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use containerd_shim_protos::sandbox_api::{
    CreateSandboxRequest, CreateSandboxResponse, PingRequest, PingResponse, PlatformRequest,
    PlatformResponse, SandboxMetricsRequest, SandboxMetricsResponse, SandboxStatusRequest,
    SandboxStatusResponse, ShutdownSandboxRequest, ShutdownSandboxResponse, StartSandboxRequest,
    StartSandboxResponse, StopSandboxRequest, StopSandboxResponse, WaitSandboxRequest, WaitSandboxResponse,
};
use containerd_shim_protos::sandbox_async::Sandbox;
use containerd_shim_protos::types::platform::Platform;
use pod_lifecycle::{ContainerId, Exit, Reach, RefusalKind, Reply, Request, Status, Target, WallTime};
use pod_spec::Signal;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;
use ttrpc::asynchronous::TtrpcContext;

use crate::clock::{timestamp, wall_now};
use crate::command::{Command, OwnerHandle, SandboxCommand, SandboxStatus};
use crate::error::ServiceError;
use crate::pod_sandbox::SandboxDetails;
use crate::pod_sandbox::config::PodConfig;

/// CONTRACT §5: a sandbox has no pid. containerd then names `/proc/0/ns/...`, which podshim replaces.
const NO_PID: u32 = 0;
/// How long the answer to ShutdownSandbox has until the shim ends.
const LAST_ANSWER: Duration = Duration::from_millis(50);
const SPEC: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";

/// The Sandbox service of one pod.
#[derive(Debug)]
pub(crate) struct SandboxService {
    owner: OwnerHandle,
}

impl SandboxService {
    pub(crate) fn new(owner: OwnerHandle) -> Self {
        Self { owner }
    }

    async fn status_of(&self, id: &str) -> Result<SandboxStatus, ServiceError> {
        let sandbox = ContainerId::from(id);
        self.owner.ask(|answer| Command::Sandbox(SandboxCommand::Status { sandbox, answer })).await
    }
}

#[async_trait]
impl Sandbox for SandboxService {
    async fn create_sandbox(
        &self,
        _: &TtrpcContext,
        request: CreateSandboxRequest,
    ) -> ttrpc::Result<CreateSandboxResponse> {
        let config = PodConfig::of(request.options.as_ref())
            .map_err(|error| ServiceError::Invalid {
                container: request.sandbox_id.clone(),
                message: error.to_string(),
            })?
            .unwrap_or_else(|| PodConfig::without_cri(&request.netns_path));
        let sandbox = ContainerId::from(request.sandbox_id.as_str());
        let bundle = PathBuf::from(request.bundle_path);
        let details = Box::new(SandboxDetails { bundle, config, netns_path: request.netns_path });
        self.owner
            .ask(|answer| Command::Sandbox(SandboxCommand::Create { sandbox, details, answer }))
            .await?;
        Ok(CreateSandboxResponse::new())
    }

    async fn start_sandbox(
        &self,
        _: &TtrpcContext,
        request: StartSandboxRequest,
    ) -> ttrpc::Result<StartSandboxResponse> {
        pod(&self.owner, Request::Start(target(&request.sandbox_id))).await?;
        let status = self.status_of(&request.sandbox_id).await?;
        let spec = Any { type_url: SPEC.to_owned(), value: status.spec, ..Any::default() };
        Ok(StartSandboxResponse {
            pid: NO_PID,
            created_at: MessageField::some(timestamp(status.created_at)),
            spec: MessageField::some(spec),
            ..Default::default()
        })
    }

    async fn platform(&self, _: &TtrpcContext, _: PlatformRequest) -> ttrpc::Result<PlatformResponse> {
        // As Go calls them.
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let platform =
            Platform { os: "linux".to_owned(), architecture: architecture.to_owned(), ..Default::default() };
        Ok(PlatformResponse { platform: MessageField::some(platform), ..Default::default() })
    }

    async fn wait_sandbox(
        &self,
        _: &TtrpcContext,
        request: WaitSandboxRequest,
    ) -> ttrpc::Result<WaitSandboxResponse> {
        let mut response = WaitSandboxResponse::new();
        if let Reply::Exit(Exit { code, at }) =
            pod(&self.owner, Request::Wait(target(&request.sandbox_id))).await?
        {
            response.exit_status = code;
            response.exited_at = MessageField::some(timestamp(at));
        }
        Ok(response)
    }

    async fn sandbox_status(
        &self,
        _: &TtrpcContext,
        request: SandboxStatusRequest,
    ) -> ttrpc::Result<SandboxStatusResponse> {
        let status = self.status_of(&request.sandbox_id).await?;
        let state = match status.status {
            Status::Running | Status::Paused => "SANDBOX_READY",
            Status::Created | Status::Stopped => "SANDBOX_NOTREADY",
        };
        let mut response = SandboxStatusResponse {
            sandbox_id: request.sandbox_id,
            pid: NO_PID,
            state: state.to_owned(),
            created_at: MessageField::some(timestamp(status.created_at)),
            ..Default::default()
        };
        if status.exited_at != WallTime::default() {
            response.exited_at = MessageField::some(timestamp(status.exited_at));
        }
        if request.verbose {
            response.info.insert("info".to_owned(), status.info);
        }
        Ok(response)
    }

    async fn stop_sandbox(
        &self,
        _: &TtrpcContext,
        request: StopSandboxRequest,
    ) -> ttrpc::Result<StopSandboxResponse> {
        let owner = self.owner.clone();
        detached(async move { stop(&owner, &request.sandbox_id).await }).await?;
        Ok(StopSandboxResponse::new())
    }

    async fn ping_sandbox(&self, _: &TtrpcContext, _: PingRequest) -> ttrpc::Result<PingResponse> {
        Ok(PingResponse::new())
    }

    async fn shutdown_sandbox(
        &self,
        _: &TtrpcContext,
        request: ShutdownSandboxRequest,
    ) -> ttrpc::Result<ShutdownSandboxResponse> {
        let owner = self.owner.clone();
        detached(async move {
            stop(&owner, &request.sandbox_id).await?;
            let target = target(&request.sandbox_id);
            let deleted = owner.ask(|answer| Command::Delete { target, limit: None, answer }).await;
            unless_not_found(deleted)?;
            // A server that ends closes its connections, in one of a hundred ends before its last answer is written (2.3.4
            // under load); containerd then reports that the pod cannot be removed.
            tokio::spawn(async move {
                tokio::time::sleep(LAST_ANSWER).await;
                // If the owner has ended, so has the shim.
                let _ = owner.ask(|answer| Command::Shutdown { answer }).await;
            });
            Ok(())
        })
        .await?;
        Ok(ShutdownSandboxResponse::new())
    }

    async fn sandbox_metrics(
        &self,
        _: &TtrpcContext,
        request: SandboxMetricsRequest,
    ) -> ttrpc::Result<SandboxMetricsResponse> {
        let sandbox = ContainerId::from(request.sandbox_id.as_str());
        let data =
            self.owner.ask(|answer| Command::Sandbox(SandboxCommand::Metrics { sandbox, answer })).await?;
        let mut response = SandboxMetricsResponse::new();
        // The protocol's crate does not export the message's type.
        let metric = response.metrics.mut_or_insert_default();
        metric.id = request.sandbox_id;
        metric.timestamp = MessageField::some(timestamp(wall_now()));
        metric.data = MessageField::some(data);
        Ok(response)
    }
}

/// Does the work to its end, also if the caller is gone meanwhile.
async fn detached<T: Send + 'static>(
    work: impl Future<Output = Result<T, ServiceError>> + Send + 'static,
) -> Result<T, ServiceError> {
    tokio::spawn(work).await.unwrap_or(Err(ServiceError::ShuttingDown))
}

/// Ends the sandbox, after its containers (K13), and waits: CNI removes the network when this is answered. Idempotent.
async fn stop(owner: &OwnerHandle, id: &str) -> Result<(), ServiceError> {
    let kill = Request::Kill { target: target(id), signal: Signal::KILL, reach: Reach::Process };
    if unless_not_found(pod(owner, kill).await)?.is_some() {
        unless_not_found(pod(owner, Request::Wait(target(id))).await)?;
    }
    Ok(())
}

async fn pod(owner: &OwnerHandle, request: Request) -> Result<Reply, ServiceError> {
    owner.ask(|answer| Command::Pod { request, answer }).await
}

/// `None`: it has ended, or there never was one.
fn unless_not_found(result: Result<Reply, ServiceError>) -> Result<Option<Reply>, ServiceError> {
    match result {
        Ok(reply) => Ok(Some(reply)),
        Err(ServiceError::Refused(refusal)) if refusal.kind == RefusalKind::NotFound => Ok(None),
        Err(ServiceError::ShuttingDown) => Ok(None),
        Err(error) => Err(error),
    }
}

fn target(id: &str) -> Target {
    Target::init(ContainerId::from(id))
}
