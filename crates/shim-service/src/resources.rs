//! What the owner holds for a container, from its Create to its Delete: streams, processes, limits, execs.
//!
//! Owns these and how they change together; each change is a method that names what has happened. Decides nothing about the pod.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use cgroups::{Cgroup, CgroupDriver, Guard, Stats};
use nix::unistd::Pid;
use oci_runtime::bundle::Bundle;
use oci_runtime::probe::Prober;
use oci_runtime::runtime::{Beside, BesideSpec, Container, GiveUp};
use own_processes::NotUnderstood;
use pod_lifecycle::{ExecId, Failure, OpId, RequestId, Target};
use processes::Process;
use serde_json::Value;
use streams::console::TerminalSize;
use streams::head::{HeldBack, Streams, Terminal};
use tokio::sync::{Mutex, Notify};
use tracing::info;

use crate::context::PodContext;
use crate::details::{CreateDetails, ExecDetails};
use crate::error::failure;
use crate::exec::ExecResources;
use crate::group_counts::GroupCounts;
use crate::incarnation::{Incarnation, IncarnationStreams, Legacy, LimitsAre};
use crate::launch::Launcher;
use crate::node_shutdown;
use crate::oom_score::HighestOomScore;
use crate::readiness::NotifyListener;
use crate::report::Removal;
use crate::spec_draft::SpecDraft;

/// The kubelet's annotation: the path of the termination message in the container.
const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";
/// Where it is if the annotation does not say, or does not come: containerd passes on what its configuration names.
const USUAL_TERMINATION_MESSAGE: &str = "/dev/termination-log";

/// One container.
#[derive(Debug)]
pub(crate) struct Resources {
    runtime: Container,
    context: PodContext,
    details: Rc<CreateDetails>,
    /// Its spec, until its Create begins.
    draft: Option<Box<SpecDraft>>,
    /// The name of its systemd scope, under the systemd cgroup driver (N5).
    scope: Option<String>,
    /// The file on the host behind the termination message, if there is one (J9).
    termination_message: Option<PathBuf>,
    /// Ends the wait of its create for the readers of its streams (F11).
    unwanted: Rc<Notify>,
    /// The operations that its end does not wait for, and what ends their calls (T10).
    calls: Vec<(OpId, GiveUp)>,
    /// Held while it is under way, also after it was given up: what comes next for the container waits for that.
    turn: Rc<Mutex<()>>,
    /// Ends its waits for its pod's share of a processor.
    hurry: Rc<Notify>,
    /// Open from the create to the delete, over all incarnations (R6).
    streams: Option<Streams>,
    /// The current process; none while it is replaced.
    incarnation: Option<Incarnation>,
    /// Outlives the incarnation: the runtime still has the container, and the cgroup its last numbers.
    last: Option<LastIncarnation>,
    counts: GroupCounts,
    rootfs_use: RootfsUse,
    /// How long the caller of the last Delete waits.
    delete_limit: Option<Duration>,
    /// The last limits that a caller set, as JSON, for the next incarnation (R6).
    limits: Option<Rc<[u8]>>,
    limits_are: LimitsAre,
    size: Option<TerminalSize>,
    execs: BTreeMap<ExecId, ExecResources>,
    /// The Delete requests so far. A delete that ends when no caller waits any more does not count (trap 12).
    deletes: Vec<RequestId>,
    /// Of a Delete that outlasted its caller.
    removal: Option<Removal>,
    /// Of the processes of gates and hooks. Read when it is needed first: few containers have one.
    beside: Option<BesideSpec>,
    highest_oom_score: HighestOomScore,
    prober: Prober,
    /// For a `notify` gate.
    notify: Option<NotifyListener>,
}

/// Until when a container's rootfs must stay mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootfsUse {
    /// No program needs it: it is unmounted while the runtime deletes the container. An unmount writes back the file system and
    /// takes as long as the runtime's delete.
    UntilEnd,
    /// The runtime calls poststop hooks when it deletes the container, and they may read the rootfs.
    UntilDeleted,
}

/// The newest incarnation, as long as the runtime knows the container.
#[derive(Debug)]
struct LastIncarnation {
    pid: Pid,
    /// None if the process was gone before it could be looked up.
    cgroup: Option<Rc<Cgroup>>,
    /// Keeps the container's processes from keeping podshim from the files of its groups. Stays until the next one has its own.
    _guard: Option<Guard>,
}

