//! A CRI client: one method per call the tests make, with plain arguments. Adds no retries and no state: the test sees
//! containerd's answers unchanged.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_cri::v1::{
    Container, ContainerConfig, ContainerStats, ContainerStatsRequest, ContainerStatus,
    ContainerStatusRequest, CreateContainerRequest, ExecSyncRequest, LinuxContainerResources,
    ListContainersRequest, ListPodSandboxRequest, PodSandbox, PodSandboxConfig, PodSandboxStatusRequest,
    PodSandboxStatusResponse, RemoveContainerRequest, RemovePodSandboxRequest, RunPodSandboxRequest,
    RuntimeHandlerFeatures, StartContainerRequest, StatusRequest, StopContainerRequest,
    StopPodSandboxRequest, UpdateContainerResourcesRequest, runtime_service_client::RuntimeServiceClient,
};
use tonic::transport::{Channel, Endpoint};

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
    client: RuntimeServiceClient<Channel>,
}

impl Cri {
    pub(crate) fn connect(socket: &Path) -> Result<Self> {
        let socket = socket.to_str().context("the socket's path is not UTF-8")?;
        // Lazy: the channel connects at each first call, so a client outlives a restart of containerd.
        let channel = Endpoint::from_shared(format!("unix://{socket}"))?.connect_lazy();
        Ok(Self { client: RuntimeServiceClient::new(channel) })
    }

    /// RunPodSandbox with a runtime handler of containerd's configuration; gives the sandbox's id.
    ///
    /// # Errors
    /// The error that the call returns; likewise for all methods here.
    pub async fn run_pod_sandbox(&self, config: &PodSandboxConfig, handler: &str) -> Result<String> {
        let request =
            RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.to_owned() };
        Ok(self.client.clone().run_pod_sandbox(request).await?.into_inner().pod_sandbox_id)
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
        Ok(self.client.clone().create_container(request).await?.into_inner().container_id)
    }

    /// StartContainer.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn start_container(&self, id: &str) -> Result<()> {
        self.client.clone().start_container(StartContainerRequest { container_id: id.to_owned() }).await?;
        Ok(())
    }

    /// StartContainer as part of a caller's trace (`traceparent` of W3C Trace Context).
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn start_container_of_trace(&self, id: &str, traceparent: &str) -> Result<()> {
        let mut request = tonic::Request::new(StartContainerRequest { container_id: id.to_owned() });
        request.metadata_mut().insert("traceparent", traceparent.parse()?);
        self.client.clone().start_container(request).await?;
        Ok(())
    }

    /// StopContainer: the stop signal, and SIGKILL after `timeout` (whole seconds; zero is SIGKILL at once). Returns
    /// when the container has exited.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn stop_container(&self, id: &str, timeout: Duration) -> Result<()> {
        let timeout = i64::try_from(timeout.as_secs())?;
        self.client
            .clone()
            .stop_container(StopContainerRequest { container_id: id.to_owned(), timeout })
            .await?;
        Ok(())
    }

    /// RemoveContainer.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn remove_container(&self, id: &str) -> Result<()> {
        self.client.clone().remove_container(RemoveContainerRequest { container_id: id.to_owned() }).await?;
        Ok(())
    }

    /// ContainerStatus.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn container_status(&self, id: &str) -> Result<ContainerStatus> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        self.client
            .clone()
            .container_status(request)
            .await?
            .into_inner()
            .status
            .context("no status in the answer")
    }

    /// The pid of a container's init process, from the verbose part of ContainerStatus.
    ///
    /// # Errors
    /// The error that the call returns, or if it names no pid.
    pub async fn container_pid(&self, id: &str) -> Result<libc::pid_t> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let response = self.client.clone().container_status(request).await?.into_inner();
        let info: serde_json::Value = serde_json::from_str(response.info.get("info").context("no info")?)?;
        Ok(info["pid"].as_i64().context("no pid in the info")?.try_into()?)
    }

    /// ListContainers, those of one sandbox, in no particular order.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn list_containers(&self, sandbox: &str) -> Result<Vec<Container>> {
        let response = self.client.clone().list_containers(ListContainersRequest::default()).await?;
        let mut containers = response.into_inner().containers;
        containers.retain(|container| container.pod_sandbox_id == sandbox);
        Ok(containers)
    }

    /// ContainerStats.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn container_stats(&self, id: &str) -> Result<ContainerStats> {
        let request = ContainerStatsRequest { container_id: id.to_owned() };
        self.client
            .clone()
            .container_stats(request)
            .await?
            .into_inner()
            .stats
            .context("no stats in the answer")
    }

    /// UpdateContainerResources: a new memory limit, in bytes.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn update_memory_limit(&self, id: &str, bytes: i64) -> Result<()> {
        let resources =
            LinuxContainerResources { memory_limit_in_bytes: bytes, ..LinuxContainerResources::default() };
        let request = UpdateContainerResourcesRequest {
            container_id: id.to_owned(),
            linux: Some(resources),
            ..UpdateContainerResourcesRequest::default()
        };
        self.client.clone().update_container_resources(request).await?;
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
        let response = self.client.clone().exec_sync(request).await?.into_inner();
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
        Ok(self.client.clone().list_pod_sandbox(ListPodSandboxRequest::default()).await?.into_inner().items)
    }

    /// The features that Status reports to the kubelet for a runtime handler. `None` from a containerd that reports no
    /// handlers (1.x), or if this one is not among them.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn handler_features(&self, handler: &str) -> Result<Option<RuntimeHandlerFeatures>> {
        let status = self.client.clone().status(StatusRequest { verbose: false }).await?.into_inner();
        let found = status.runtime_handlers.into_iter().find(|known| known.name == handler);
        Ok(found.map(|handler| handler.features.unwrap_or_default()))
    }

    /// PodSandboxStatus, with the verbose part.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn pod_sandbox_status(&self, sandbox: &str) -> Result<PodSandboxStatusResponse> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: true };
        Ok(self.client.clone().pod_sandbox_status(request).await?.into_inner())
    }

    /// StopPodSandbox: SIGKILL to every container, one after another, then to the pause container.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn stop_pod_sandbox(&self, sandbox: &str) -> Result<()> {
        self.client
            .clone()
            .stop_pod_sandbox(StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() })
            .await?;
        Ok(())
    }

    /// RemovePodSandbox: also removes its containers.
    ///
    /// # Errors
    /// The error that the call returns.
    pub async fn remove_pod_sandbox(&self, sandbox: &str) -> Result<()> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.client.clone().remove_pod_sandbox(request).await?;
        Ok(())
    }
}
