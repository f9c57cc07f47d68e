//! One scenario on one shim: the steps a scenario is written in. Every step leaves a record. No step fails, whatever
//! the shim answers, because the test compares the answers. A process is named `container` or `container/exec`.

mod end;
mod exec;
mod observations;
mod requests;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use containerd_shim_protos::shim::shim::*;
use containerd_shim_protos::types::empty::Empty;
use containerd_shim_protos::types::mount::Mount;
use e2e::{Containerd, Runtime};
use protobuf::well_known_types::any::Any;
use protobuf::{Message, MessageFull};

pub use exec::Exec;

use crate::events::Received;
use crate::machine::{Traces, entries};
use crate::record::{Names, Record};
use e2e::direct::bundle::{Bundle, root_file_system};
use e2e::direct::shim::{ActionOutput, Binary, Connection};
use e2e::direct::streams::Ends;

/// Limit of a wait (times the machine's pace): what has not come by then never comes.
const SOON: Duration = Duration::from_secs(10);

/// A scenario on one shim.
pub struct Run {
    binary: Binary,
    directory: PathBuf,
    cgroup: String,
    connections: BTreeMap<String, (Connection, String)>,
    connection: Option<Connection>,
    bundles: Vec<String>,
    rootfs: Mount,
    ends: BTreeMap<String, Ends>,
    prepared: BTreeMap<String, Bundle>,
    logs: Vec<std::fs::File>,
    pub names: Names,
    events: Received,
    sockets: Vec<PathBuf>,
    records: Vec<Record>,
    operations: Cell<usize>,
}

/// The result of a run.
pub struct Outcome {
    /// Calls of the shim's service and of its binary.
    pub operations: usize,
    pub records: Vec<Record>,
}

impl Run {
    pub async fn begin(
        node: &Containerd,
        runtime: Runtime,
        scenario: &str,
        directory: &Path,
    ) -> Result<Self> {
        let namespace = format!("parity-{}-{scenario}-{}", runtime.handler(), std::process::id());
        std::fs::create_dir_all(directory.join("bundles"))?;
        std::fs::create_dir_all(directory.join("io"))?;
        let binary = Binary::find(node, runtime, namespace.clone(), directory)?;
        let mut names = Names::default();
        names.text(directory.to_string_lossy(), "<dir>");
        names.text(namespace.clone(), "<namespace>");
        Ok(Self {
            events: Received::serve(&binary.events).await?,
            cgroup: format!("{}/{namespace}", node.cgroup()),
            rootfs: root_file_system(directory)?,
            directory: directory.to_owned(),
            binary,
            connections: BTreeMap::new(),
            connection: None,
            bundles: Vec::new(),
            ends: BTreeMap::new(),
            prepared: BTreeMap::new(),
            logs: Vec::new(),
            names,
            sockets: Vec::new(),
            records: Vec::new(),
            operations: Cell::new(0),
        })
    }

    pub fn bundle_path(&self, id: &str) -> PathBuf {
        self.directory.join("bundles").join(id)
    }

    /// Writes a bundle and runs `start` for it; the connection is used from then on.
    pub async fn bundle(&mut self, id: &str, bundle: Bundle) -> Result<()> {
        let path = self.bundle_path(id);
        bundle.write(&path, &format!("{}/{id}", self.cgroup))?;
        // containerd holds the other end of the log.
        self.logs.push(std::fs::OpenOptions::new().read(true).write(true).open(path.join("log"))?);
        self.bundles.push(id.to_owned());
        let output = self.act("start", id, bundle.options.as_ref()).await?;
        let mut fields = vec![("exit code".to_owned(), format!("{:?}", output.exit_code))];
        if output.exit_code == Some(0) {
            let (connection, address) = Connection::open(&output.stdout).await?;
            let socket = PathBuf::from(address.trim_start_matches("unix://"));
            self.sockets.push(socket);
            self.connection = Some(connection.clone());
            self.connections.insert(id.to_owned(), (connection, address));
        }
        fields.push(("stderr".to_owned(), self.names.of_text(&output.stderr)));
        self.record(format!("start the shim of {id}"), fields);
        let ends = Ends::make(&self.directory.join("io"), id, bundle.streams)?;
        self.ends.insert(id.to_owned(), ends);
        self.prepared.insert(id.to_owned(), bundle);
        Ok(())
    }

