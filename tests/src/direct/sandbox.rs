//! A sandbox that a shim makes without containerd: of specs, and on nodes, that CRI's plugin does not have.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use containerd_shim_protos::shim::shim::{
    ConnectRequest, ConnectResponse, CreateTaskRequest, CreateTaskResponse, DeleteRequest, DeleteResponse,
    KillRequest, StartRequest, StartResponse, WaitRequest, WaitResponse,
};
use containerd_shim_protos::types::empty::Empty;
use serde_json::json;

use super::bundle::{Bundle, root_file_system};
use super::shim::{Binary, Connection};
use crate::instance::Containerd;
use crate::{Runtime, task};

/// A shim, and the sandbox that it is asked for.
pub struct DirectSandbox<'node> {
    node: &'node Containerd,
    id: String,
    connection: Connection,
    directory: PathBuf,
}

impl<'node> DirectSandbox<'node> {
    /// Starts the shim, as `change` has its binary. All of it is in `directory`.
    ///
    /// # Errors
    /// If it does not start, or cannot be connected to.
    pub async fn of(
        node: &'node Containerd,
        directory: &Path,
        change: impl FnOnce(Binary) -> Result<Binary>,
    ) -> Result<Self> {
        let id = task::unique("direct");
        let bundle = directory.join(&id);
        std::fs::create_dir(&bundle)?;
        let shim = Binary::find(node, Runtime::Podshim, "podshim-e2e".to_owned(), directory)?;
        let started = change(shim)?.act("start", &id, &bundle, None).await?;
        let (connection, _) =
            Connection::open(&started.stdout).await.with_context(|| format!("{started:?}"))?;
        Ok(Self { node, id, connection, directory: directory.to_owned() })
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The pid of its shim.
    ///
    /// # Errors
    /// The shim's.
    pub async fn shim(&self) -> Result<libc::pid_t> {
        let connect = ConnectRequest { id: self.id.clone(), ..Default::default() };
        let connected: ConnectResponse = self.connection.call("Connect", &connect).await?;
        Ok(connected.shim_pid.try_into()?)
    }

    /// Writes its bundle, which `change` has changed, and returns the request that creates it.
    ///
    /// # Errors
    /// If the bundle cannot be written.
    pub fn prepare(&self, change: impl FnOnce(Bundle) -> Result<Bundle>) -> Result<CreateTaskRequest> {
        self.prepare_in(&format!("{}/{}", self.node.cgroup(), self.id), change)
    }

    /// [`prepare`](Self::prepare) with the path of its control groups.
    ///
    /// # Errors
    /// If the bundle cannot be written.
    pub fn prepare_in(
        &self,
        cgroup: &str,
        change: impl FnOnce(Bundle) -> Result<Bundle>,
    ) -> Result<CreateTaskRequest> {
        let kind = json!({"io.kubernetes.cri.container-type": "sandbox"});
        let bundle = Bundle::program(&["sleep", "600"]).spec(|spec| spec["annotations"] = kind);
        let bundle = change(bundle)?;
        let path = self.directory.join(&self.id);
        bundle.write(&path, cgroup)?;
        Ok(CreateTaskRequest {
            id: self.id.clone(),
            bundle: path.to_string_lossy().into_owned(),
            rootfs: vec![root_file_system(&self.directory)?],
            options: bundle.options.into(),
            ..Default::default()
        })
    }

    /// Calls Create.
    ///
    /// # Errors
    /// The shim's.
    pub async fn try_create(&self, create: &CreateTaskRequest) -> Result<(), ttrpc::Error> {
        self.connection.call::<_, CreateTaskResponse>("Create", create).await.map(drop)
    }

    /// Calls Start.
    ///
    /// # Errors
    /// The shim's.
    pub async fn start(&self) -> Result<()> {
        let start = StartRequest { id: self.id.clone(), ..Default::default() };
        let _: StartResponse = self.connection.call("Start", &start).await?;
        Ok(())
    }

    /// Creates and starts a sandbox, whose bundle `change` has changed.
    ///
    /// # Errors
    /// If the bundle cannot be written, and the shim's.
    pub async fn create(&self, change: impl FnOnce(Bundle) -> Result<Bundle>) -> Result<()> {
        self.try_create(&self.prepare(change)?).await?;
        self.start().await
    }

    /// The directory in /proc of its only process.
    ///
    /// # Errors
    /// If there is none.
    pub fn process(&self) -> Result<PathBuf> {
        // Not by its pid, which is one of the shim's own pid namespace.
        let (group, scope) = (format!("/{}", self.id), format!("/cri-containerd-{}.scope", self.id));
        for entry in std::fs::read_dir("/proc")? {
            let process = entry?.path();
            // Not a process, or gone by now.
            let groups = std::fs::read_to_string(process.join("cgroup")).unwrap_or_default();
            if groups.lines().any(|line| line.ends_with(&group) || line.ends_with(&scope)) {
                return Ok(process);
            }
        }
        bail!("no process is in {group}")
    }

    /// Calls the `delete` action, as containerd does for a shim that is dead.
    ///
    /// # Errors
    /// If it cannot be run, or reports a problem.
    pub async fn delete_of_dead_shim(&self) -> Result<()> {
        let shim = Binary::find(self.node, Runtime::Podshim, "podshim-e2e".to_owned(), &self.directory)?;
        let deleted = shim.act("delete", &self.id, &self.directory.join(&self.id), None).await?;
        ensure!(deleted.exit_code == Some(0) && deleted.stderr.is_empty(), "{deleted:?}");
        Ok(())
    }

    /// Ends the sandbox, if there is one, and the shim.
    ///
    /// # Errors
    /// The shim's.
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
