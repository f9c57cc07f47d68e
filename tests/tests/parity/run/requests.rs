//! The steps that are one request each.

use anyhow::Result;
use containerd_shim_protos::shim::shim::*;
use containerd_shim_protos::types::empty::Empty;
use protobuf::MessageField;
use protobuf::well_known_types::any::Any;
use serde_json::Value;

use super::exec::Exec;
use super::{Run, SOON, split};
use e2e::direct::streams::Ends;

/// How often a pause is repeated.
const MOST_FREEZES: usize = 20;

impl Run {
    /// Adds an exec; [`Run::start`] runs it.
    pub async fn exec(&mut self, name: &str, exec: Exec) -> Result<()> {
        let (id, exec_id) = split(name);
        // A second exec of the same id has the pipes of the first.
        if !self.ends.contains_key(name) {
            let pipes = name.replace('/', "-");
            self.ends.insert(name.to_owned(), Ends::make(&self.directory.join("io"), &pipes, exec.streams)?);
        }
        let ends = &self.ends[name];
        let spec = Any {
            type_url: "types.containerd.io/opencontainers/runtime-spec/1/Process".to_owned(),
            value: exec.process.to_string().into_bytes(),
            ..Any::default()
        };
        let request = ExecProcessRequest {
            id,
            exec_id,
            terminal: exec.streams.are_of_a_terminal(),
            stdin: ends.stdin.clone(),
            stdout: ends.stdout.clone(),
            stderr: ends.stderr.clone(),
            spec: MessageField::some(spec),
            ..Default::default()
        };
        self.ask_for_nothing(format!("exec {name}"), "Exec", &request).await;
        Ok(())
    }

    /// Adds an exec, starts it and waits for its exit.
    pub async fn exec_to_end(&mut self, name: &str, exec: Exec) -> Result<()> {
        self.exec(name, exec).await?;
        self.start(name).await;
        self.wait(name).await;
        self.event("exit", name).await;
        self.output(name).await
    }

    pub async fn state(&mut self, name: &str) -> Option<StateResponse> {
        let (id, exec_id) = split(name);
        let request = StateRequest { id, exec_id, ..Default::default() };
        self.ask(format!("state {name}"), "State", &request).await
    }

    pub async fn wait(&mut self, name: &str) -> Option<WaitResponse> {
        let (id, exec_id) = split(name);
        let request = WaitRequest { id, exec_id, ..Default::default() };
        self.ask(format!("wait {name}"), "Wait", &request).await
    }

    /// The exit of a process that may also run on: waits for it a shorter time than for other answers.
    pub async fn wait_shortly(&mut self, name: &str) -> Option<WaitResponse> {
        let (id, exec_id) = split(name);
        let request = WaitRequest { id, exec_id, ..Default::default() };
        let limit = std::time::Duration::from_secs(3) * e2e::durations::pace();
        let answer = match tokio::time::timeout(limit, self.send::<WaitResponse>("Wait", &request)).await {
            Ok(answer) => answer,
            Err(late) => Err(ttrpc::Error::Others(late.to_string())),
        };
        let response = answer.as_ref().ok().cloned();
        self.answered(format!("wait {name}"), answer);
        response
    }

    pub async fn delete(&mut self, name: &str) {
        let (id, exec_id) = split(name);
        let request = DeleteRequest { id: id.clone(), exec_id: exec_id.clone(), ..Default::default() };
        let deleted = self.ask::<DeleteResponse>(format!("delete {name}"), "Delete", &request).await;
        // The Go shim answers before it publishes, and a Shutdown that follows at once loses the event.
        if deleted.is_some() && exec_id.is_empty() {
            self.events.has(&self.names, "delete", &[("container_id", &id)], SOON).await;
        }
    }

    /// Sends a signal to one process.
    pub async fn kill(&mut self, name: &str, signal: u32) {
        let (id, exec_id) = split(name);
        let request = KillRequest { id, exec_id, signal, ..Default::default() };
        self.ask_for_nothing(format!("kill {name} {signal}"), "Kill", &request).await;
    }

    /// Sends a signal to all processes of a container.
    pub async fn kill_all(&mut self, name: &str, signal: u32) {
        let (id, exec_id) = split(name);
        let request = KillRequest { id, exec_id, signal, all: true, ..Default::default() };
        self.ask_for_nothing(format!("kill all of {name} {signal}"), "Kill", &request).await;
    }

