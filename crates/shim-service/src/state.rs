//! Everything there is of a pod: its state machine, what its containers need, the open requests, the clock.
//!
//! Owns no behaviour: `drive` alone feeds the state machine, and each part changes by its own methods. May never import a file
//! that executes, answers or decides: those are functions over the state.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use nix::unistd::Pid;
use oci_runtime::runtime::take_finished_calls;
use pod_lifecycle::{Action, ContainerId, Event, OpId, Pod, PodTime, Target};
use pod_spec::{BoundedDuration, GateAction, Node};
use processes::reaper::Reaper;
use streams::head::UnusedFifos;
use tokio::time::Instant;
use tracing::debug;

use crate::clock::{Clock, wall_ms, wall_now};
use crate::context::PodContext;
use crate::control::counters::PodCounters;
use crate::control::fault::CreatedNames;
use crate::control::history::History;
use crate::control::last_exits::LastExits;
use crate::control::restart_requests::RestartRequests;
use crate::identity::Identity;
use crate::lifetime::Lifetime;
use crate::node::NodeFile;
use crate::pod_sandbox::PodSandbox;
use crate::publisher::Publisher;
use crate::report::ReportSender;
use crate::requests::OpenRequests;
use crate::resources::Resources;
use crate::shared_namespaces::PidHistory;

/// Everything there is of a pod.
pub(crate) struct State {
    pod: Pod,
    containers: BTreeMap<ContainerId, Resources>,
    sandbox: Option<PodSandbox>,
    pub(crate) requests: OpenRequests,
    pub(crate) reports: ReportSender,
    /// The operations that the pod has given up and that have not ended (T10).
    pub(crate) given_up: BTreeSet<OpId>,
    lifetime: Lifetime,
    pub(crate) pids: PidHistory,
    pub(crate) identity: Identity,
    pub(crate) history: History,
    pub(crate) last_exits: LastExits,
    pub(crate) counters: PodCounters,
    pub(crate) created_names: CreatedNames,
    pub(crate) restart_requests: RestartRequests,
    pub(crate) context: PodContext,
    pub(crate) reaper: Reaper,
    pub(crate) publisher: Publisher,
    clock: Clock,
    /// The fifos of the last create that failed, until its container is created or deleted: containerd deletes it at once
    /// (CONTRACT §1.8).
    unused_fifos: Option<(ContainerId, UnusedFifos)>,
    /// The node's bound. Its file is read only for containers with podshim's annotations.
    longest_grace: Duration,
    /// The OCI runtime of the node's file, read for the pod's first container whose options name none: all have the same one.
    oci_runtime: OnceCell<Option<String>>,
    /// A hash of podshim's annotations that were read last.
    annotations: Option<u64>,
}

impl State {
    pub(crate) fn new(
        mut identity: Identity,
        context: PodContext,
        reaper: Reaper,
        publisher: Publisher,
        reports: ReportSender,
    ) -> Self {
        identity.started_at_ms = wall_ms();
        let counters = PodCounters::new(format!("{}-{}", std::process::id(), identity.started_at_ms));
        Self {
            pod: Pod::new(),
            containers: BTreeMap::new(),
            sandbox: None,
            requests: OpenRequests::default(),
            reports,
            given_up: BTreeSet::new(),
            lifetime: Lifetime::new(),
            pids: PidHistory::default(),
            identity,
            history: History::default(),
            last_exits: LastExits::default(),
            counters,
            created_names: CreatedNames::default(),
            restart_requests: RestartRequests::default(),
            context,
            reaper,
            publisher,
            clock: Clock::start(),
            unused_fifos: None,
            longest_grace: BoundedDuration::MAX.get(),
            oci_runtime: OnceCell::new(),
            annotations: None,
        }
    }

    /// The OCI runtime that the node's file names. With a mistake in it none: that is no reason against a pod without annotations (S1).
    pub(crate) fn oci_runtime_of_node(&self, file: &NodeFile<'_>) -> Option<&str> {
        let read = || file.node().ok().and_then(Node::oci_runtime).map(str::to_owned);
        self.oci_runtime.get_or_init(read).as_deref()
    }

    pub(crate) fn pod(&self) -> &Pod {
        &self.pod
    }

    /// The pod's state machine takes an event. Returns what it wants done, in order.
    pub(crate) fn handle(&mut self, event: Event) -> Vec<Action> {
        self.pod.handle(self.clock.now(), event);
        std::iter::from_fn(|| self.pod.next_action()).collect()
    }

    /// Keeps what an action says of the pod: for the timeline, for `inspect`, for the counts.
    pub(crate) fn record(&mut self, action: &Action) {
        let at = (self.clock.now(), wall_now());
        self.history.record(action, at, |id| self.pod.name_of(id));
        self.last_exits.record(action, &self.pod);
        self.counters.record(action, &self.pod, at.0);
    }

    pub(crate) fn has_container(&self, id: &ContainerId) -> bool {
        self.containers.contains_key(id)
    }

    pub(crate) fn container(&self, id: &ContainerId) -> Option<&Resources> {
        self.containers.get(id)
    }

    pub(crate) fn container_mut(&mut self, id: &ContainerId) -> Option<&mut Resources> {
        self.containers.get_mut(id)
    }

    pub(crate) fn add_container(&mut self, id: ContainerId, resources: Resources) {
        self.containers.insert(id, resources);
    }

