//! The owner of a pod: one loop that feeds the state machine and executes what it wants (DESIGN §3).
//!
//! Owns the pod, the resources of its containers and the clock. Handles one input at a time, drains the pod's
//! actions, and never blocks or awaits in between: what takes time runs in `operations` and reports back.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use control_api::Past;
use oci_runtime::attention;
use oci_runtime::bundle::Bundle;
use oci_runtime::reaper::Reaper;
use oci_runtime::stdio::UnusedFifos;
use pod_lifecycle::{
    ContainerId, Event, ExecId, Exit, Pod, PodTime, Refusal, Reply, Request, RequestId, Target,
};
use pod_spec::{BoundedDuration, Node, Parsed};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::command::{Answer, Command};
use crate::control::Identity;
use crate::control::ends::Ends;
use crate::control::fault::Creations;
use crate::control::history::History;
use crate::control::log;
use crate::details::{self, CheckpointDetails, CreateDetails, ExecDetails, SANDBOX_ID};
use crate::error::ServiceError;
use crate::names::names;
use crate::node;
use crate::node_shutdown;
use crate::notice::wall_time;
use crate::operations::Completion;
use crate::publisher::Publisher;
use crate::reads::FailedUpdate;
use crate::resources::{ExecResources, Resources, Surroundings};
use crate::shared_namespaces::PidHistory;

/// containerd deletes what has ended within milliseconds, if it runs.
const TIME_TO_DELETE: Duration = Duration::from_secs(2);
/// Create follows `start` at once, and Shutdown the last Delete. Where containerd was killed or failed in between, or its time
/// for the Delete was over with the answer, neither ever comes (traps 12, 15).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);
/// What may take an exec's terminal to be read out after its process.
const LAST_TERMINAL_OUTPUT: Duration = Duration::from_millis(500);

/// What the owner's own tasks report.
pub(crate) enum Local {
    Completed(Completion),
    Exited { target: Target, exit: oci_runtime::reaper::Exit },
    OutOfMemory { container: ContainerId },
    NotUpdated(Box<FailedUpdate>),
}

impl Local {
    /// For the measure of how long it takes.
    fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) => "the end of an operation",
            Self::Exited { .. } => "an exit",
            Self::OutOfMemory { .. } | Self::NotUpdated { .. } => "a container's limits",
        }
    }
}

/// Everything there is of a pod.
pub(crate) struct Owner {
    pub(crate) pod: Pod,
    pub(crate) containers: BTreeMap<ContainerId, Resources>,
    pub(crate) local: mpsc::UnboundedSender<Local>,
    pub(crate) history: PidHistory,
    pub(crate) identity: Identity,
    pub(crate) events: History,
    pub(crate) ends: Ends,
    pub(crate) creations: Creations,
    surroundings: Surroundings,
    pub(crate) reaper: Reaper,
    pub(crate) publisher: Publisher,
    pub(crate) requests: BTreeMap<RequestId, Answer<Reply>>,
    /// What the Checkpoint requests ask for that are not answered yet.
    pub(crate) checkpoints: BTreeMap<RequestId, Rc<CheckpointDetails>>,
    /// Of the last create that failed, until its container is created or deleted: containerd deletes it at once
    /// (CONTRACT §1.8).
    pub(crate) unused_fifos: Option<(ContainerId, UnusedFifos)>,
    /// What the node's file said last; only a pod with a plan has it read.
    longest_grace: Duration,
    next_request: u64,
    epoch: Instant,
    shutdown: Shutdown,
}

/// Whether the shim may end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    NotAsked {
        /// When to end by itself, if there is no container.
        by: Option<Instant>,
    },
    /// As soon as the deletes under way have ended.
    WhenEmpty,
    /// When the stop that a signal asked for has ended everything, and its caller had time to delete it.
    WhenFinal {
        /// Since when everything has been final, and how long that is waited for.
        by: Option<Instant>,
    },
    Now,
}

impl Owner {
    pub(crate) fn new(
        mut identity: Identity,
        surroundings: Surroundings,
        reaper: Reaper,
        publisher: Publisher,
    ) -> (Self, mpsc::UnboundedReceiver<Local>) {
        // Unbounded: each message answers something the owner itself began.
        let (local, inbox) = mpsc::unbounded_channel();
        identity.started_at_ms = i64::try_from(wall_time(wall_clock()).0.as_millis()).unwrap_or_default();
        let owner = Self {
            pod: Pod::new(),
            containers: BTreeMap::new(),
            local,
            history: PidHistory::default(),
            identity,
            events: History::default(),
            ends: Ends::default(),
            creations: Creations::default(),
            surroundings,
            reaper,
            publisher,
            requests: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            unused_fifos: None,
            longest_grace: BoundedDuration::MAX.get(),
            next_request: 0,
            epoch: Instant::now(),
            shutdown: Shutdown::NotAsked { by: None },
        };
        (owner, inbox)
    }

