//! A shim of the benchmark's own, without containerd: for measurements of the binary and of its Task service. Owns its
//! directory, its bundles and the socket that takes the place of containerd's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use containerd_shim_protos::api::{
    CreateTaskRequest, CreateTaskResponse, DeleteRequest, DeleteResponse, Empty, KillRequest,
    ShutdownRequest, StartRequest, StartResponse, WaitRequest, WaitResponse,
};
use e2e::direct::bundle::{Bundle, root_file_system};
use e2e::direct::shim::{Binary, Connection};
use e2e::{Containerd, Runtime};
use nix::mount::{MntFlags, umount2};
use protobuf::Message;
use tempfile::TempDir;

use crate::rounds::timed;

/// Paths of a container's streams; an empty path means no stream.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    pub stdin: String,
    pub stdout: String,
    pub stderr: String,
}

/// One shim and its containers.
pub struct OwnShim {
    binary: Binary,
    directory: TempDir,
    cgroup: String,
    /// What `start` printed.
    address: Vec<u8>,
    connection: Option<Connection>,
    logs: Vec<std::fs::File>,
    bundles: Vec<String>,
}

impl OwnShim {
    /// Measures with the shim that this containerd would run, and ends the shim, also after an error.
    pub async fn with(
        node: &Containerd,
        runtime: Runtime,
        measurement: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let mut shim = Self::prepare(node, runtime)?;
        let measured = measurement(&mut shim).await;
        if measured.is_err() {
            shim.remove_containers().await;
        }
        measured.and(shim.end().await)
    }

    /// Prepares the files of a shim, and starts nothing.
    fn prepare(node: &Containerd, runtime: Runtime) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("podshim-bench").tempdir()?;
        let namespace =
            format!("bench-{}", directory.path().file_name().unwrap_or_default().to_string_lossy());
        let binary = Binary::find(node, runtime, namespace.clone(), directory.path())?;
        Ok(Self {
            binary,
            cgroup: format!("{}/{namespace}", node.cgroup()),
            directory,
            address: Vec::new(),
            connection: None,
            logs: Vec::new(),
            bundles: Vec::new(),
        })
    }

    /// Where its files are.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// containerd's namespace, which no other shim has.
    pub fn namespace(&self) -> &str {
        &self.binary.namespace
    }

    fn bundle_path(&self, id: &str) -> PathBuf {
        self.directory().join("bundles").join(id)
    }

    /// Writes a bundle, runs the `start` action for it and connects to the printed address. Returns how long `start`
    /// took.
    pub async fn start_action(&mut self, id: &str, bundle: &Bundle) -> Result<Duration> {
        let path = self.bundle_path(id);
        bundle.write(&path, &format!("{}-{id}", self.cgroup))?;
        // containerd holds the other end of the log.
        self.logs.push(std::fs::OpenOptions::new().read(true).write(true).open(path.join("log"))?);
        self.bundles.push(id.to_owned());
        let (answer, time) = timed(self.binary.act("start", id, &path, None)).await?;
        ensure!(answer.exit_code == Some(0), "start: {:?}: {}", answer.exit_code, answer.stderr);
        self.address = answer.stdout;
        let (connection, _) = Connection::open(&self.address).await?;
        self.connection = Some(connection);
        Ok(time)
    }

    /// Create, and how long it took.
    pub async fn create(&self, id: &str, streams: &Addresses, terminal: Terminal) -> Result<Duration> {
        let request = CreateTaskRequest {
            id: id.to_owned(),
            bundle: self.bundle_path(id).to_string_lossy().into_owned(),
            rootfs: vec![self.root()?],
            terminal: terminal == Terminal::Yes,
            stdin: streams.stdin.clone(),
            stdout: streams.stdout.clone(),
            stderr: streams.stderr.clone(),
            ..Default::default()
        };
        Ok(self.call::<CreateTaskResponse>("Create", &request).await?.1)
    }

    fn root(&self) -> Result<containerd_shim_protos::types::mount::Mount> {
        let mut mount = containerd_shim_protos::types::mount::Mount::new();
        let root = self.directory().join("root");
        if !root.exists() {
            return root_file_system(self.directory());
        }
        mount.type_ = "bind".to_owned();
        mount.source = root.to_string_lossy().into_owned();
        mount.options = vec!["rbind".to_owned(), "rw".to_owned()];
        Ok(mount)
    }

    /// Start of a container or (with an exec id) of an exec.
    pub async fn start(&self, id: &str, exec_id: &str) -> Result<(StartResponse, Duration)> {
        let request = StartRequest { id: id.to_owned(), exec_id: exec_id.to_owned(), ..Default::default() };
        self.call("Start", &request).await
    }

    /// Kill, and how long the answer took.
    pub async fn kill(&self, id: &str, signal: i32) -> Result<Duration> {
        let request = KillRequest { id: id.to_owned(), signal: signal.try_into()?, ..Default::default() };
        Ok(self.call::<Empty>("Kill", &request).await?.1)
    }

    /// Wait: how long until the shim reported the end.
    pub async fn wait(&self, id: &str, exec_id: &str) -> Result<Duration> {
        let request = WaitRequest { id: id.to_owned(), exec_id: exec_id.to_owned(), ..Default::default() };
        Ok(self.call::<WaitResponse>("Wait", &request).await?.1)
    }

    /// Delete, and how long it took.
    pub async fn delete(&self, id: &str, exec_id: &str) -> Result<Duration> {
        let request = DeleteRequest { id: id.to_owned(), exec_id: exec_id.to_owned(), ..Default::default() };
        Ok(self.call::<DeleteResponse>("Delete", &request).await?.1)
    }

    /// Any request, and how long its answer took.
    pub async fn call<R: Message>(&self, method: &str, request: &impl Message) -> Result<(R, Duration)> {
        let connection = self.connection()?;
        timed(async { connection.call(method, request).await.with_context(|| method.to_owned()) }).await
    }

    /// The connection, which many requests can share.
    pub fn connection(&self) -> Result<&Connection> {
        self.connection.as_ref().context("no shim was started")
    }

    /// Removes the containers that exist after a failure. Reconnects, because the connection may have failed.
    async fn remove_containers(&mut self) {
        if let Ok((connection, _)) = Connection::open(&self.address).await {
            self.connection = Some(connection);
        }
        for id in &self.bundles {
            // A container that has ended, or was never created, refuses some of these.
            let _ = self.kill(id, libc::SIGKILL).await;
            let _ = self.wait(id, "").await;
            let _ = self.delete(id, "").await;
        }
    }

    /// Ends the shim, whose containers must be deleted, as containerd does: Shutdown, then the `delete` action.
    async fn end(mut self) -> Result<()> {
        let id = self.bundles.first().cloned().unwrap_or_default();
        let request = ShutdownRequest { id, ..Default::default() };
        // The shim ends, and its connection with it, so an answer may be missing.
        let _ = self.call::<Empty>("Shutdown", &request).await;
        let mut ended = Ok(());
        for id in std::mem::take(&mut self.bundles) {
            let path = self.bundle_path(&id);
            ended = ended.and(self.binary.act("delete", &id, &path, None).await.map(drop));
            // If the shim left the mount to containerd, the directory could not be removed.
            let _ = umount2(&path.join("rootfs"), MntFlags::MNT_DETACH);
        }
        ended
    }
}

/// Whether a container has a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terminal {
    No,
    Yes,
}
