//! A CRI client: one method per call the tests make, with plain arguments. Adds no retries and no state: the test sees
//! containerd's answers unchanged.

mod messages;

pub(crate) use messages::{
    Capability, IdMapping, ImageSpec, KeyValue, LinuxContainerConfig, LinuxContainerResources,
    LinuxContainerSecurityContext, LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount, NamespaceMode,
    NamespaceOption, ProfileType, SecurityProfile, UserNamespace,
};
pub use messages::{
    Container, ContainerConfig, ContainerMetadata, ContainerState, ContainerStats, ContainerStatus, CpuUsage,
    MemoryUsage, PodSandbox, PodSandboxConfig, PodSandboxMetadata, PodSandboxState, PodSandboxStatusResponse,
    RuntimeHandlerFeatures, UInt64Value,
};

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use messages::{
    ContainerStatsResponse, ContainerStatusResponse, CreateContainerRequest, ExecSyncRequest,
    ExecSyncResponse, Id, ListContainersResponse, ListPodSandboxResponse, Nothing, RunPodSandboxRequest,
    StatusOfRequest, StatusResponse, StopContainerRequest, UpdateContainerResourcesRequest,
};
use prost::Message;
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

/// The output and exit code of a command in a container.
#[derive(Debug, PartialEq, Eq)]
pub struct ExecOutput {
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
    /// Its exit code.
    pub exit_code: i32,
}

/// A CRI client of one containerd. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Cri {
    channel: Channel,
}

