//! One shim as containerd sees it: the binary's `start` and `delete`, and its Task service over ttrpc. Does not
//! interpret requests, and may never correct an answer.

use std::ffi::OsStr;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use crate::durations::pace;
use crate::{Containerd, Runtime};
use anyhow::{Context, Result, bail, ensure};
use containerd_shim_protos::bootstrap_api::BootstrapResult;
use containerd_shim_protos::shim::shim::ShutdownRequest;
use containerd_shim_protos::ttrpc::asynchronous::Client;
use containerd_shim_protos::types::empty::Empty;
use protobuf::Message;
use protobuf::well_known_types::any::Any;
use tokio::io::AsyncWriteExt;

/// Every answer of a healthy shim takes less (times the machine's [`pace`]), also where it waits for systemd in vain.
const CALL_LIMIT: Duration = Duration::from_secs(40);

/// The output of an action of the binary.
#[derive(Debug)]
pub struct ActionOutput {
    /// `None` if a signal ended it.
    pub exit_code: Option<i32>,
    /// For containerd.
    pub stdout: Vec<u8>,
    /// For containerd's log.
    pub stderr: String,
}

/// A shim's binary, and the values that containerd would pass to it.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
    search_path: String,
    /// containerd's namespace.
    pub namespace: String,
    /// Added to its environment.
    pub variables: Vec<(String, String)>,
    /// Socket that receives the events, in place of containerd's ttrpc socket.
    pub events: PathBuf,
    /// Only hashed into the shim's address.
    pub daemon: PathBuf,
}

impl Binary {
    /// The shim that this containerd would run: first its `$PATH`, then beside it (CONTRACT §1.6).
    ///
    /// # Errors
    /// If containerd does not run or there is no such shim.
    pub fn find(node: &Containerd, runtime: Runtime, namespace: String, directory: &Path) -> Result<Self> {
        let pid = std::fs::read_to_string(node.directory().join("containerd.pid"))?;
        let process = Path::new("/proc").join(pid.trim());
        let environment = std::fs::read(process.join("environ"))?;
        let search_path = environment
            .split(|byte| *byte == 0)
            .find_map(|variable| variable.strip_prefix(b"PATH="))
            .context("containerd has no PATH")?;
        let search_path = String::from_utf8(search_path.to_vec())?;
        let beside = std::fs::read_link(process.join("exe"))?;
        let name = match runtime {
            Runtime::Runc => "containerd-shim-runc-v2",
            Runtime::Podshim => "containerd-shim-podshim-v2",
        };
        let path = search_path
            .split(':')
            .map(Path::new)
            .chain(beside.parent())
            .map(|directory| directory.join(name))
            .find(|path| path.is_file())
            .with_context(|| format!("{name} is neither in {search_path} nor beside containerd"))?;
        Ok(Self {
            path,
            search_path,
            namespace,
            variables: Vec::new(),
            events: directory.join("events.sock"),
            daemon: directory.join("containerd.sock"),
        })
    }

    /// Behind a script of that name, in which SHIM stands for the shim's path.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn behind(self, name: &str, script: &str) -> Result<Self> {
        let path = self.events.with_file_name(name);
        std::fs::write(&path, script.replace("SHIM", &self.path.to_string_lossy()))?;
        std::fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        Ok(Self { path, ..self })
    }

    /// containerd's `$PATH`, which the shim gets too.
    #[must_use]
    pub fn search_path(&self) -> &str {
        &self.search_path
    }

    /// Runs an action as containerd does: in the bundle, with its environment (CONTRACT §1.1). `options` go to standard
    /// input, as containerd 1.6 to 2.2 give them.
    ///
    /// # Errors
    /// If it cannot be run or does not end. An exit code other than 0 is a result, not an error.
    pub async fn act(
        &self,
        action: &str,
        id: &str,
        bundle: &Path,
        options: Option<&Any>,
    ) -> Result<ActionOutput> {
        let mut command = tokio::process::Command::new(&self.path);
        command.args(["-namespace", &self.namespace, "-id", id, "-publish-binary", "/bin/false", "-address"]);
        command.arg(&self.daemon);
        if action == "delete" {
            command.arg("-bundle").arg(bundle);
        }
        let variables: [(&str, &OsStr); 6] = [
            ("PATH", self.search_path.as_ref()),
            ("GOMAXPROCS", "2".as_ref()),
            ("MAX_SHIM_VERSION", "2".as_ref()),
            ("TTRPC_ADDRESS", self.events.as_ref()),
            ("GRPC_ADDRESS", self.daemon.as_ref()),
            ("NAMESPACE", self.namespace.as_ref()),
        ];
        command.arg(action).current_dir(bundle).env_clear().envs(variables).kill_on_drop(true);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.path.display()))?;
        let mut stdin = child.stdin.take().context("stdin is a pipe")?;
        if let Some(options) = options {
            stdin.write_all(&options.write_to_bytes()?).await?;
        }
        drop(stdin);
        let output = tokio::time::timeout(CALL_LIMIT * pace(), child.wait_with_output())
            .await
            .with_context(|| format!("{action} of {} does not end", self.path.display()))??;
        Ok(ActionOutput {
            exit_code: output.status.code(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }
}

/// A connection to a running shim.
#[derive(Clone)]
pub struct Connection {
    client: Client,
    service: &'static str,
}

impl Connection {
    /// Connects to what `start` printed: a plain address, JSON or a protobuf message (CONTRACT §1.3).
    ///
    /// # Errors
    /// If it has none of these forms, or no process listens at the address.
    pub async fn open(printed: &[u8]) -> Result<(Self, String)> {
        let text = String::from_utf8_lossy(printed).trim().to_owned();
        let (address, version) = if text.starts_with("unix://") {
            (text, 2)
        } else if text.starts_with('{') {
            let json: serde_json::Value = serde_json::from_str(&text)?;
            ensure!(json["protocol"] != "grpc", "{text}");
            (
                json["address"].as_str().context("an address")?.to_owned(),
                json["version"].as_i64().unwrap_or(2),
            )
        } else {
            let result = BootstrapResult::parse_from_bytes(printed)?;
            (result.address, result.version.into())
        };
        let service = match version {
            2 => "containerd.task.v2.Task",
            3 => "containerd.task.v3.Task",
            other => bail!("task API version {other}"),
        };
        let client = Client::connect(&address).await.with_context(|| address.clone())?;
        Ok((Self { client, service }, address))
    }

    /// One call of the Task service.
    ///
    /// # Errors
    /// The shim's error, or a missing answer.
    pub async fn call<Q: Message, R: Message>(&self, method: &str, request: &Q) -> Result<R, ttrpc::Error> {
        let payload = request.write_to_bytes().map_err(|error| ttrpc::Error::Others(error.to_string()))?;
        let request = ttrpc::Request {
            service: self.service.to_owned(),
            method: method.to_owned(),
            timeout_nano: (CALL_LIMIT * pace()).as_nanos().try_into().unwrap_or(i64::MAX),
            payload,
            ..Default::default()
        };
        let response = self.client.request(request).await?;
        R::parse_from_bytes(&response.payload).map_err(|error| ttrpc::Error::Others(error.to_string()))
    }

    /// Ends the shim of the pod `id`, which may end before it has answered.
    pub async fn shutdown(&self, id: &str) {
        let request = ShutdownRequest { id: id.to_owned(), now: true, ..Default::default() };
        let _ = self.call::<_, Empty>("Shutdown", &request).await;
    }
}
