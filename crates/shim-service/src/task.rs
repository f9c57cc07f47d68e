//! containerd's Task service (v2 and v3).
//!
//! Owns the translation: a handler turns a request into a command for the owner, and the answer into a response. It may hold
//! nothing and do nothing else: containerd can drop it at any await (DESIGN §3).

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use containerd_shim_protos::shim::oci::ProcessDetails;
use containerd_shim_protos::shim::shim::{
    CheckpointTaskRequest, CloseIORequest, ConnectRequest, ConnectResponse, CreateTaskRequest,
    CreateTaskResponse, DeleteRequest, DeleteResponse, ExecProcessRequest, KillRequest, PauseRequest,
    PidsRequest, PidsResponse, ResizePtyRequest, ResumeRequest, ShutdownRequest, StartRequest, StartResponse,
    StateRequest, StateResponse, StatsRequest, StatsResponse, UpdateTaskRequest, WaitRequest, WaitResponse,
};
use containerd_shim_protos::shim_async::Task;
use containerd_shim_protos::types::empty::Empty;
use containerd_shim_protos::types::task::{ProcessInfo, Status as TaskStatus};
use mounts::RootfsMount;
use pod_lifecycle::{
    ContainerId, Deleted, ExecId, Reach, Refusal, RefusalKind, Reply, Request, Status, Target,
};
use pod_spec::Signal;
use protobuf::well_known_types::any::Any;
use protobuf::{EnumOrUnknown, Message, MessageField};
use streams::console::TerminalSize;
use streams::stdio::StreamMode;
use ttrpc::asynchronous::TtrpcContext;

use crate::clock::timestamp;
use crate::command::{Command, ContainerProcess, OwnerHandle, TaskState};
use crate::details::{CheckpointDetails, CheckpointImage, CreateDetails, ExecDetails};
use crate::error::ServiceError;
use crate::options;
use crate::options::checkpoint::checkpoint_options;
use crate::streams::StreamAddresses;
use crate::trace;

/// The Task service of one pod.
#[derive(Debug)]
pub(crate) struct TaskService {
    owner: OwnerHandle,
}

impl TaskService {
    pub(crate) fn new(owner: OwnerHandle) -> Self {
        Self { owner }
    }

    async fn pod(&self, request: Request) -> Result<Reply, ServiceError> {
        self.owner.ask(|answer| Command::Pod { request, answer }).await
    }

    /// Signal 0: whether there is a process that could be signalled.
    async fn exists(&self, target: Target, reach: Reach) -> ttrpc::Result<Empty> {
        let status = self.state_of(target.clone()).await?.view.status;
        let refusal = match (status, &target.exec, reach) {
            (Status::Created, Some(_), _) => {
                Refusal { kind: RefusalKind::FailedPrecondition, message: format!("{target} is not started") }
            }
            (Status::Stopped, Some(_), _) | (Status::Stopped, None, Reach::Process) => {
                let message = format!("{target}: process already finished");
                Refusal { kind: RefusalKind::NotFound, message }
            }
            _ => return Ok(Empty::new()),
        };
        Err(ServiceError::from(refusal).into())
    }

    async fn state_of(&self, target: Target) -> Result<TaskState, ServiceError> {
        self.owner.ask(|answer| Command::State { target, answer }).await
    }
}

#[async_trait]
impl Task for TaskService {
    async fn create(
        &self,
        context: &TtrpcContext,
        request: CreateTaskRequest,
    ) -> ttrpc::Result<CreateTaskResponse> {
        let container = request.id.clone();
        let work = async move {
            let container = ContainerId::from(request.id.as_str());
            let details = create_details(request)?;
            let reply = self
                .owner
                .ask(|answer| Command::Create { container, details: Box::new(details), answer })
                .await?;
            Ok(CreateTaskResponse { pid: pid(reply), ..Default::default() })
        };
        trace::logged(context, "create", &container, work).await
    }