    /// A running container: bundle, Create, Start.
    pub async fn container(&mut self, id: &str, bundle: Bundle) -> Result<()> {
        self.bundle(id, bundle).await?;
        self.create(id).await;
        self.start(id).await;
        Ok(())
    }

    /// Creates the container of a bundle.
    pub async fn create(&mut self, id: &str) {
        self.create_with(id, |_| {}).await;
    }

    /// Creates the container of a bundle by a request that is changed first.
    pub async fn create_with(&mut self, id: &str, change: impl FnOnce(&mut CreateTaskRequest)) {
        let mut request = CreateTaskRequest {
            id: id.to_owned(),
            bundle: self.bundle_path(id).to_string_lossy().into_owned(),
            rootfs: vec![self.rootfs.clone()],
            ..Default::default()
        };
        if let Some(bundle) = self.prepared.get(id) {
            request.terminal = bundle.spec["process"]["terminal"] == true;
            request.options = bundle.options.clone().into();
        }
        if let Some(ends) = self.ends.get(id) {
            request.stdin.clone_from(&ends.stdin);
            request.stdout.clone_from(&ends.stdout);
            request.stderr.clone_from(&ends.stderr);
        }
        change(&mut request);
        let step = format!("create {id}");
        let answer = self.send::<CreateTaskResponse>("Create", &request).await;
        if let Ok(response) = &answer {
            self.names.pid(response.pid, format!("init of {id}"));
        }
        self.answered(step, answer);
    }

    /// Starts a container or an exec.
    pub async fn start(&mut self, process: &str) {
        let (id, exec_id) = split(process);
        let request = StartRequest { id, exec_id, ..Default::default() };
        let answer = self.send::<StartResponse>("Start", &request).await;
        if let (Ok(response), true) = (&answer, process.contains('/')) {
            self.names.pid(response.pid, format!("exec {process}"));
        }
        self.answered(format!("start {process}"), answer);
    }

    /// Runs an action of the binary for a bundle.
    async fn act(&self, action: &str, id: &str, options: Option<&Any>) -> Result<ActionOutput> {
        self.operations.update(|operations| operations + 1);
        self.binary.act(action, id, &self.bundle_path(id), options).await
    }

    /// Sends a request and records the answer.
    async fn ask<R: MessageFull>(&mut self, step: String, method: &str, request: &impl Message) -> Option<R> {
        let answer = self.send::<R>(method, request).await;
        let response = answer.as_ref().ok().cloned();
        self.answered(step, answer);
        response
    }

    async fn ask_for_nothing(&mut self, step: String, method: &str, request: &impl Message) {
        self.ask::<Empty>(step, method, request).await;
    }

    async fn send<R: MessageFull>(&self, method: &str, request: &impl Message) -> Result<R, ttrpc::Error> {
        self.operations.update(|operations| operations + 1);
        match &self.connection {
            Some(connection) => connection.call(method, request).await,
            None => Err(ttrpc::Error::Others("no shim was started".to_owned())),
        }
    }

    fn answered<R: MessageFull>(&mut self, step: String, answer: Result<R, ttrpc::Error>) {
        let fields = match answer {
            Ok(response) => self.names.fields(&response),
            Err(ttrpc::Error::RpcStatus(status)) => vec![
                ("code".to_owned(), format!("{:?}", status.code())),
                ("message".to_owned(), self.names.of_text(&status.message)),
            ],
            Err(other) => vec![("no answer".to_owned(), other.to_string())],
        };
        self.record(step, fields);
    }

