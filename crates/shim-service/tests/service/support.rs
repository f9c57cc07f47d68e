//! A pod's server for tests, without containerd: the real server on its own socket, a shell script as OCI runtime, and a
//! collector of events.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use containerd_shim_protos::shim::events::ForwardRequest;
use containerd_shim_protos::shim::shim::*;
use containerd_shim_protos::shim_async::{Client, Events, TaskClient, create_events};
use containerd_shim_protos::types::empty::Empty;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use protobuf::well_known_types::any::Any;
use protobuf::{Message, MessageField};
use shim_service::{ServeConfig, serve};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, LocalSet};
use ttrpc::asynchronous::{Server, TtrpcContext};
use ttrpc::context::{Context, with_duration};

/// Longer than any call takes; one that times out has hung.
pub const CALL_LIMIT: Duration = Duration::from_secs(20);

/// A pod's server and a client of it.
pub struct Pod {
    pub client: TaskClient,
    pub directory: TempDir,
    pub served: JoinHandle<Result<(), String>>,
    events: mpsc::UnboundedReceiver<String>,
    _collector: Server,
}

/// Runs a test against a pod's server, and ends the processes that the test has left.
pub fn with_pod(test: impl AsyncFnOnce(Pod)) {
    with_pod_of("pod", test);
}

/// With another id of the pod than `pod`.
pub fn with_pod_of(id: &str, test: impl AsyncFnOnce(Pod)) {
    // Dropped last, and also when the test fails.
    let _children = Children;
    run_to_end(pin!(async { test(Pod::serve(id).await).await }));
}