    /// What a container needs, and what opens its gate while it is closed (U2, U3).
    pub(crate) fn container_and_gate(
        &mut self,
        id: &ContainerId,
    ) -> (Option<&mut Resources>, Option<&GateAction>) {
        (self.containers.get_mut(id), self.pod.closed_gate(id))
    }

    /// Whether the shim has nothing more to do.
    pub(crate) fn is_over(&self) -> bool {
        self.lifetime.is_over(&self.pod)
    }

    /// When the shim leaves, if nothing happens until then.
    pub(crate) fn leave_by(&mut self) -> Option<Instant> {
        self.lifetime.deadline(&self.pod)
    }

    /// containerd wants the shim to leave.
    pub(crate) fn shutdown_requested(&mut self) {
        self.lifetime.shutdown_requested(&self.pod);
    }

    /// A signal stops the pod, and then the shim.
    pub(crate) fn stop_signalled(&mut self) {
        self.lifetime.stop_signalled();
    }

    /// A container is created: the shim no longer exits for lack of one.
    pub(crate) fn create_requested(&mut self) {
        self.lifetime.create_requested();
    }

    pub(crate) fn clock(&self) -> Clock {
        self.clock
    }

    pub(crate) fn now(&self) -> PodTime {
        self.clock.now()
    }

    /// The current pid of a container, while it has a process.
    pub(crate) fn live_pid(&self, id: &ContainerId) -> Option<Pid> {
        let view = self.pod.view(&Target::init(id.clone())).ok()?;
        view.has_process.then(|| Pid::from_raw(view.pid.cast_signed()))
    }

    /// Takes the bounds of the node's file, which was just read, and remembers for which of podshim's annotations.
    pub(crate) fn have_read(&mut self, node: &Node, annotations: &[(&str, &str)]) {
        self.longest_grace = node.longest_grace();
        self.annotations = Some(hash(annotations));
    }

    /// Whether the pod has its plan, and these of podshim's annotations were read last.
    pub(crate) fn has_settled_by(&self, annotations: &[(&str, &str)]) -> bool {
        self.pod.plan_is_settled() && self.annotations == Some(hash(annotations))
    }

    /// A grace that does not come from the plan, cut to the node's bound.
    pub(crate) fn at_most(&self, grace: Duration) -> Duration {
        BoundedDuration::new(grace).get().min(self.longest_grace)
    }

    /// The sandbox of the Sandbox API; under any other caller the sandbox is a container like the others.
    pub(crate) fn sandbox(&self) -> Option<&PodSandbox> {
        self.sandbox.as_ref()
    }

    pub(crate) fn sandbox_made(&mut self, sandbox: PodSandbox) {
        self.sandbox = Some(sandbox);
    }

    /// A container starts: from now on its sandbox, if it is that, is not given up.
    pub(crate) fn start_begins(&mut self, id: &ContainerId) {
        if let Some(sandbox) = self.sandbox.as_mut().filter(|sandbox| sandbox.is(id)) {
            sandbox.start_begins();
        }
    }

    /// The sandbox is given up. What is to be deleted, if there is one.
    pub(crate) fn sandbox_removal_begins(&mut self) -> Option<Target> {
        let sandbox = self.sandbox.as_mut()?;
        sandbox.removal_begins();
        Some(Target::init(sandbox.id().clone()))
    }

    /// Whether it is the sandbox of the Sandbox API, of which no caller knows as a task.
    pub(crate) fn is_pod_sandbox(&self, id: &ContainerId) -> bool {
        self.sandbox.as_ref().is_some_and(|sandbox| sandbox.is(id))
    }

    /// A container has ended: if it was the sandbox, what the containers share goes.
    pub(crate) fn ended(&mut self, id: &ContainerId) {
        if let Some(sandbox) = self.sandbox.as_mut().filter(|sandbox| sandbox.is(id)) {
            sandbox.release();
        }
    }

    /// Nothing of the sandbox is needed any more.
    pub(crate) fn discard_sandbox(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            sandbox.discard();
        }
    }

    /// A container is no longer known, with all that the sandbox held if it was that.
    pub(crate) fn forget(&mut self, id: &ContainerId) {
        self.containers.remove(id);
        if let Some(sandbox) = self.sandbox.take_if(|sandbox| sandbox.is(id)) {
            sandbox.discard();
        }
    }

    /// Counts the calls of the OCI runtime that have ended, and the events that were dropped.
    pub(crate) fn count_what_has_ended(&mut self) {
        self.counters.record_calls(take_finished_calls());
        self.counters.events_dropped(self.publisher.dropped());
    }

    /// Writes what was counted into the pod's entry.
    pub(crate) fn save_counts(&mut self) {
        if let Err(error) = self.counters.save(&self.context.state_directory) {
            // The next change tries again.
            debug!(%error, "cannot keep what was counted for podshim metrics");
        }
    }

    /// Keeps the fifos of a create that failed open: their readers must not see an end before the next create.
    pub(crate) fn keep_unused_fifos(&mut self, id: ContainerId, fifos: UnusedFifos) {
        self.unused_fifos = Some((id, fifos));
    }

    /// Closes a container's unused fifos, if there are any: their readers see the end.
    pub(crate) fn close_unused_fifos(&mut self, id: &ContainerId) {
        self.unused_fifos.take_if(|(container, _)| container == id);
    }
}

fn hash(annotations: &[(&str, &str)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    annotations.hash(&mut hasher);
    hasher.finish()
}