impl Resources {
    pub(crate) fn new(
        runtime: Container,
        context: PodContext,
        details: CreateDetails,
        draft: SpecDraft,
    ) -> Self {
        let spec = draft.spec();
        let has_poststop = spec.hooks.as_ref().is_some_and(|hooks| !hooks.poststop.is_empty());
        let message =
            spec.annotations.get(TERMINATION_MESSAGE_PATH).map_or(USUAL_TERMINATION_MESSAGE, String::as_str);
        Self {
            runtime,
            context,
            scope: match details.options.cgroup_driver_for(spec) {
                CgroupDriver::Systemd => node_shutdown::scope_of(spec),
                CgroupDriver::Cgroupfs => None,
            },
            termination_message: spec.bind_source(Path::new(message)).map(Into::into),
            details: Rc::new(details),
            draft: Some(Box::new(draft)),
            unwanted: Rc::default(),
            calls: Vec::new(),
            turn: Rc::default(),
            hurry: Rc::default(),
            streams: None,
            incarnation: None,
            last: None,
            counts: GroupCounts::default(),
            rootfs_use: if has_poststop { RootfsUse::UntilDeleted } else { RootfsUse::UntilEnd },
            delete_limit: None,
            limits: None,
            limits_are: LimitsAre::Written,
            size: None,
            execs: BTreeMap::new(),
            deletes: Vec::new(),
            removal: None,
            beside: None,
            highest_oom_score: HighestOomScore::default(),
            prober: Prober::default(),
            notify: None,
        }
    }

    pub(crate) fn runtime(&self) -> &Container {
        &self.runtime
    }

    /// Its Create begins: the spec, to be completed and given to its maker.
    pub(crate) fn take_draft(&mut self) -> Option<SpecDraft> {
        self.draft.take().map(|draft| *draft)
    }

    /// Its spec is written so.
    ///
    /// # Errors
    /// What podshim does not do itself, of a sandbox that it makes.
    pub(crate) fn spec_is(&mut self, spec: &Value) -> Result<(), NotUnderstood> {
        self.runtime.spec_is(spec)
    }

    pub(crate) fn bundle(&self) -> &Bundle {
        self.runtime.bundle()
    }

    pub(crate) fn context(&self) -> &PodContext {
        &self.context
    }

    pub(crate) fn details(&self) -> &Rc<CreateDetails> {
        &self.details
    }

    pub(crate) fn scope(&self) -> Option<&str> {
        self.scope.as_deref()
    }

    pub(crate) fn termination_message(&self) -> Option<&Path> {
        self.termination_message.as_deref()
    }

    pub(crate) fn rootfs_use(&self) -> RootfsUse {
        self.rootfs_use
    }

    pub(crate) fn prober(&self) -> &Prober {
        &self.prober
    }

    pub(crate) fn launcher(&self) -> Launcher {
        let unwanted = self.unwanted.clone();
        Launcher::new(self.runtime.clone(), self.details.clone(), self.context.clone(), unwanted)
    }

    /// A create that waits for the readers of its streams fails now.
    pub(crate) fn give_up_create(&self) {
        self.unwanted.notify_one();
    }

    /// An operation begins that its container's end may not wait for (T10). Returns what ends its calls.
    pub(crate) fn calls_begin(&mut self, op: OpId) -> GiveUp {
        let give_up = GiveUp::default();
        self.calls.push((op, give_up.clone()));
        give_up
    }

    /// An operation has ended.
    pub(crate) fn calls_ended(&mut self, op: OpId) {
        self.calls.retain(|(under_way, _)| *under_way != op);
    }

    /// Ends the calls of that operation, if it is under way. Returns whether it is.
    pub(crate) fn give_up(&mut self, op: OpId) -> bool {
        let under_way = self.calls.iter().position(|(under_way, _)| *under_way == op);
        let given_up = under_way.map(|place| self.calls.swap_remove(place).1.now());
        given_up.is_some()
    }

    /// What an operation that makes or starts a process holds, and what comes after it waits for.
    pub(crate) fn turn(&self) -> Rc<Mutex<()>> {
        self.turn.clone()
    }

    /// What ends its waits for its pod's share of a processor.
    pub(crate) fn hurry(&self) -> &Rc<Notify> {
        &self.hurry
    }

    pub(crate) fn streams(&self) -> Option<&Streams> {
        self.streams.as_ref()
    }

    /// The streams for all its incarnations are open.
    pub(crate) fn streams_opened(&mut self, streams: Streams) {
        self.streams = Some(streams);
    }

    /// The streams that its next process is created with.
    pub(crate) fn next_streams(&self) -> Result<IncarnationStreams, Failure> {
        match &self.streams {
            Some(streams) => Ok(IncarnationStreams::of(streams)),
            None => Err(failure("its stdio is closed")),
        }
    }

    pub(crate) fn close_stdin(&mut self) {
        if let Some(streams) = &self.streams {
            streams.close_stdin();
        }
    }