    /// Serves until the shim is asked to shut down and has nothing left. `stop` yields when the process was
    /// asked to end by a signal. Returns the publisher, for its last events, and what is to be kept of the pod.
    pub(crate) async fn run_until_empty(
        mut self,
        mut commands: mpsc::Receiver<Command>,
        mut inbox: mpsc::UnboundedReceiver<Local>,
        mut stop: mpsc::Receiver<()>,
    ) -> (Publisher, Option<Past>) {
        while !self.may_end() {
            // One beyond all clocks is none.
            let next = self.pod.next_deadline().and_then(|at| self.epoch.checked_add(at.since_epoch()));
            let deadline = next.into_iter().chain(self.leave_by()).chain(self.fault_due()).min();
            tokio::select! {
                // What has happened comes before what is asked next.
                biased;
                Some(local) = inbox.recv() => attention::during(local.name(), || self.on_local(local)),
                Some(()) = stop.recv() => {
                    info!("asked to end by a signal: the pod is stopped in order");
                    self.feed(Event::StopPod { grace: None });
                    self.shutdown = Shutdown::WhenFinal { by: None };
                }
                id = next_abandoned(&mut self.requests) => {
                    self.requests.remove(&id);
                    self.feed(Event::Abandoned { id });
                }
                Some(command) = commands.recv() => {
                    attention::during("a request", || self.on_command(command));
                }
                () = tokio::time::sleep_until(deadline.unwrap_or(self.epoch)), if deadline.is_some() => {
                    attention::during("what was due", || {
                        self.feed(Event::Tick);
                        self.tell_fault();
                    });
                }
                else => break,
            }
        }
        let past = self.past();
        (self.publisher, past)
    }

    /// When to end if no caller comes: to create or to shut down, or after an ordered stop to delete the remains.
    fn leave_by(&mut self) -> Option<Instant> {
        let (is_idle, by, patience) = match &mut self.shutdown {
            Shutdown::NotAsked { by } => (self.pod.is_empty(), by, FORGOTTEN_AFTER),
            Shutdown::WhenFinal { by } => (self.pod.is_final(), by, TIME_TO_DELETE),
            Shutdown::WhenEmpty | Shutdown::Now => return None,
        };
        if is_idle {
            by.get_or_insert_with(|| Instant::now() + patience);
        } else {
            *by = None;
        }
        *by
    }

