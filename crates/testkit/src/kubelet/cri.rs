//! containerd's CRI plugin as far as a kubelet needs it: what it lists, and the calls under way.
//!
//! Owns how StartContainer, StopContainer and StopPodSandbox become calls of a shim (F3, F4), and what a call still
//! does when its client is gone. The simulator deletes each task that has exited (F6).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use pod_lifecycle::{ContainerId, PodTime, Reach, RefusalKind, RequestId};
use pod_spec::Signal;

use super::status::{List, Listed, State};
use crate::new_container::NewContainer;

/// What CRI reports for a container that could not be started.
pub(super) const START_ERROR: u32 = 128;
/// How long a kubelet waits for an answer, beyond a container's grace.
const CLIENT_LIMIT: Duration = Duration::from_secs(120);
const PAUSE: &str = "pause";

/// A call of the shim that CRI makes.
#[derive(Clone, Debug)]
pub(crate) enum ShimCall {
    Create(NewContainer),
    Start(ContainerId),
    Kill(ContainerId, Signal, Reach),
    Delete(ContainerId),
}

/// How a call to the CRI has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallEnd {
    Done,
    Failed,
}

/// A call of CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CallId(u64);

#[derive(Clone, Debug)]
enum Call {
    Start { new: Box<NewContainer>, container: usize, image: u32, stage: StartStage },
    Stop { id: ContainerId, timeout: Duration, stage: StopStage },
    Sandbox { left: VecDeque<ContainerId> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartStage {
    Waiting(PodTime),
    Creating,
    Starting,
    /// It has failed; what exists of the task is killed and deleted.
    Cleaning,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopStage {
    Waiting(PodTime),
    Signalling,
    Signalled { kill_at: PodTime },
    Killed { give_up_at: PodTime },
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Cri {
    listed: List,
    calls: BTreeMap<CallId, Call>,
    requests: BTreeMap<RequestId, CallId>,
    out: VecDeque<(CallId, ShimCall)>,
    finished: Vec<(CallId, CallEnd)>,
    changes: u64,
    last_call: u64,
    /// The containers whose Start has been answered.
    started: BTreeSet<ContainerId>,
}

impl Cri {
    /// Whether a container's Start has been answered.
    pub(super) fn has_started(&self, id: &ContainerId) -> bool {
        self.started.contains(id)
    }

    pub(super) fn listed(&self) -> &List {
        &self.listed
    }

    /// How many changes there were in what it lists.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    pub(super) fn start_container(
        &mut self,
        at: PodTime,
        new: NewContainer,
        container: usize,
        image: u32,
    ) -> CallId {
        self.call(Call::Start { new: Box::new(new), container, image, stage: StartStage::Waiting(at) })
    }

    pub(super) fn stop_container(&mut self, at: PodTime, id: ContainerId, timeout: Duration) -> CallId {
        self.call(Call::Stop { id, timeout, stage: StopStage::Waiting(at) })
    }

    /// Stops the running containers in that order, then pause.
    pub(super) fn stop_sandbox(&mut self, order: Vec<ContainerId>) -> CallId {
        let left: VecDeque<_> = order.into_iter().chain([PAUSE.into()]).collect();
        let first = left.front().cloned();
        let call = self.call(Call::Sandbox { left });
        if let Some(first) = first {
            self.out.push_back((call, ShimCall::Kill(first, Signal::KILL, Reach::Process)));
        }
        call
    }

    /// Removes the dead containers of a name.
    pub(super) fn remove_dead(&mut self, container: usize) -> bool {
        let removed = self.listed.forget_dead(container);
        self.changes += u64::from(removed);
        removed
    }

    /// The kubelet is gone, and its connections too: its waits are given up, and no SIGKILL follows.
    pub(super) fn client_is_gone(&mut self, now: PodTime) {
        self.out.clear();
        self.finished.clear();
        let calls = std::mem::take(&mut self.calls);
        for (call, what) in calls {
            let Call::Start { new, container, image, stage } = what else { continue };
            let id = new.id.clone();
            match stage {
                StartStage::Waiting(_) => continue,
                StartStage::Creating => {
                    self.out.push_back((call, ShimCall::Delete(id.clone())));
                    self.set(now, &id, State::Exited { code: START_ERROR, at: now });
                    continue;
                }
                StartStage::Starting => {
                    self.out.push_back((call, ShimCall::Kill(id.clone(), Signal::KILL, Reach::All)));
                }
                StartStage::Cleaning => {}
            }
            self.calls.insert(call, Call::Start { new, container, image, stage: StartStage::Cleaning });
        }
    }

    fn call(&mut self, call: Call) -> CallId {
        self.last_call += 1;
        let id = CallId(self.last_call);
        self.calls.insert(id, call);
        id
    }

    fn set(&mut self, now: PodTime, id: &ContainerId, state: State) {
        if let Some(listed) = self.listed.get_mut(id) {
            (listed.state, listed.since) = (state, now);
            self.changes += 1;
        }
    }

    pub(super) fn next_at(&self) -> Option<PodTime> {
        let due = self.calls.values().filter_map(|call| match call {
            Call::Start { stage: StartStage::Waiting(at), .. } => Some(*at),
            Call::Stop { stage, .. } => match stage {
                StopStage::Waiting(at)
                | StopStage::Signalled { kill_at: at }
                | StopStage::Killed { give_up_at: at } => Some(*at),
                StopStage::Signalling => None,
            },
            _ => None,
        });
        let now = (!self.out.is_empty() || !self.finished.is_empty()).then_some(PodTime::ZERO);
        due.chain(now).min()
    }

    /// Does what is due.
    pub(super) fn wake(&mut self, now: PodTime) {
        let due: Vec<CallId> = self.calls.keys().copied().collect();
        for call in due {
            match self.calls.get_mut(&call) {
                Some(Call::Start { new, container, image, stage }) => {
                    if !matches!(stage, StartStage::Waiting(at) if *at <= now) {
                        continue;
                    }
                    *stage = StartStage::Creating;
                    let listed = Listed {
                        id: new.id.clone(),
                        container: *container,
                        image: *image,
                        state: State::Created,
                        since: now,
                        was_signalled: false,
                    };
                    self.out.push_back((call, ShimCall::Create((**new).clone())));
                    self.listed.add(listed);
                    self.changes += 1;
                }
                Some(Call::Stop { .. }) => self.stop_goes_on(now, call),
                Some(Call::Sandbox { .. }) | None => {}
            }
        }
    }

    fn stop_goes_on(&mut self, now: PodTime, call: CallId) {
        let Some(Call::Stop { id, timeout, stage }) = self.calls.get_mut(&call) else { return };
        let Some(listed) = self.listed.get_mut(id) else { return self.finish(call, CallEnd::Done) };
        let signal = match *stage {
            StopStage::Waiting(at) if at <= now => {
                if listed.state != State::Running {
                    return self.finish(call, CallEnd::Done);
                }
                if timeout.is_zero() {
                    Some(Signal::KILL)
                } else if listed.was_signalled {
                    *stage = StopStage::Signalled { kill_at: now + *timeout };
                    None
                } else {
                    listed.was_signalled = true;
                    *stage = StopStage::Signalling;
                    Some(Signal::TERM)
                }
            }
            StopStage::Signalled { kill_at } if kill_at <= now => Some(Signal::KILL),
            StopStage::Killed { give_up_at } if give_up_at <= now => {
                return self.finish(call, CallEnd::Failed);
            }
            _ => None,
        };
        let Some(signal) = signal else { return };
        if signal == Signal::KILL {
            *stage = StopStage::Killed { give_up_at: now + CLIENT_LIMIT };
        }
        let kill = ShimCall::Kill(id.clone(), signal, Reach::Process);
        self.out.push_back((call, kill));
    }

    fn finish(&mut self, call: CallId, end: CallEnd) {
        if self.calls.remove(&call).is_some() {
            self.finished.push((call, end));
        }
    }

    pub(super) fn take_finished(&mut self) -> Vec<(CallId, CallEnd)> {
        std::mem::take(&mut self.finished)
    }

    pub(super) fn next_call(&mut self) -> Option<(CallId, ShimCall)> {
        self.out.pop_front()
    }

    /// Notes the request id of a call to the shim.
    pub(crate) fn asked(&mut self, request: RequestId, call: CallId) {
        self.requests.insert(request, call);
    }

    /// The shim has answered.
    pub(crate) fn answered(&mut self, now: PodTime, request: RequestId, result: Result<(), RefusalKind>) {
        let Some(call) = self.requests.remove(&request) else { return };
        let gone = result == Err(RefusalKind::NotFound);
        match self.calls.get_mut(&call) {
            Some(Call::Start { new, stage, .. }) => {
                let id = new.id.clone();
                match (*stage, result) {
                    (StartStage::Creating, Ok(())) => {
                        *stage = StartStage::Starting;
                        self.out.push_back((call, ShimCall::Start(id)));
                    }
                    (StartStage::Creating, Err(_)) => self.start_failed(now, call, &id),
                    (StartStage::Starting, Ok(())) => {
                        self.set(now, &id, State::Running);
                        self.started.insert(id);
                        self.finish(call, CallEnd::Done);
                    }
                    (StartStage::Starting, Err(_)) => {
                        *stage = StartStage::Cleaning;
                        self.out.push_back((call, ShimCall::Kill(id, Signal::KILL, Reach::All)));
                    }
                    (StartStage::Cleaning, Err(_)) => self.start_failed(now, call, &id),
                    (StartStage::Cleaning, Ok(())) | (StartStage::Waiting(_), _) => {}
                }
            }
            Some(Call::Stop { timeout, stage, .. }) => match (*stage, result) {
                (_, Err(_)) if !gone => self.finish(call, CallEnd::Failed),
                (StopStage::Signalling, _) => *stage = StopStage::Signalled { kill_at: now + *timeout },
                _ => {}
            },
            Some(Call::Sandbox { left }) => match (result, left.front().cloned()) {
                (Err(_), Some(first)) if gone => self.gone(call, &first),
                (Err(_), _) => self.finish(call, CallEnd::Failed),
                _ => {}
            },
            None => {}
        }
    }

    fn start_failed(&mut self, now: PodTime, call: CallId, id: &ContainerId) {
        self.set(now, id, State::Exited { code: START_ERROR, at: now });
        self.finish(call, CallEnd::Failed);
    }

    /// StopPodSandbox goes on with the next container.
    fn gone(&mut self, call: CallId, id: &ContainerId) {
        let Some(Call::Sandbox { left }) = self.calls.get_mut(&call) else { return };
        if left.front() != Some(id) {
            return left.retain(|other| other != id);
        }
        left.pop_front();
        match left.front().cloned() {
            Some(next) => {
                self.out.push_back((call, ShimCall::Kill(next, Signal::KILL, Reach::Process)));
            }
            None => self.finish(call, CallEnd::Done),
        }
    }

    /// A task has exited.
    pub(super) fn exited(&mut self, now: PodTime, id: &ContainerId, code: u32) {
        if self.listed.get(id).is_some_and(|listed| listed.state == State::Running) {
            self.set(now, id, State::Exited { code, at: now });
        }
        let calls: Vec<CallId> = self.calls.keys().copied().collect();
        for call in calls {
            match self.calls.get(&call) {
                Some(Call::Start { new, stage: StartStage::Cleaning, .. }) if new.id == *id => {
                    self.start_failed(now, call, id);
                }
                Some(Call::Stop { id: stopped, .. }) if stopped == id => self.finish(call, CallEnd::Done),
                Some(Call::Sandbox { .. }) => self.gone(call, id),
                _ => {}
            }
        }
    }
}
