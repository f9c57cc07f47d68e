//! Nodes with pods whose shims answer as the test says. Never runs a shim.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use control_api::container::{GateState, Role, State};
use control_api::{
    Budget, Container, Cost, EventsRequest, EventsResponse, InspectRequest, InspectResponse, RestartRequest,
    RestartResponse, StopReason, StopRequest, StopResponse, SwitchRequest, SwitchResponse, VERSION,
    create_pod,
};
use node_state::entry::Entry;
use tempfile::TempDir;
use ttrpc::asynchronous::{Server, TtrpcContext};
use ttrpc::{Code, get_status};

/// A shim of a pod `web`. Its containers are stopped at the third inspect after a call of stop.
struct Fake {
    answer: InspectResponse,
    /// 0 before a call of stop; after it, one more than the number of inspects.
    stopping: AtomicU32,
    /// The same of a call of restart.
    restarting: AtomicU32,
}

impl Fake {
    /// A shim of that pod.
    fn of(answer: InspectResponse) -> Self {
        Self { answer, stopping: AtomicU32::new(0), restarting: AtomicU32::new(0) }
    }

    /// The pod after a call of restart: it stops, then a container is held, then all run, except of a pod `stuck`.
    fn restarted(&self, mut answer: InspectResponse, asked: u32) -> InspectResponse {
        let is_stuck = answer.pod_name == "stuck";
        // What had ended stays so.
        let has_ended =
            |container: &&mut Container| matches!(container.state.unwrap(), State::EXITED | State::COMPLETED);
        for container in answer.containers.iter_mut().filter(|container| !has_ended(container)) {
            container.state =
                if container.role.unwrap() == Role::STANDBY { State::HELD } else { State::RUNNING }.into();
            if container.name == "app" && (asked < 3 || is_stuck) {
                container.state = State::HELD.into();
            }
        }
        if asked < 2 {
            (answer.stop_reason, answer.budget) = (StopReason::RESTART.into(), Budget::ENFORCED.into());
        }
        answer
    }
}

#[async_trait]
impl control_api::Pod for Fake {
    async fn inspect(&self, _: &TtrpcContext, _: InspectRequest) -> ttrpc::Result<InspectResponse> {
        let mut answer = self.answer.clone();
        match self.restarting.load(Ordering::SeqCst) {
            0 => {}
            asked => {
                self.restarting.store(asked + 1, Ordering::SeqCst);
                return Ok(self.restarted(answer, asked));
            }
        }
        let asked = match self.stopping.load(Ordering::SeqCst) {
            0 => return Ok(answer),
            asked => {
                self.stopping.store(asked + 1, Ordering::SeqCst);
                asked
            }
        };
        (answer.stop_reason, answer.budget) = (StopReason::REQUESTED.into(), Budget::ENFORCED.into());
        answer.budget_left_ms = 7_000;
        if asked > 2 {
            answer.containers.iter_mut().for_each(|container| container.state = State::STOPPED.into());
        }
        Ok(answer)
    }

    async fn stop(&self, _: &TtrpcContext, request: StopRequest) -> ttrpc::Result<StopResponse> {
        assert_eq!(request.grace_ms, Some(1_500));
        self.stopping.store(1, Ordering::SeqCst);
        Ok(StopResponse { version: VERSION, ..Default::default() })
    }

    async fn restart(&self, _: &TtrpcContext, _: RestartRequest) -> ttrpc::Result<RestartResponse> {
        if self.answer.pod_name == "done" {
            let text = "cannot restart the pod: it is complete".to_owned();
            return Err(ttrpc::Error::RpcStatus(get_status(Code::FAILED_PRECONDITION, text)));
        }
        self.restarting.store(1, Ordering::SeqCst);
        Ok(RestartResponse { version: VERSION, ..Default::default() })
    }

    async fn switch(&self, _: &TtrpcContext, request: SwitchRequest) -> ttrpc::Result<SwitchResponse> {
        match request.container.as_str() {
            "proxy" => Ok(SwitchResponse { version: VERSION, ..Default::default() }),
            other => {
                let text = format!("no container {other:?} in the plan");
                Err(ttrpc::Error::RpcStatus(get_status(Code::NOT_FOUND, text)))
            }
        }
    }

