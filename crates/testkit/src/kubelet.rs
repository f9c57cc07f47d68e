//! A kubelet: the caller that closes the loop. It sees what CRI lists, restarts by the pod's policy, kills by probes,
//! and never asks again for what its policy counts as over.
//!
//! Owns the one worker that a kubelet has for each pod (a sync, or the pod's end, one at a time) and when it works.
//! `sync` owns what a sync decides, `cri` what happens to its calls, and `expectation` the final state of the pod. It
//! knows only Kubernetes' pods: nothing here knows a plan or the core.

mod aware;
mod back_off;
mod cri;
mod ending;
mod expectation;
pub mod fault;
mod ledger;
mod order;
mod restart_all;
mod restart_order;
mod setup;
mod status;
mod sync;
mod unaware;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pod_lifecycle::{ContainerId, KubeletHook, PodTime};

use crate::new_container::NewContainer;
use crate::text::millis;
use back_off::BackOff;
use cri::{CallEnd, CallId, Cri};
use fuzz_input::Rng;
use ledger::Ledger;
use order::Ending;
use restart_order::RestartOfAll;
use status::{Listed, State};
use sync::{Actions, SyncInput};

pub use setup::{KubeletSetup, KubeletVersion, PodContainer, SpecPart};

pub(crate) use cri::ShimCall;
pub use setup::parse_policy;

/// How often the PLEG looks at what CRI lists.
const RELIST: Duration = Duration::from_secs(1);
/// Between two syncs of a pod without news, and up to half as much again at random.
const RESYNC: Duration = Duration::from_secs(60);
/// The time to the next sync after one that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// From the start of a CRI call to its first effect.
const LATENCIES: [u64; 5] = [0, 0, 2, 30, 150];

/// The kubelet of one pod.
#[derive(Clone, Debug)]
pub(crate) struct Kubelet {
    setup: KubeletSetup,
    random: Rng,
    cri: Cri,
    /// Each container's current image; a container with another one does not match the pod's spec.
    images: Vec<u32>,
    /// Until when the pulls of an image fail.
    pulls: BTreeMap<usize, PodTime>,
    back_off: BackOff,
    /// The containers whose liveness or startup probe has failed. A container is not probed again after that.
    failed_probes: BTreeSet<ContainerId>,
    /// How often each container has been created.
    attempts: Vec<u32>,
    worker: WorkerState,
    /// When the worker has something to do next.
    due: PodTime,
    /// How many changes in what CRI lists the last sync had seen.
    seen: u64,
    relist_phase: Duration,
    ending: Option<Ending>,
    notes: Vec<String>,
    ledger: Ledger,
    /// Containers whose operation always fails: their command does not exist.
    broken: BTreeSet<usize>,
    /// When it last began to create a container.
    last_start: PodTime,
    restart_of_all: RestartOfAll,
}

/// What the pod's worker does.
#[derive(Clone, Debug)]
enum WorkerState {
    Idle,
    Syncing(Sync),
    /// Kills all containers, then stops the sandbox.
    Ending,
    /// The kubelet is not running.
    Down,
    /// The sandbox has been stopped.
    Over,
}

/// A sync under way.
#[derive(Clone, Debug)]
struct Sync {
    kills: VecDeque<ContainerId>,
    starts: VecDeque<usize>,
    /// When the newest dead container of each name ended, as the sync saw it: back-off counts from there.
    dead_since: BTreeMap<usize, PodTime>,
    waits_for: Option<Step>,
    /// Whether the sync waits for an init that is no sidecar.
    starts_init: bool,
    failed: bool,
}

/// What a sync waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Kill(CallId),
    Start(CallId),
}