    async fn start(&self, context: &TtrpcContext, request: StartRequest) -> ttrpc::Result<StartResponse> {
        let container = request.id.clone();
        let work = async move {
            let reply = self.pod(Request::Start(target(&request.id, &request.exec_id))).await?;
            Ok(StartResponse { pid: pid(reply), ..Default::default() })
        };
        trace::logged(context, "start", &container, work).await
    }

    async fn exec(&self, context: &TtrpcContext, request: ExecProcessRequest) -> ttrpc::Result<Empty> {
        let container = request.id.clone();
        let work = async move {
            let container = ContainerId::from(request.id.as_str());
            let exec = ExecId::from(request.exec_id.as_str());
            let details = Box::new(exec_details(request)?);
            self.owner.ask(|answer| Command::Exec { container, exec, details, answer }).await?;
            Ok(Empty::new())
        };
        trace::logged(context, "exec", &container, work).await
    }

    async fn kill(&self, context: &TtrpcContext, request: KillRequest) -> ttrpc::Result<Empty> {
        let container = request.id.clone();
        let work = async move {
            let target = target(&request.id, &request.exec_id);
            if request.signal == 0 {
                return self.exists(target, reach(request.all)).await;
            }
            let Some(signal) = Signal::new(request.signal) else {
                let message = format!("{} is not a signal number (1 to 64)", request.signal);
                return Err(ServiceError::Invalid { container: request.id, message }.into());
            };
            self.pod(Request::Kill { target, signal, reach: reach(request.all) }).await?;
            Ok(Empty::new())
        };
        trace::logged(context, "kill", &container, work).await
    }

    async fn wait(&self, _: &TtrpcContext, request: WaitRequest) -> ttrpc::Result<WaitResponse> {
        let reply = self.pod(Request::Wait(target(&request.id, &request.exec_id))).await?;
        let mut response = WaitResponse::new();
        if let Reply::Exit(exit) = reply {
            response.exit_status = exit.code;
            response.exited_at = MessageField::some(timestamp(exit.at));
        }
        Ok(response)
    }

    async fn delete(&self, context: &TtrpcContext, request: DeleteRequest) -> ttrpc::Result<DeleteResponse> {
        let container = request.id.clone();
        let work = async move {
            let target = target(&request.id, &request.exec_id);
            // Without a timeout (0 or less) the caller waits as long as it takes.
            let limit = u64::try_from(context.timeout_nano).ok().filter(|nanoseconds| *nanoseconds > 0);
            let limit = limit.map(Duration::from_nanos);
            let reply = self.owner.ask(|answer| Command::Delete { target, limit, answer }).await?;
            let mut response = DeleteResponse::new();
            if let Reply::Deleted(Deleted { pid, exit }) = reply {
                response.pid = pid;
                response.exit_status = exit.code;
                response.exited_at = MessageField::some(timestamp(exit.at));
            }
            Ok(response)
        };
        trace::logged(context, "delete", &container, work).await
    }

    async fn state(&self, _: &TtrpcContext, request: StateRequest) -> ttrpc::Result<StateResponse> {
        let TaskState { view, bundle, streams } =
            self.state_of(target(&request.id, &request.exec_id)).await?;
        let mut response = StateResponse {
            // As the runc shim: `id` is the exec's id for an exec, and `exec_id` is never set.
            id: if request.exec_id.is_empty() { request.id } else { request.exec_id },
            bundle,
            pid: view.pid,
            status: EnumOrUnknown::new(match view.status {
                Status::Created => TaskStatus::CREATED,
                Status::Running => TaskStatus::RUNNING,
                Status::Paused => TaskStatus::PAUSED,
                Status::Stopped => TaskStatus::STOPPED,
            }),
            terminal: streams.has_terminal(),
            stdin: streams.stdin,
            stdout: streams.stdout,
            stderr: streams.stderr,
            ..Default::default()
        };
        if let Some(exit) = view.exit {
            response.exit_status = exit.code;
        }
        // Always set: clients in Go take an unset time for 1970.
        response.exited_at = MessageField::some(timestamp(view.exit.unwrap_or_default().at));
        Ok(response)
    }

