//! A sandbox that a shim makes without containerd: of specs, and on nodes, that CRI's plugin does not have.

use std::path::PathBuf;

use anyhow::{Context, Result};
use containerd_shim_protos::shim::shim::{
    CreateTaskRequest, CreateTaskResponse, DeleteRequest, DeleteResponse, KillRequest, StartRequest,
    StartResponse, WaitRequest, WaitResponse,
};
use containerd_shim_protos::types::empty::Empty;
use e2e::direct::bundle::{Bundle, root_file_system};
use e2e::direct::shim::{Binary, Connection};
use e2e::{Containerd, Runtime};
use serde_json::json;
use tempfile::TempDir;

/// A shim, and the sandbox that it is asked for.
pub struct DirectSandbox<'node> {
    node: &'node Containerd,
    id: String,
    connection: Connection,
    directory: TempDir,
}

impl<'node> DirectSandbox<'node> {
    /// Starts the shim, as `change` has its binary.
    pub async fn of(node: &'node Containerd, change: impl FnOnce(Binary) -> Result<Binary>) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let id = e2e::task::unique("direct");
        let bundle = directory.path().join(&id);
        std::fs::create_dir(&bundle)?;
        let shim = Binary::find(node, Runtime::Podshim, "podshim-e2e".to_owned(), directory.path())?;
        let started = change(shim)?.act("start", &id, &bundle, None).await?;
        let (connection, _) =
            Connection::open(&started.stdout).await.with_context(|| format!("{started:?}"))?;
        Ok(Self { node, id, connection, directory })
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    fn bundle(&self) -> PathBuf {
        self.directory.path().join(&self.id)
    }

    /// Creates and starts a sandbox, whose bundle `change` has changed.
    pub async fn create(&self, change: impl FnOnce(Bundle) -> Result<Bundle>) -> Result<()> {
        let kind = json!({"io.kubernetes.cri.container-type": "sandbox"});
        let bundle = Bundle::program(&["sleep", "600"]).spec(|spec| spec["annotations"] = kind);
        let bundle = change(bundle)?;
        bundle.write(&self.bundle(), &format!("{}/{}", self.node.cgroup(), self.id))?;
        let create = CreateTaskRequest {
            id: self.id.clone(),
            bundle: self.bundle().to_string_lossy().into_owned(),
            rootfs: vec![root_file_system(self.directory.path())?],
            options: bundle.options.into(),
            ..Default::default()
        };
        let _: CreateTaskResponse = self.connection.call("Create", &create).await?;
        let start = StartRequest { id: self.id.clone(), ..Default::default() };
        let _: StartResponse = self.connection.call("Start", &start).await?;
        Ok(())
    }

    /// The directory in /proc of its only process.
    pub fn process(&self) -> Result<PathBuf> {
        // Not by its pid, which is one of the shim's own pid namespace.
        let group = format!("/{}", self.id);
        for entry in std::fs::read_dir("/proc")? {
            let process = entry?.path();
            // Not a process, or gone by now.
            let groups = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
            if groups.lines().any(|line| line.ends_with(&group)) {
                return Ok(process);
            }
        }
        anyhow::bail!("no process is in {group}")
    }

    /// Ends the sandbox, if there is one, and the shim.
    pub async fn remove(self) -> Result<()> {
        let id = || self.id.clone();
        if self.process().is_ok() {
            let _: Empty = self
                .connection
                .call("Kill", &KillRequest { id: id(), signal: 15, ..Default::default() })
                .await?;
            let _: WaitResponse =
                self.connection.call("Wait", &WaitRequest { id: id(), ..Default::default() }).await?;
            let _: DeleteResponse =
                self.connection.call("Delete", &DeleteRequest { id: id(), ..Default::default() }).await?;
        }
        self.connection.shutdown(&self.id).await;
        Ok(())
    }
}