    /// Nothing happens to this pod: each caller waits as long as it asked for.
    async fn events(&self, _: &TtrpcContext, request: EventsRequest) -> ttrpc::Result<EventsResponse> {
        tokio::time::sleep(Duration::from_millis(request.wait_ms)).await;
        Ok(EventsResponse { version: VERSION, ..Default::default() })
    }
}

pub fn milliseconds_ago(milliseconds: i64) -> i64 {
    #[expect(clippy::disallowed_methods, reason = "an age counts from the real now")]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap() - milliseconds
}

pub fn web() -> InspectResponse {
    let container = |name: &str, role: Role, state: State| Container {
        id: format!("id-of-{name}"),
        name: name.to_owned(),
        role: role.into(),
        state: state.into(),
        pid: 42,
        ..Default::default()
    };
    let proxy = Container {
        gate: "tcp::15021".to_owned(),
        gate_state: GateState::STARTED.into(),
        restarts: 2,
        real_exit_code: Some(7),
        pending_signal: 15,
        ..container("proxy", Role::SIDECAR, State::RUNNING)
    };
    let logs = Container {
        pid: 0,
        real_exit_code: Some(3),
        restart_in_ms: Some(61_250),
        ..container("logs", Role::SIDECAR, State::BACKING_OFF)
    };
    let app = Container {
        held_for: "sidecar \"proxy\": tcp:15021 refused".to_owned(),
        ..container("app", Role::MAIN, State::HELD)
    };
    let old = Container {
        real_exit_code: Some(143),
        shown_exit_code: Some(0),
        ..container("old", Role::STANDBY, State::STOPPED)
    };
    InspectResponse {
        version: VERSION,
        id: "0123456789abcdef".to_owned(),
        namespace: "k8s.io".to_owned(),
        pod_name: "web".to_owned(),
        pod_namespace: "prod".to_owned(),
        pod_uid: "u-1".to_owned(),
        started_at_ms: milliseconds_ago(301_000),
        release: "0.1.0".to_owned(),
        cost: Some(Cost {
            shim_ms: 40,
            probes_ms: 1500,
            hooks_ms: 16,
            restarts_ms: 61,
            requests_ms: 5,
            ..Default::default()
        })
        .into(),
        containers: vec![container("pause", Role::SANDBOX, State::RUNNING), proxy, logs, app, old],
        ..Default::default()
    }
}

/// Some pods of a node.
pub struct Node {
    pub root: TempDir,
    /// The node's own root: entries have paths below it.
    host: PathBuf,
}

impl Node {
    pub fn new() -> Self {
        Self { root: tempfile::tempdir().unwrap(), host: "/".into() }
    }

    /// A node whose root is a directory.
    pub fn below(host: &Path) -> Self {
        fs::create_dir_all(host.join("run")).unwrap();
        let root = tempfile::tempdir_in(host.join("run")).unwrap();
        let name = root.path().file_name().unwrap();
        std::os::unix::fs::symlink(name, host.join("run/podshim")).unwrap();
        Self { host: host.to_owned(), root }
    }

    /// Writes a pod's entry, and returns the path of its socket.
    pub fn entry(&self, id: &str, name: &str) -> PathBuf {
        let directory = self.root.path().join("k8s.io").join(id);
        fs::create_dir_all(&directory).unwrap();
        let socket = directory.join("socket");
        let entry = Entry {
            version: VERSION,
            id: id.to_owned(),
            namespace: "k8s.io".to_owned(),
            socket: Path::new("/").join(socket.strip_prefix(&self.host).unwrap()),
            pod_name: name.to_owned(),
            pod_namespace: "prod".to_owned(),
            ..Entry::default()
        };
        entry.write_to(&directory).unwrap();
        socket
    }

    /// Adds a pod whose shim answers.
    pub fn pod(&self, answer: InspectResponse) {
        let socket = self.entry(&answer.id, &answer.pod_name);
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let service = create_pod(Arc::new(Fake::of(answer)));
                let address = format!("unix://{}", socket.display());
                let mut server = Server::new().bind(&address).unwrap().register_service(service);
                server.start().await.unwrap();
                ready.send(()).unwrap();
                std::future::pending::<()>().await;
            });
        });
        is_ready.recv().unwrap();
    }

    /// Runs `podshim`: its exit code, output and errors.
    #[expect(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
    pub fn podshim(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = command(arguments, self.root.path()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    }
}

pub fn command(arguments: &[&str], root: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_podshim"));
    command.args(arguments).arg("--run-dir").arg(root).stdin(Stdio::null());
    command
}