    async fn pids(&self, _: &TtrpcContext, request: PidsRequest) -> ttrpc::Result<PidsResponse> {
        let container = ContainerId::from(request.id.as_str());
        let members = self.owner.ask(|answer| Command::Pids { container, answer }).await?;
        let processes = members.into_iter().map(process_info).collect::<Result<_, _>>()?;
        Ok(PidsResponse { processes, ..Default::default() })
    }

    /// Never fails: for an unknown id the task's pid is 0, as containerd's own shim answers.
    async fn connect(&self, _: &TtrpcContext, request: ConnectRequest) -> ttrpc::Result<ConnectResponse> {
        let task_pid = match self.state_of(target(&request.id, "")).await {
            Ok(state) => state.view.pid,
            Err(_) => 0,
        };
        Ok(ConnectResponse { shim_pid: std::process::id(), task_pid, ..Default::default() })
    }

    async fn pause(&self, context: &TtrpcContext, request: PauseRequest) -> ttrpc::Result<Empty> {
        let container = request.id.clone();
        let work = async move {
            self.pod(Request::Pause(request.id.as_str().into())).await?;
            Ok(Empty::new())
        };
        trace::logged(context, "pause", &container, work).await
    }

    async fn resume(&self, context: &TtrpcContext, request: ResumeRequest) -> ttrpc::Result<Empty> {
        let container = request.id.clone();
        let work = async move {
            self.pod(Request::Resume(request.id.as_str().into())).await?;
            Ok(Empty::new())
        };
        trace::logged(context, "resume", &container, work).await
    }

    async fn update(&self, context: &TtrpcContext, request: UpdateTaskRequest) -> ttrpc::Result<Empty> {
        let container = request.id.clone();
        let work = async move {
            let container = ContainerId::from(request.id.as_str());
            let resources = request.resources.into_option().unwrap_or_default().value;
            self.owner.ask(|answer| Command::Update { container, resources, answer }).await?;
            Ok(Empty::new())
        };
        trace::logged(context, "update", &container, work).await
    }

    async fn stats(&self, _: &TtrpcContext, request: StatsRequest) -> ttrpc::Result<StatsResponse> {
        let container = ContainerId::from(request.id.as_str());
        let stats = self.owner.ask(|answer| Command::Stats { container, answer }).await?;
        Ok(StatsResponse { stats: MessageField::some(stats), ..Default::default() })
    }

    async fn resize_pty(&self, _: &TtrpcContext, request: ResizePtyRequest) -> ttrpc::Result<Empty> {
        let target = target(&request.id, &request.exec_id);
        // The kernel's sizes have 16 bits; a larger one is cut to the largest.
        let clamp = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let size = TerminalSize { columns: clamp(request.width), rows: clamp(request.height) };
        self.owner.ask(|answer| Command::Resize { target, size, answer }).await?;
        Ok(Empty::new())
    }

    async fn close_io(&self, _: &TtrpcContext, request: CloseIORequest) -> ttrpc::Result<Empty> {
        if request.stdin {
            let target = target(&request.id, &request.exec_id);
            self.owner.ask(|answer| Command::CloseStdin { target, answer }).await?;
        }
        Ok(Empty::new())
    }

    async fn checkpoint(
        &self,
        context: &TtrpcContext,
        request: CheckpointTaskRequest,
    ) -> ttrpc::Result<Empty> {
        let container = request.id.clone();
        let work = async move {
            let container = ContainerId::from(request.id.as_str());
            let details = Box::new(checkpoint_details(request)?);
            self.owner.ask(|answer| Command::Checkpoint { container, details, answer }).await?;
            Ok(Empty::new())
        };
        trace::logged(context, "checkpoint", &container, work).await
    }