    /// It has ended for its caller: no process of it writes any more.
    pub(crate) fn finish_output(&mut self) {
        if let Some(streams) = &self.streams {
            streams.finish_output();
        }
    }

    /// Its streams, for the caller to end: it is being deleted.
    pub(crate) fn take_streams(&mut self) -> (Option<Terminal>, Option<Streams>) {
        let terminal = self.incarnation.as_mut().and_then(Incarnation::take_terminal);
        (terminal, self.streams.take())
    }

    /// It has a new process. Its terminal gets the last size, which may have been set while the process was created (R6).
    pub(crate) fn process_created(
        &mut self,
        incarnation: Incarnation,
        held_back: HeldBack,
        cgroup: Option<Rc<Cgroup>>,
        guard: Option<Guard>,
    ) {
        let pid = incarnation.process().pid();
        self.incarnation = Some(incarnation);
        if let Some(streams) = &self.streams {
            streams.accept(held_back);
        }
        self.counts.group_is(cgroup.as_deref());
        self.limits_are = LimitsAre::Written;
        self.last = Some(LastIncarnation { pid, cgroup, _guard: guard });
        self.read_stats_of_scope();
        self.set_size();
    }

    pub(crate) fn incarnation(&self) -> Option<&Incarnation> {
        self.incarnation.as_ref()
    }

    /// Its current process has exited: it reads its terminal no more (D4, R6), and no helper may stay in its groups.
    pub(crate) fn exited(&mut self) {
        self.prober.ended();
        if let Some(notify) = &self.notify {
            notify.ended();
        }
        if let Some(incarnation) = &mut self.incarnation {
            incarnation.exited();
        }
    }

    /// Ends podshim's helpers in its groups, and waits until they have left: the OCI runtime's delete may refuse groups with other
    /// processes in them (H5).
    pub(crate) fn helpers_leave(&self) -> impl Future<Output = ()> + use<> {
        let (prober, notify) = (self.prober.clone(), self.notify.as_ref().map(NotifyListener::left));
        async move {
            let notify = async {
                if let Some(left) = notify {
                    left.await;
                }
            };
            tokio::join!(prober.left(), notify);
        }
    }

    /// The current process, which is to be replaced.
    pub(crate) fn take_incarnation(&mut self) -> Option<Incarnation> {
        self.incarnation.take()
    }

    pub(crate) fn process(&self) -> Option<&Rc<Process>> {
        self.incarnation.as_ref().map(Incarnation::process)
    }

    /// The pid of the newest incarnation; none if there never was one.
    pub(crate) fn last_pid(&self) -> Option<Pid> {
        self.last.as_ref().map(|last| last.pid)
    }

    pub(crate) fn cgroup(&self) -> Option<&Rc<Cgroup>> {
        self.last.as_ref()?.cgroup.as_ref()
    }

    /// The current numbers, or the last ones if the cgroup is gone; none if there never was one.
    pub(crate) fn read_stats(&mut self) -> Option<Stats> {
        let cgroup = self.last.as_ref().and_then(|last| last.cgroup.as_deref());
        self.counts.read(cgroup)
    }

    /// Reads the numbers of a scope early. systemd removes a scope when its last process ends, often before the shim runs again;
    /// so they are read when it begins, and at its end if it still exists. Other cgroups stay until the runtime's delete.
    pub(crate) fn read_stats_of_scope(&mut self) {
        if self.scope.is_some() {
            self.read_stats();
        }
    }

    /// A caller sets the size of its terminal.
    pub(crate) fn resize(&mut self, size: TerminalSize) {
        self.size = Some(size);
        self.set_size();
    }

    fn set_size(&self) {
        let terminal = self.incarnation.as_ref().and_then(Incarnation::terminal);
        if let (Some(terminal), Some(size)) = (terminal, self.size) {
            terminal.resize(size);
        }
    }

    pub(crate) fn size(&self) -> Option<TerminalSize> {
        self.size
    }

    /// What its next process gets from this one.
    pub(crate) fn legacy(&self) -> Legacy {
        // systemd removes a scope with its last process. A poststop hook must see, and may unmount, what the node sees.
        let can_be_kept = self.scope.is_none() && self.rootfs_use == RootfsUse::UntilEnd;
        let path = self.runtime.cgroups_path().map(str::to_owned);
        let groups = path.zip(self.cgroup().cloned()).filter(|_| can_be_kept);
        Legacy { groups, limits: self.limits.clone(), limits_are: self.limits_are }
    }

    /// The runtime has written them into the group.
    pub(crate) fn limits_written(&mut self, written: &Rc<[u8]>) {
        if self.limits.as_ref().is_some_and(|now| Rc::ptr_eq(now, written)) {
            self.limits_are = LimitsAre::Written;
        }
    }