/// Without the type of the test: what it needs of tokio would be compiled once for each of them.
fn run_to_end(test: Pin<&mut dyn Future<Output = ()>>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

/// The processes of the containers: the server makes the test the subreaper of them all.
struct Children;

impl Children {
    fn pids() -> Vec<Pid> {
        let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let children =
            threads.map(|thread| fs::read_to_string(thread.path().join("children")).unwrap_or_default());
        children.flat_map(|pids| numbers(&pids)).map(Pid::from_raw).collect()
    }
}

fn numbers(text: &str) -> Vec<i32> {
    text.split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

impl Drop for Children {
    fn drop(&mut self) {
        // More than once: the children of a process that ends become this one's.
        loop {
            let pids = Self::pids();
            if pids.is_empty() {
                return;
            }
            for pid in pids {
                // If it has ended already, it is reaped below all the same.
                let _ = kill(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
            }
        }
    }
}

pub fn context() -> Context {
    with_duration(CALL_LIMIT)
}

impl Pod {
    async fn serve(id: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (collector, events) = collect_events(&directory.path().join("events")).await;
        let path = directory.path().join("shim");
        let config = ServeConfig {
            log: None,
            // Tests run side by side, and what a shim records of a sandbox has a place for each namespace.
            namespace: format!("test-{}", std::process::id()),
            id: id.to_owned(),
            containerd_ttrpc_address: Some(directory.path().join("events").display().to_string()),
            listener: UnixListener::bind(&path).unwrap(),
            node_file: directory.path().join("config.toml"),
            draining_file: directory.path().join("draining"),
            state_directory: directory.path().to_owned(),
            lock: tempfile::tempfile().unwrap(),
        };
        let served = tokio::task::spawn_local(async {
            serve(config).await.map(drop).map_err(|error| error.to_string())
        });
        let client = Client::connect(&format!("unix://{}", path.display())).await.unwrap();
        let runtime = directory.path().join("runtime");
        fs::write(&runtime, include_str!("fake-runtime.sh")).unwrap();
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o755)).unwrap();
        Self { client: TaskClient::new(client), directory, served, events, _collector: collector }
    }

    /// A bundle with a shell script as program.
    pub fn bundle(&self, id: &str, program: &str, annotations: &[(&str, &str)]) -> PathBuf {
        let bundle = self.directory.path().join(id);
        fs::create_dir(&bundle).unwrap();
        let annotations: BTreeMap<_, _> = annotations.iter().copied().collect();
        let spec = serde_json::json!({
            "ociVersion": "1.0.2",
            "process": {"args": ["program"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
            "annotations": annotations,
            "linux": {"namespaces": [{"type": "pid"}]},
        });
        fs::write(bundle.join("config.json"), spec.to_string()).unwrap();
        fs::write(bundle.join("program.sh"), program).unwrap();
        bundle
    }

    /// Whether the OCI runtime has the container.
    pub fn is_known_to_its_runtime(&self, id: &str) -> bool {
        let namespace = format!("test-{}", std::process::id());
        self.directory.path().join("state").join(namespace).join(id).exists()
    }

    /// The request that containerd would send for a bundle.
    pub fn create_request(&self, id: &str) -> CreateTaskRequest {
        let mut options = Vec::new();
        let mut stream = protobuf::CodedOutputStream::vec(&mut options);
        stream.write_string(6, &self.directory.path().join("runtime").display().to_string()).unwrap();
        stream.write_string(7, &self.directory.path().join("state").display().to_string()).unwrap();
        stream.flush().unwrap();
        drop(stream);
        let options =
            Any { type_url: "containerd.runc.v1.Options".to_owned(), value: options, ..Any::default() };
        CreateTaskRequest {
            id: id.to_owned(),
            bundle: self.directory.path().join(id).display().to_string(),
            options: MessageField::some(options),
            ..Default::default()
        }
    }

    pub async fn create(&self, id: &str) -> ttrpc::Result<CreateTaskResponse> {
        self.client.create(context(), &self.create_request(id)).await
    }

    pub async fn start(&self, id: &str) -> ttrpc::Result<StartResponse> {
        self.client.start(context(), &StartRequest { id: id.to_owned(), ..Default::default() }).await
    }

    pub async fn state(&self, id: &str) -> ttrpc::Result<StateResponse> {
        self.client.state(context(), &StateRequest { id: id.to_owned(), ..Default::default() }).await
    }

    pub async fn kill(&self, id: &str, signal: u32) -> ttrpc::Result<Empty> {
        self.client.kill(context(), &KillRequest { id: id.to_owned(), signal, ..Default::default() }).await
    }

    pub async fn wait(&self, id: &str) -> ttrpc::Result<WaitResponse> {
        self.client.wait(context(), &WaitRequest { id: id.to_owned(), ..Default::default() }).await
    }

    pub async fn delete(&self, id: &str) -> ttrpc::Result<DeleteResponse> {
        self.client.delete(context(), &DeleteRequest { id: id.to_owned(), ..Default::default() }).await
    }

    /// Creates and starts a container that runs a script.
    pub async fn run(&self, id: &str, program: &str, annotations: &[(&str, &str)]) {
        self.bundle(id, program, annotations);
        self.create(id).await.unwrap();
        self.start(id).await.unwrap();
    }

    /// The next events, as `topic container`.
    pub async fn events(&mut self, count: usize) -> Vec<String> {
        let mut events = Vec::new();
        while events.len() < count {
            let next = tokio::time::timeout(CALL_LIMIT, self.events.recv()).await;
            events.push(next.unwrap_or_else(|_| panic!("no event after {events:?}")).unwrap());
        }
        events
    }

    /// The runtime's commands so far.
    pub fn calls(&self, id: &str) -> Vec<String> {
        let calls = fs::read_to_string(self.directory.path().join(id).join("calls")).unwrap_or_default();
        calls.lines().map(str::to_owned).collect()
    }
}

/// The status code and text of a refused call.
pub fn refusal<T: std::fmt::Debug>(result: ttrpc::Result<T>) -> (ttrpc::Code, String) {
    match result.unwrap_err() {
        ttrpc::Error::RpcStatus(status) => (status.code(), status.message),
        other => panic!("not a status: {other}"),
    }
}

struct Collector(mpsc::UnboundedSender<String>);

#[async_trait]
impl Events for Collector {
    async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
        let envelope = request.envelope.unwrap();
        // Every task event has the container's id as field 1.
        let event = containerd_shim_protos::events::task::TaskStart::parse_from_bytes(&envelope.event.value);
        let container = event.map(|event| event.container_id).unwrap_or_default();
        let _ = self.0.send(format!("{} {container}", envelope.topic));
        Ok(Empty::new())
    }
}

async fn collect_events(path: &Path) -> (Server, mpsc::UnboundedReceiver<String>) {
    let (sender, events) = mpsc::unbounded_channel();
    let service = create_events(Arc::new(Collector(sender)));
    let mut server =
        Server::new().bind(&format!("unix://{}", path.display())).unwrap().register_service(service);
    server.start().await.unwrap();
    (server, events)
}