    async fn shutdown(&self, _: &TtrpcContext, _: ShutdownRequest) -> ttrpc::Result<Empty> {
        self.owner.ask(|answer| Command::Shutdown { answer }).await?;
        Ok(Empty::new())
    }
}

/// The target of a request: an empty exec id means the container's init.
fn target(id: &str, exec_id: &str) -> Target {
    let exec = (!exec_id.is_empty()).then(|| ExecId::from(exec_id));
    Target { container: ContainerId::from(id), exec }
}

fn pid(reply: Reply) -> u32 {
    match reply {
        Reply::Pid(pid) => pid,
        Reply::Ok | Reply::Exit(_) | Reply::Deleted(_) => 0,
    }
}

fn create_details(request: CreateTaskRequest) -> Result<CreateDetails, ServiceError> {
    let path = |text: String| (!text.is_empty()).then(|| PathBuf::from(text));
    let parent = path(request.parent_checkpoint);
    let checkpoint = path(request.checkpoint).map(|path| CheckpointImage { path, parent });
    let options = options::runtime_options(request.options.as_ref())
        .map_err(|source| ServiceError::Options { container: request.id, source })?;
    let rootfs = request.rootfs.into_iter().map(|mount| RootfsMount {
        kind: mount.type_,
        source: mount.source,
        options: mount.options,
    });
    Ok(CreateDetails {
        bundle: PathBuf::from(request.bundle),
        rootfs: rootfs.collect(),
        streams: StreamAddresses {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            mode: stream_mode(request.terminal),
        },
        options,
        checkpoint,
    })
}

fn checkpoint_details(request: CheckpointTaskRequest) -> Result<CheckpointDetails, ServiceError> {
    if request.path.is_empty() {
        let message = "a checkpoint needs a path to be written to".to_owned();
        return Err(ServiceError::Invalid { container: request.id, message });
    }
    let options = checkpoint_options(request.options.as_ref())
        .map_err(|source| ServiceError::Options { container: request.id, source })?;
    Ok(CheckpointDetails { path: PathBuf::from(request.path), options })
}

/// The process of an exec arrives as JSON in an Any (CONTRACT §1.7). The request, not that JSON, says whether it has a
/// terminal.
fn exec_details(request: ExecProcessRequest) -> Result<ExecDetails, ServiceError> {
    let spec = request.spec.into_option().unwrap_or_default().value;
    let invalid = |error| ServiceError::Invalid {
        container: request.id.clone(),
        message: format!("the process of exec {} cannot be read: {error}", request.exec_id),
    };
    let mut process: serde_json::Map<String, serde_json::Value> =
        serde_json::from_slice(&spec).map_err(invalid)?;
    process.insert("terminal".to_owned(), request.terminal.into());
    Ok(ExecDetails {
        process: serde_json::to_vec(&process).map_err(invalid)?,
        streams: StreamAddresses {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            mode: stream_mode(request.terminal),
        },
    })
}

fn reach(all: bool) -> Reach {
    if all { Reach::All } else { Reach::Process }
}

fn stream_mode(terminal: bool) -> StreamMode {
    if terminal { StreamMode::Terminal } else { StreamMode::Streams }
}

fn process_info(process: ContainerProcess) -> Result<ProcessInfo, ServiceError> {
    let mut info = ProcessInfo { pid: process.pid.as_raw().cast_unsigned(), ..Default::default() };
    if let Some(exec_id) = process.exec {
        let details = ProcessDetails { exec_id, ..Default::default() };
        let value = details.write_to_bytes().unwrap_or_default();
        // As text, as in `metrics`: reflection is large.
        let type_url = "containerd.runc.v1.ProcessDetails".to_owned();
        info.info = MessageField::some(Any { type_url, value, ..Any::default() });
    }
    Ok(info)
}