impl Kubelet {
    /// A kubelet that begins now. The commands of `broken` do not exist, which it does not know.
    pub(crate) fn new<'a>(setup: KubeletSetup, now: PodTime, broken: impl Iterator<Item = &'a str>) -> Self {
        let position = |name: &str| setup.containers.iter().position(|container| container.name == name);
        let broken = broken.filter_map(position).collect();
        let mut random = Rng::new(setup.seed);
        let relist_phase = millis(random.below(1000) as u64);
        let count = setup.containers.len();
        Self {
            random,
            cri: Cri::default(),
            images: vec![0; count],
            pulls: BTreeMap::new(),
            back_off: BackOff::default(),
            failed_probes: BTreeSet::new(),
            attempts: vec![0; count],
            worker: WorkerState::Idle,
            due: now,
            seen: 0,
            relist_phase,
            ending: None,
            notes: Vec::new(),
            ledger: Ledger::default(),
            broken,
            last_start: now,
            restart_of_all: RestartOfAll::default(),
            setup,
        }
    }

    /// The id of a container's task on its n-th attempt.
    fn id_of(&self, container: usize, attempt: u32) -> ContainerId {
        format!("{}-{attempt}", self.setup.containers[container].name).as_str().into()
    }

    /// The one place that describes a container of a kubelet: what its annotations tell a shim. Of `initContainers` they say
    /// nothing: no release sends `io.kubernetes.container.type`.
    fn new_container(&mut self, container: usize) -> NewContainer {
        self.attempts[container] += 1;
        let PodContainer { name, hook, .. } = &self.setup.containers[container];
        NewContainer {
            id: self.id_of(container, self.attempts[container]),
            kubelet_grace: Some(self.setup.grace),
            kubelet: Some(hook.map_or(KubeletHook::None, |_| KubeletHook::PreStop)),
            ..NewContainer::named(name)
        }
    }

    /// When it has something to do next.
    pub(crate) fn next_at(&self) -> Option<PodTime> {
        let worker = match self.worker {
            WorkerState::Idle | WorkerState::Down => Some(self.due),
            WorkerState::Ending => self.next_turn_at(),
            WorkerState::Syncing(_) | WorkerState::Over => None,
        };
        worker.into_iter().chain(self.cri.next_at()).min()
    }

    /// Does what is due.
    pub(crate) fn wake(&mut self, now: PodTime) {
        self.cri.wake(now);
        loop {
            let finished = self.cri.take_finished();
            let idle = finished.is_empty();
            for (call, end) in finished {
                self.call_ended(now, call, end);
            }
            if idle {
                break;
            }
            self.cri.wake(now);
        }
        if matches!(self.worker, WorkerState::Ending) {
            self.take_turns(now);
            self.cri.wake(now);
        }
        if now < self.due {
            return;
        }
        match self.worker {
            WorkerState::Down => {
                self.note("kubelet is back".to_owned());
                self.worker = WorkerState::Idle;
                self.sync(now);
            }
            WorkerState::Idle => self.sync(now),
            WorkerState::Syncing(_) | WorkerState::Ending | WorkerState::Over => {}
        }
        self.cri.wake(now);
    }

    /// The next call of CRI to the shim.
    pub(crate) fn next_call(&mut self) -> Option<(CallId, ShimCall)> {
        self.cri.next_call()
    }

    pub(crate) fn ledger(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    pub(crate) fn cri(&mut self) -> &mut Cri {
        &mut self.cri
    }

    pub(crate) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn note(&mut self, line: String) {
        self.notes.push(line);
    }

    /// A program has begun: a startup probe notices it.
    pub(crate) fn began(&mut self, now: PodTime, id: &ContainerId) {
        self.ledger.began(id);
        if self.setup.version == KubeletVersion::Aware {
            self.relist(now);
        }
    }

    /// CRI sees a container's exit.
    pub(crate) fn exited(&mut self, now: PodTime, id: &ContainerId, code: u32) {
        self.cri.exited(now, id, code);
        self.relist(now);
    }

    /// The PLEG sees a change at its next look.
    fn relist(&mut self, now: PodTime) {
        if matches!(self.worker, WorkerState::Idle) {
            let relist = self.relist_after(now);
            self.due = self.due.min(relist);
        }
    }

    fn relist_after(&self, now: PodTime) -> PodTime {
        let since = now.since(PodTime::after_epoch(self.relist_phase)).as_millis() as u64;
        let step = RELIST.as_millis() as u64;
        let first = PodTime::after_epoch(self.relist_phase);
        if now < first { first } else { first + millis((since / step + 1) * step) }
    }

    fn latency(&mut self) -> Duration {
        millis(*self.random.pick(&LATENCIES))
    }

    /// One look at the pod, and its consequences.
    fn sync(&mut self, now: PodTime) {
        self.seen = self.cri.changes();
        let input = SyncInput {
            setup: &self.setup,
            images: &self.images,
            listed: self.cri.listed(),
            failed_probes: &self.failed_probes,
            ledger: &self.ledger,
        };
        let actions = match self.setup.version {
            KubeletVersion::Unaware => unaware::decide(&input),
            KubeletVersion::Aware => aware::decide(&input),
        };
        if self.ending.is_some() || actions.kill_pod && !self.restart_of_all.is_ordered() {
            return self.end(now);
        }
        if self.restart_of_all.is_ordered() {
            return self.begin_restart_of_all(now);
        }
        let Actions { mut kill, start, .. } = actions;
        self.random.shuffle(&mut kill);
        let dead_since = start.iter().filter_map(|container| {
            let dead = self.cri.listed().newest_dead(*container)?;
            match dead.state {
                State::Exited { at, .. } => Some((*container, at)),
                _ => None,
            }
        });
        let sync = Sync {
            dead_since: dead_since.collect(),
            kills: kill.into(),
            starts: start.into(),
            waits_for: None,
            starts_init: false,
            failed: false,
        };
        self.worker = WorkerState::Syncing(sync);
        self.go_on(now);
    }

    /// The next step of a sync whose last one has ended.
    fn go_on(&mut self, now: PodTime) {
        loop {
            let WorkerState::Syncing(sync) = &mut self.worker else { return };
            if sync.waits_for.is_some() {
                return;
            }
            if let Some(id) = sync.kills.pop_front() {
                let call = self.kill(now, &id);
                let WorkerState::Syncing(sync) = &mut self.worker else { return };
                sync.waits_for = Some(Step::Kill(call));
                return;
            }
            let Some(container) = sync.starts.pop_front() else { return self.synced(now) };
            let dead_since = sync.dead_since.get(&container).copied();
            self.start(now, container, dead_since);
        }
    }

    fn kill(&mut self, now: PodTime, id: &ContainerId) -> CallId {
        self.note(format!("kubelet kills {id}"));
        self.ledger.killed.insert(id.clone());
        let begin = now + self.latency();
        let grace = if self.restart_of_all.is_ordered() { Duration::ZERO } else { self.setup.grace };
        let (hook, timeout) = self.shares_of(id, grace);
        self.cri.stop_container(begin + hook, id.clone(), timeout)
    }

    /// The part of a grace that a preStop hook takes, and what is left then: 2 s at least.
    fn shares_of(&self, id: &ContainerId, grace: Duration) -> (Duration, Duration) {
        let container = self.cri.listed().get(id).map(|listed| listed.container);
        let hook = container.and_then(|container| self.setup.containers[container].hook);
        let hook = hook.unwrap_or_default().min(grace);
        (hook, (grace - hook).max(setup::LEAST_GRACE))
    }

    fn start(&mut self, now: PodTime, container: usize, dead_since: Option<PodTime>) {
        let key = (container, self.images[container]);
        if let Some(since) = dead_since {
            if self.back_off.holds(now, key, since) {
                return;
            }
            self.back_off.next(now, key, since);
        }
        if self.pulls.get(&container).is_some_and(|until| now < *until) {
            self.note(format!("kubelet cannot pull the image of {}", self.setup.containers[container].name));
            if let WorkerState::Syncing(sync) = &mut self.worker {
                sync.failed = true;
            }
            return;
        }
        let new = self.new_container(container);
        self.note(format!("kubelet starts {}", new.id));
        self.last_start = now;
        let begin = now + self.latency();
        let call = self.cri.start_container(begin, new, container, self.images[container]);
        if let WorkerState::Syncing(sync) = &mut self.worker {
            sync.waits_for = Some(Step::Start(call));
            sync.starts_init = self.setup.containers[container].part == SpecPart::Init;
        }
    }

    fn synced(&mut self, now: PodTime) {
        let WorkerState::Syncing(sync) = &self.worker else { return };
        let pause = if sync.failed { AFTER_FAILURE } else { RESYNC };
        let failed = sync.failed;
        self.worker = WorkerState::Idle;
        self.due = now + pause + pause.mul_f64(self.random.below(50) as f64 / 100.0);
        if !failed {
            self.end_restart_of_all();
        }
        if self.ending.is_some() {
            self.due = now;
        } else if self.cri.changes() != self.seen {
            self.relist(now);
        }
    }

    fn call_ended(&mut self, now: PodTime, call: CallId, end: CallEnd) {
        let failed = end == CallEnd::Failed;
        match &mut self.worker {
            WorkerState::Syncing(sync) => {
                let Some(step) = sync.waits_for else { return };
                if step != Step::Kill(call) && step != Step::Start(call) {
                    return;
                }
                sync.waits_for = None;
                sync.failed |= failed;
                // A failed kill ends the sync, and so does an init that does not start; no other failure does.
                let ends = match step {
                    Step::Kill(_) => failed,
                    Step::Start(_) => failed && sync.starts_init,
                };
                if ends {
                    sync.kills.clear();
                    sync.starts.clear();
                }
                self.go_on(now);
            }
            WorkerState::Ending => self.end_goes_on(now, call, end),
            _ => {}
        }
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        self.setup.containers.iter().position(|container| container.name == name)
    }

    /// The running container of a name, as CRI lists it.
    pub(crate) fn running_of(&self, name: &str) -> Option<&ContainerId> {
        self.newest(name).filter(|newest| newest.state == State::Running).map(|newest| &newest.id)
    }

    /// The newest container of a name.
    fn newest(&self, name: &str) -> Option<&Listed> {
        self.cri.listed().newest(self.index_of(name)?)
    }
}