    pub async fn pause(&mut self, id: &str) {
        let request = PauseRequest { id: id.to_owned(), ..Default::default() };
        let mut answer = self.send::<Empty>("Pause", &request).await;
        // runc up to 1.1 polls the kernel's freezer of cgroup v1 a thousand times, within a fraction of a second. On a
        // busy machine that is sometimes too short, with either shim.
        for _ in 0..MOST_FREEZES {
            match &answer {
                Err(ttrpc::Error::RpcStatus(status)) if status.message.ends_with("unable to freeze") => {
                    answer = self.send("Pause", &request).await;
                }
                _ => break,
            }
        }
        self.answered(format!("pause {id}"), answer);
    }

    pub async fn resume(&mut self, id: &str) {
        let request = ResumeRequest { id: id.to_owned(), ..Default::default() };
        self.ask_for_nothing(format!("resume {id}"), "Resume", &request).await;
    }

    /// The processes of a container, in the order of their names: the kernel's order means nothing.
    pub async fn pids(&mut self, id: &str) {
        let request = PidsRequest { id: id.to_owned(), ..Default::default() };
        let answer = self.send::<PidsResponse>("Pids", &request).await.map(|mut response| {
            response.processes.sort_by_key(|process| self.names.of_pid(process.pid));
            response
        });
        self.answered(format!("pids {id}"), answer);
    }

    /// Requests a checkpoint.
    pub async fn checkpoint(&mut self, id: &str, path: &str, options: Option<Any>) {
        let kind = options.as_ref().map_or("no options", |options| &options.type_url).to_owned();
        let request = CheckpointTaskRequest {
            id: id.to_owned(),
            path: path.to_owned(),
            options: options.into(),
            ..Default::default()
        };
        self.ask_for_nothing(format!("checkpoint {id} with {kind}"), "Checkpoint", &request).await;
    }

    pub async fn resize(&mut self, name: &str, width: u32, height: u32) {
        let (id, exec_id) = split(name);
        let request = ResizePtyRequest { id, exec_id, width, height, ..Default::default() };
        self.ask_for_nothing(format!("resize {name}"), "ResizePty", &request).await;
    }

    pub async fn close_io(&mut self, name: &str) {
        let (id, exec_id) = split(name);
        let request = CloseIORequest { id, exec_id, stdin: true, ..Default::default() };
        self.ask_for_nothing(format!("close stdin of {name}"), "CloseIO", &request).await;
    }

    /// New limits, as the OCI spec writes them.
    pub async fn update(&mut self, id: &str, resources: Value) {
        self.update_with(id, &resources.to_string()).await;
    }

    pub async fn update_with(&mut self, id: &str, resources: &str) {
        let resources = Any {
            type_url: "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources".to_owned(),
            value: resources.as_bytes().to_vec(),
            ..Any::default()
        };
        let request = UpdateTaskRequest {
            id: id.to_owned(),
            resources: MessageField::some(resources),
            ..Default::default()
        };
        self.ask_for_nothing(format!("update {id}"), "Update", &request).await;
    }

    /// The statistics of a container's cgroup. Of numbers that depend on the moment only zero or not zero is recorded.
    pub async fn stats(&mut self, id: &str) {
        let request = StatsRequest { id: id.to_owned(), ..Default::default() };
        self.ask::<StatsResponse>(format!("stats {id}"), "Stats", &request).await;
    }

    /// Connect; from then on the shim's pid has a name.
    pub async fn connect(&mut self, id: &str) {
        let request = ConnectRequest { id: id.to_owned(), ..Default::default() };
        let answer = self.send::<ConnectResponse>("Connect", &request).await;
        if let Ok(response) = &answer
            && self.is_server(response.shim_pid)
        {
            self.names.pid(response.shim_pid, "server");
        }
        self.answered(format!("connect {id}"), answer);
    }

    fn is_server(&self, pid: u32) -> bool {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&command).contains(&self.binary.namespace)
    }

    pub async fn shutdown(&mut self, id: &str) {
        let request = ShutdownRequest { id: id.to_owned(), ..Default::default() };
        let answer = match self.send::<Empty>("Shutdown", &request).await {
            // A shim that ends may end before it has answered; another step checks that it has ended.
            Err(ttrpc::Error::RpcStatus(status)) => Err(ttrpc::Error::RpcStatus(status)),
            _ => Ok(Empty::new()),
        };
        self.answered(format!("shutdown by {id}"), answer);
    }
}