    /// The limits for its next process, beside those of its spec.
    pub(crate) fn limits(&self) -> Option<&Rc<[u8]>> {
        self.limits.as_ref()
    }

    /// A caller requests limits. Returns those that held before.
    pub(crate) fn request_limits(&mut self, limits: Rc<[u8]>) -> Option<Rc<[u8]>> {
        self.limits_are = LimitsAre::Waiting;
        self.limits.replace(limits)
    }

    /// The runtime could not apply the limits: those before hold, unless a caller has set others meanwhile.
    pub(crate) fn limits_failed(&mut self, failed: &Rc<[u8]>, before: Option<Rc<[u8]>>) {
        if self.limits.as_ref().is_some_and(|now| Rc::ptr_eq(now, failed)) {
            self.limits = before;
        }
    }

    /// The socket for its `notify` gate is open.
    pub(crate) fn notify_opened(&mut self, listener: NotifyListener) {
        self.notify = Some(listener);
    }

    pub(crate) fn notify(&self) -> Option<&NotifyListener> {
        self.notify.as_ref()
    }

    /// Adds an exec. `false`: there is one of that id already, which stays.
    pub(crate) fn add_exec(&mut self, id: &ExecId, details: ExecDetails) -> bool {
        let is_new = !self.execs.contains_key(id);
        if is_new {
            self.execs.insert(id.clone(), ExecResources::new(details));
        }
        is_new
    }

    pub(crate) fn remove_exec(&mut self, id: &ExecId) {
        self.execs.remove(id);
    }

    pub(crate) fn exec(&self, id: &ExecId) -> Option<&ExecResources> {
        self.execs.get(id)
    }

    pub(crate) fn exec_mut(&mut self, id: &ExecId) -> Option<&mut ExecResources> {
        self.execs.get_mut(id)
    }

    /// The exec whose process has that pid.
    pub(crate) fn exec_of(&self, pid: Pid) -> Option<&ExecId> {
        let is_its = |exec: &ExecResources| exec.process().is_some_and(|process| process.pid() == pid);
        self.execs.iter().find(|(_, exec)| is_its(exec)).map(|(id, _)| id)
    }

    /// A caller asks for the delete of the container, or of one of its execs, and waits for at most `limit`.
    pub(crate) fn delete_requested(&mut self, target: &Target, request: RequestId, limit: Option<Duration>) {
        self.delete_limit = limit;
        if target.exec.is_none() {
            self.deletes.push(request);
        }
    }

    pub(crate) fn deletes(&self) -> &[RequestId] {
        &self.deletes
    }

    /// Its delete has ended, and no caller waited for that any more.
    pub(crate) fn removal_ended(&mut self, removal: Removal) {
        self.removal = Some(removal);
    }

    /// Whether such a delete has left nothing to do.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal == Some(Removal::Complete)
    }

    pub(crate) fn delete_limit(&self) -> Option<Duration> {
        self.delete_limit
    }

    /// N8: also for the processes that start in it later.
    pub(crate) fn lower_oom_score(&mut self, highest: i32) {
        self.highest_oom_score.lower(highest);
        self.beside = None;
    }

    /// N8: the highest score of its processes, and their groups.
    pub(crate) fn oom_score_limit(&self) -> Option<(Rc<Cgroup>, i32)> {
        Some((self.cgroup()?.clone(), self.highest_oom_score.get()?))
    }

    /// A process beside its program: same user, environment and restrictions (DESIGN §6).
    pub(crate) fn beside(&mut self, id: String, command: &[String]) -> Result<Beside, Failure> {
        let spec = match &self.beside {
            Some(spec) => spec.clone(),
            None => {
                let draft = SpecDraft::read(self.bundle()).map_err(failure)?;
                let bound = |tree: &mut Value| {
                    self.highest_oom_score.bound(&mut tree["process"]);
                    Ok(())
                };
                let mut draft = draft.changed(bound).map_err(failure)?;
                let tree = draft.tree().map_err(failure)?;
                let keyring = self.details.session_keyring();
                let (spec, not_understood) = BesideSpec::of(&self.runtime, tree, keyring);
                if let Some(reason) = not_understood {
                    info!(container = self.runtime.id(), %reason, "the OCI runtime starts the processes of its gates and hooks");
                }
                self.beside.insert(spec).clone()
            }
        };
        let incarnation = self.incarnation.as_ref().ok_or_else(|| failure("it has no process"))?;
        let init = incarnation.process().clone();
        Ok(Beside { spec, command: command.to_vec(), id, init, cgroup: self.cgroup().cloned() })
    }
}