    fn may_end(&self) -> bool {
        let is_over = |by: Option<Instant>| by.is_some_and(|by| Instant::now() >= by);
        match self.shutdown {
            Shutdown::NotAsked { by } => self.pod.is_empty() && is_over(by),
            Shutdown::WhenEmpty => self.pod.is_empty(),
            // Also trap 15: a shim whose first Create never came.
            Shutdown::WhenFinal { by } => self.pod.is_empty() || is_over(by),
            Shutdown::Now => true,
        }
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Create { container, details, answer } => self.create(container, *details, answer),
            Command::Exec { container, exec, details, answer } => {
                self.add_exec(container, exec, *details, answer);
            }
            Command::Checkpoint { container, details, answer } => {
                self.checkpoint(container, *details, answer)
            }
            Command::Delete { target, limit, answer } => {
                self.surroundings.pace.hurry();
                if target.exec.is_none() {
                    self.end_unused_fifos(&target.container);
                }
                if let Some(resources) = self.containers.get_mut(&target.container) {
                    resources.delete_limit = limit;
                }
                self.request(Request::Delete(target), answer);
            }
            Command::Pod { request, answer } => {
                if let Request::Kill { .. } = request {
                    self.surroundings.pace.hurry();
                }
                self.request(request, answer);
            }
            Command::State { target, answer } => drop(answer.send(self.state(&target))),
            Command::Pids { container, answer } => drop(answer.send(self.pids(container))),
            Command::Stats { container, answer } => drop(answer.send(self.stats(container))),
            Command::Update { container, resources, answer } => self.update(container, resources, answer),
            Command::Resize { target, size, answer } => drop(answer.send(self.resize(&target, size))),
            Command::CloseStdin { target, answer } => drop(answer.send(self.close_stdin(&target))),
            Command::Control(command) => self.on_control(command),
            Command::Shutdown { answer } => {
                // CONTRACT §1.8: sent after every delete; only the last one means it.
                if self.pod.is_empty() {
                    self.shutdown = Shutdown::Now;
                } else if self.pod.is_leaving() && matches!(self.shutdown, Shutdown::NotAsked { .. }) {
                    self.shutdown = Shutdown::WhenEmpty;
                }
                drop(answer.send(Ok(())));
            }
        }
    }

    /// Reads what the container's spec says, and hands the request to the pod.
    fn create(&mut self, id: ContainerId, details: CreateDetails, answer: Answer<Reply>) {
        if self.containers.contains_key(&id) {
            let refusal = Refusal {
                kind: pod_lifecycle::RefusalKind::AlreadyExists,
                message: format!("container {id} already exists"),
            };
            return drop(answer.send(Err(refusal.into())));
        }
        let file = &self.surroundings.draining_file;
        if node_shutdown::is_draining(file) {
            let (container, file) = (id.to_string(), file.display().to_string());
            return drop(answer.send(Err(ServiceError::Draining { container, file })));
        }
        if matches!(self.shutdown, Shutdown::NotAsked { .. } | Shutdown::WhenEmpty) {
            self.shutdown = Shutdown::NotAsked { by: None };
        }
        match self.prepare(&id, details) {
            Ok((resources, spec)) => {
                names().container_is(id.as_str(), &spec.name);
                self.creations.add(&spec.name, spec.kubelet_type);
                self.containers.insert(id.clone(), resources);
                self.request(Request::Create { container: id.clone(), spec: Box::new(spec) }, answer);
                // Refused: the pod never knew it.
                if !self.pod.containers().any(|known| *known == id) {
                    self.containers.remove(&id);
                    names().forget(id.as_str());
                }
            }
            Err(error) => drop(answer.send(Err(error))),
        }
    }

    /// Tells the readers of a container's unused fifos, if there are any, that nothing more comes.
    pub(crate) fn end_unused_fifos(&mut self, id: &ContainerId) {
        self.unused_fifos.take_if(|(container, _)| container == id);
    }

    /// Keeps an exec's details if the pod takes the exec.
    fn add_exec(&mut self, id: ContainerId, exec: ExecId, details: ExecDetails, answer: Answer<Reply>) {
        let is_new = match self.containers.get_mut(&id) {
            Some(resources) if !resources.execs.contains_key(&exec) => {
                resources.execs.insert(exec.clone(), ExecResources::new(details));
                true
            }
            _ => false,
        };
        self.request(Request::Exec { container: id.clone(), exec: exec.clone() }, answer);
        let target = Target { container: id, exec: Some(exec.clone()) };
        if is_new
            && self.pod.view(&target).is_err()
            && let Some(resources) = self.containers.get_mut(&target.container)
        {
            resources.execs.remove(&exec);
        }
    }

    fn prepare(
        &mut self,
        id: &ContainerId,
        mut details: CreateDetails,
    ) -> Result<(Resources, pod_lifecycle::ContainerSpec), ServiceError> {
        let invalid = |message: String| ServiceError::Invalid { container: id.to_string(), message };
        let bundle = Bundle::new(&details.bundle);
        let spec = bundle.read_spec().map_err(|error| invalid(error.to_string()))?;
        details::membership(id, &spec.annotations, &self.identity.id)
            .map_err(|message| ServiceError::Invalid { container: id.to_string(), message })?;
        self.identity.learn(&spec.annotations);
        names().pod_is(&self.identity.pod_namespace, &self.identity.pod_name);
        let plan = match self.read_annotations(&spec.annotations) {
            Ok(parsed) => {
                for warning in &parsed.warnings {
                    warn!(container = %id, %warning, "annotations");
                }
                parsed.plan
            }
            // 11.4: the sandbox's values count; a later container's differ only by accident.
            Err(error) if self.pod.plan_is_settled() => {
                warn!(container = %id, %error, "annotations are ignored: the pod has its plan already");
                None
            }
            Err(error) => return Err(invalid(error)),
        };
        self.join_live_namespaces(id, &bundle, &spec)?;
        if let Some(sandbox) = spec
            .annotations
            .get(SANDBOX_ID)
            .and_then(|id| self.containers.get(&ContainerId::from(id.as_str())))
        {
            details.options = details.options.with_runtime_of(&sandbox.details.options);
        }
        // `delete` must call the same runtime, also when no process is left to ask.
        details.options.save(&bundle).map_err(|error| invalid(error.to_string()))?;
        let runtime =
            Rc::new(details.options.runtime(self.reaper.clone(), &self.surroundings.namespace, &spec));
        let mut core = details::container_spec(id, &spec, details.origin(), plan);
        core.kubelet_grace = core.kubelet_grace.map(|grace| self.at_most(grace));
        let resources =
            Resources::new(runtime.container(id.as_str(), bundle), self.surroundings.clone(), details, &spec);
        Ok((resources, core))
    }

    /// What a container's annotations say on this node. The node's file is read only where there are some: a pod
    /// without them knows nothing of podshim (S1).
    fn read_annotations(&mut self, annotations: &BTreeMap<String, String>) -> Result<Parsed, String> {
        let ours = annotations.keys().any(|key| key.starts_with(pod_spec::PREFIX));
        let node = if ours { node::read(&self.surroundings.node_file)? } else { Node::default() };
        self.longest_grace = node.longest_grace();
        node.parse_pod(details::annotations(annotations)).map_err(|error| error.to_string())
    }

    /// A grace that is not the plan's, within what the node allows.
    pub(crate) fn at_most(&self, grace: Duration) -> Duration {
        BoundedDuration::new(grace).get().min(self.longest_grace)
    }

    pub(crate) fn next_request(&mut self) -> RequestId {
        self.next_request += 1;
        RequestId(self.next_request)
    }

    fn request(&mut self, request: Request, answer: Answer<Reply>) {
        let id = self.next_request();
        if let Request::Delete(Target { container, exec: None }) = &request
            && let Some(resources) = self.containers.get_mut(container)
        {
            resources.deletes.push(id);
        }
        self.submit(id, request, answer);
    }

    pub(crate) fn submit(&mut self, id: RequestId, request: Request, answer: Answer<Reply>) {
        self.requests.insert(id, answer);
        self.feed(Event::Request { id, request });
    }

    fn on_local(&mut self, local: Local) {
        match local {
            Local::Completed(completion) => self.complete(completion),
            Local::Exited { target, exit } => {
                self.output_ended(&target);
                let exit = Exit { code: exit.code.into(), at: wall_time(exit.at) };
                self.feed(Event::Exited { target, exit });
            }
            Local::OutOfMemory { container } => self.feed(Event::OutOfMemory { container }),
            Local::NotUpdated(failed) => self.update_failed(*failed),
        }
    }

    /// Keeps what goes with a process. An exec's output ends with it; a container's may go on in its next incarnation (`Finish`).
    fn output_ended(&mut self, target: &Target) {
        let Some(exec) = &target.exec else {
            // Only the scope's files: the thirty of the other cgroups are not needed before the exit is published.
            if let Some(resources) = self.containers.get_mut(&target.container) {
                resources.read_stats_of_scope();
            }
            return;
        };
        let record = self.containers.get_mut(&target.container).and_then(|r| r.execs.get_mut(exec));
        let Some(record) = record else { return };
        if let Some(stdio) = &mut record.stdio {
            stdio.finish_output();
        }
        // CONTRACT §7: a terminal is closed at the exit, even if another process still holds it.
        if let Some(console) = record.console.take() {
            tokio::task::spawn_local(console.shutdown(LAST_TERMINAL_OUTPUT));
        }
    }

    /// Hands an event to the pod and does everything it wants.
    pub(crate) fn feed(&mut self, event: Event) {
        debug!(?event, "event");
        self.pod.handle(self.now(), event);
        let actions: Vec<_> = std::iter::from_fn(|| self.pod.next_action()).collect();
        log::say(&actions);
        for action in actions {
            debug!(?action, "action");
            let at = (self.now(), wall_time(wall_clock()));
            self.events.remember(&action, at, |id| self.pod.name_of(id));
            self.ends.learn(&action, &self.pod);
            self.execute(action);
        }
        self.events.tell();
        self.surroundings.pace.in_stop(self.pod.is_stopping());
    }

    pub(crate) fn now(&self) -> PodTime {
        PodTime::after_epoch(self.epoch.elapsed())
    }
}

/// The next request whose caller is gone (DESIGN §3): containerd leaves its Waits behind when it is killed.
async fn next_abandoned(requests: &mut BTreeMap<RequestId, Answer<Reply>>) -> RequestId {
    std::future::poll_fn(|context| {
        let mut answers = requests.iter_mut();
        let gone = answers.find_map(|(id, answer)| answer.poll_closed(context).is_ready().then_some(*id));
        gone.map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

#[expect(clippy::disallowed_methods, reason = "the driver is where the core's wall times come from")]
pub(crate) fn wall_clock() -> SystemTime {
    SystemTime::now()
}