impl Cri {
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let socket = socket.to_str().context("the socket's path is not UTF-8")?;
        // Lazy: the channel connects at each first call, so a client outlives a restart of containerd.
        let channel = Endpoint::from_shared(format!("unix://{socket}"))?.connect_lazy();
        Ok(Self { channel })
    }

    /// One call of the runtime service. What is not read of the answer is skipped.
    async fn call<Q, A>(&self, method: &str, request: Q) -> Result<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        self.call_with_metadata(method, Request::new(request)).await
    }

    async fn call_with_metadata<Q, A>(&self, method: &str, request: Request<Q>) -> Result<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel.clone());
        client.ready().await?;
        let path = format!("/runtime.v1.RuntimeService/{method}").parse()?;
        Ok(client.unary(request, path, ProstCodec::default()).await?.into_inner())
    }

    /// A call that names a sandbox or a container, and whose answer is empty.
    async fn call_of(&self, method: &str, id: &str) -> Result<()> {
        let Nothing {} = self.call(method, Id { id: id.to_owned() }).await?;
        Ok(())
    }

    /// RunPodSandbox with a runtime handler of containerd's configuration; gives the sandbox's id.
    ///
    /// # Errors
    /// The error that the call returns; likewise for all methods here.
    pub async fn run_pod_sandbox(&self, config: &PodSandboxConfig, handler: &str) -> Result<String> {
        let request =
            RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.to_owned() };
        let Id { id } = self.call("RunPodSandbox", request).await?;
        Ok(id)
    }

    /// CreateContainer; gives the container's id.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn create_container(
        &self,
        sandbox: &str,
        config: ContainerConfig,
        sandbox_config: &PodSandboxConfig,
    ) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config.clone()),
        };
        let Id { id } = self.call("CreateContainer", request).await?;
        Ok(id)
    }

    /// StartContainer.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn start_container(&self, id: &str) -> Result<()> {
        self.call_of("StartContainer", id).await
    }

    /// StartContainer as part of a caller's trace (`traceparent` of W3C Trace Context).
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn start_container_of_trace(&self, id: &str, traceparent: &str) -> Result<()> {
        let mut request = Request::new(Id { id: id.to_owned() });
        request.metadata_mut().insert("traceparent", traceparent.parse()?);
        let Nothing {} = self.call_with_metadata("StartContainer", request).await?;
        Ok(())
    }

    /// StopContainer: the stop signal, and SIGKILL after `timeout` (whole seconds; zero is SIGKILL at once). Returns
    /// when the container has exited.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn stop_container(&self, id: &str, timeout: Duration) -> Result<()> {
        let timeout = i64::try_from(timeout.as_secs())?;
        let request = StopContainerRequest { container_id: id.to_owned(), timeout };
        let Nothing {} = self.call("StopContainer", request).await?;
        Ok(())
    }

    /// RemoveContainer.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn remove_container(&self, id: &str) -> Result<()> {
        self.call_of("RemoveContainer", id).await
    }

    /// ContainerStatus.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn container_status(&self, id: &str) -> Result<ContainerStatus> {
        let request = StatusOfRequest { id: id.to_owned(), verbose: false };
        let answer: ContainerStatusResponse = self.call("ContainerStatus", request).await?;
        answer.status.context("no status in the answer")
    }

    /// The pid of a container's init process, from the verbose part of ContainerStatus.
    ///
    /// # Errors
    /// The error that the call returns, or if it names no pid.
    pub async fn container_pid(&self, id: &str) -> Result<libc::pid_t> {
        let request = StatusOfRequest { id: id.to_owned(), verbose: true };
        let answer: ContainerStatusResponse = self.call("ContainerStatus", request).await?;
        let info: serde_json::Value = serde_json::from_str(answer.info.get("info").context("no info")?)?;
        Ok(info["pid"].as_i64().context("no pid in the info")?.try_into()?)
    }

    /// ListContainers, those of one sandbox, in no particular order.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn list_containers(&self, sandbox: &str) -> Result<Vec<Container>> {
        let ListContainersResponse { mut containers } = self.call("ListContainers", Nothing {}).await?;
        containers.retain(|container| container.pod_sandbox_id == sandbox);
        Ok(containers)
    }

    /// ContainerStats.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn container_stats(&self, id: &str) -> Result<ContainerStats> {
        let answer: ContainerStatsResponse = self.call("ContainerStats", Id { id: id.to_owned() }).await?;
        answer.stats.context("no stats in the answer")
    }

    /// UpdateContainerResources: a new memory limit, in bytes.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn update_memory_limit(&self, id: &str, bytes: i64) -> Result<()> {
        let resources =
            LinuxContainerResources { memory_limit_in_bytes: bytes, ..LinuxContainerResources::default() };
        let request = UpdateContainerResourcesRequest { container_id: id.to_owned(), linux: Some(resources) };
        let Nothing {} = self.call("UpdateContainerResources", request).await?;
        Ok(())
    }

    /// ExecSync: runs a command in a container and waits for it, `timeout` at most (whole seconds).
    ///
    /// # Errors
    /// The error that the call returns; a command that exits with another code than 0 is no error.
    pub async fn exec_sync(&self, id: &str, command: &[&str], timeout: Duration) -> Result<ExecOutput> {
        let request = ExecSyncRequest {
            container_id: id.to_owned(),
            cmd: command.iter().map(|&word| word.to_owned()).collect(),
            timeout: i64::try_from(timeout.as_secs())?,
        };
        let response: ExecSyncResponse = self.call("ExecSync", request).await?;
        Ok(ExecOutput {
            stdout: String::from_utf8_lossy(&response.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&response.stderr).into_owned(),
            exit_code: response.exit_code,
        })
    }

    /// ListPodSandbox: all of them.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn list_pod_sandboxes(&self) -> Result<Vec<PodSandbox>> {
        let ListPodSandboxResponse { items } = self.call("ListPodSandbox", Nothing {}).await?;
        Ok(items)
    }

    /// The features that Status reports to the kubelet for a runtime handler. `None` from a containerd that reports no
    /// handlers (1.x), or if this one is not among them.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn handler_features(&self, handler: &str) -> Result<Option<RuntimeHandlerFeatures>> {
        let status: StatusResponse = self.call("Status", Nothing {}).await?;
        let found = status.runtime_handlers.into_iter().find(|known| known.name == handler);
        Ok(found.map(|handler| handler.features.unwrap_or_default()))
    }

    /// PodSandboxStatus, with the verbose part.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn pod_sandbox_status(&self, sandbox: &str) -> Result<PodSandboxStatusResponse> {
        self.call("PodSandboxStatus", StatusOfRequest { id: sandbox.to_owned(), verbose: true }).await
    }

    /// StopPodSandbox: SIGKILL to every container, one after another, then to the pause container.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn stop_pod_sandbox(&self, sandbox: &str) -> Result<()> {
        self.call_of("StopPodSandbox", sandbox).await
    }

    /// RemovePodSandbox: also removes its containers.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn remove_pod_sandbox(&self, sandbox: &str) -> Result<()> {
        self.call_of("RemovePodSandbox", sandbox).await
    }
}