    /// Adds a record of something that the scenario itself observed.
    pub fn record(&mut self, step: impl Into<String>, fields: Vec<(String, String)>) {
        let fields = fields.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        self.records.push(Record { step: step.into(), fields });
    }

    /// The next line of a process's output.
    pub async fn line(&mut self, process: &str) {
        let line = match self.ends.get_mut(process) {
            Some(ends) => ends.line(SOON).await,
            None => "<no such process>".to_owned(),
        };
        let line = self.names.of_text(&line);
        self.record(format!("line of {process}"), vec![("stdout".to_owned(), line)]);
    }

    /// The rest of a process's output, up to its end.
    pub async fn output(&mut self, process: &str) -> Result<()> {
        let ends = self.ends.get_mut(process).with_context(|| format!("no process {process}"))?;
        let (stdout, stderr) = ends.rest(SOON).await?;
        let fields = vec![
            ("stdout".to_owned(), self.names.of_text(&stdout)),
            ("stderr".to_owned(), self.names.of_text(&stderr)),
        ];
        self.record(format!("output of {process}"), fields);
        Ok(())
    }

    /// Writes to a process's stdin.
    pub fn write(&mut self, process: &str, text: &str) {
        if let Some(ends) = self.ends.get(process) {
            ends.write(text.as_bytes());
        }
    }

    /// Closes the test's end of a process's input. The process sees the end only after [`Run::close_io`], because the
    /// shim holds the pipe open too.
    pub fn close_input(&mut self, process: &str) {
        if let Some(ends) = self.ends.get_mut(process) {
            ends.close_input();
        }
    }

    /// Waits for an event of a process: `exit c`, `exec-started c/e`. Records whether it came.
    pub async fn event(&mut self, topic: &str, process: &str) {
        let (id, exec) = split(process);
        let mut fields = vec![("container_id", id.as_str())];
        match (topic, exec.as_str()) {
            ("exit", "") => fields.push(("id", id.as_str())),
            ("exit", exec) => fields.push(("id", exec)),
            (_, "") => {}
            (_, exec) => fields.push(("exec_id", exec)),
        }
        let came = self.events.has(&self.names, topic, &fields, SOON).await;
        self.record(format!("event {topic} of {process}"), vec![("came".to_owned(), came.to_string())]);
    }

    /// The files of a bundle.
    pub fn files(&mut self, id: &str) {
        let names = entries(&self.bundle_path(id), "");
        self.record(
            format!("files of {id}"),
            names.into_iter().map(|name| (name, "there".to_owned())).collect(),
        );
    }

    /// Runs `delete` for a bundle, as containerd does at the end of every life.
    pub async fn delete_action(&mut self, id: &str) -> Result<()> {
        let output = self.act("delete", id, None).await?;
        let mut fields = vec![
            ("exit code".to_owned(), format!("{:?}", output.exit_code)),
            ("stderr".to_owned(), self.names.of_text(&output.stderr)),
        ];
        match DeleteResponse::parse_from_bytes(&output.stdout) {
            Ok(response) => fields.extend(self.names.fields(&response)),
            Err(error) => fields.push(("stdout".to_owned(), error.to_string())),
        }
        self.record(format!("run delete of {id}"), fields);
        Ok(())
    }

    pub fn traces(&self) -> Traces {
        Traces {
            namespace: self.binary.namespace.clone(),
            directory: self.directory.clone(),
            cgroup: self.cgroup.clone(),
            sockets: self.sockets.clone(),
        }
    }

    /// Kills the processes that a failed run left, by their pids, and removes its mounts and cgroups.
    pub fn clean_up(traces: &Traces) {
        for pid in traces.processes().unwrap_or_default() {
            // It may have ended by itself.
            let _ = e2e::instance::signal(pid, libc::SIGKILL);
        }
    }
}

/// `container/exec` as the two ids of a request.
fn split(process: &str) -> (String, String) {
    let (id, exec) = process.split_once('/').unwrap_or((process, ""));
    (id.to_owned(), exec.to_owned())
}
