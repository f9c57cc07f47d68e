//! Drives a pod without the simulator: all its operations succeed at once, and the test sets its clock.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::time::Duration;

use pod_lifecycle::{
    Action, Caller, ContainerId, ContainerSpec, Event, Failure, OpId, Operation, Origin, Outcome,
    PidNamespace, Pod, PodTime, Reach, RefusalKind, Request, RequestId, StartBarrier, Target, TaskKind,
    WallTime,
};
use pod_spec::Signal;

pub struct Driver {
    pub pod: Pod,
    keys: Vec<(&'static str, &'static str)>,
    now: PodTime,
    requests: u64,
    signals: Vec<(ContainerId, Signal)>,
    /// Operations that do not end.
    pub endless: fn(&Operation) -> bool,
    /// Operations that fail.
    pub failing: fn(&Operation) -> bool,
    /// The pid of the next process.
    pub next_pid: u32,
    /// The requests that have been answered, in that order.
    pub answered: Vec<RequestId>,
    /// Why requests were refused.
    pub refusals: Vec<String>,
    /// The newest operation.
    pub last_op: OpId,
    /// What the pod has warned of.
    pub warnings: Vec<String>,
}

impl Driver {
    pub fn new(plan: &'static str) -> Self {
        Self::with_keys(plan, &[])
    }

    /// With further annotations.
    pub fn with_keys(plan: &'static str, keys: &[(&'static str, &'static str)]) -> Self {
        let keys = [&[("podshim.io/plan", plan)], keys].concat();
        Self {
            pod: Pod::new(),
            keys,
            now: PodTime::ZERO,
            requests: 0,
            signals: Vec::new(),
            endless: |_| false,
            failing: |_| false,
            next_pid: 1000,
            answered: Vec::new(),
            refusals: Vec::new(),
            last_op: OpId(0),
            warnings: Vec::new(),
        }
    }

    /// The plan that containers declare from now on.
    pub fn declare(&mut self, plan: &'static str) {
        self.keys = vec![("podshim.io/plan", plan)];
    }

    pub fn feed(&mut self, event: Event) {
        self.pod.handle(self.now, event);
        while let Some(action) = self.pod.next_action() {
            match action {
                Action::Run { op, operation, .. } if (self.endless)(&operation) => self.last_op = op,
                Action::Run { op, operation, .. } => {
                    let outcome = match operation {
                        ref failed if (self.failing)(failed) => Outcome::Failed(Failure {
                            message: "it is broken".to_owned(),
                            kind: RefusalKind::Internal,
                        }),
                        Operation::Create => Outcome::Process { pid: self.next_pid },
                        _ => Outcome::Ok,
                    };
                    self.pod.handle(self.now, Event::Done { op, outcome, at: WallTime::default() });
                }
                Action::Reply { request, result } => {
                    self.answered.push(request);
                    self.refusals.extend(result.err().map(|refusal| refusal.message));
                }
                Action::Warn(warning) => self.warnings.push(warning),
                Action::Signal { target, signal, .. } => self.signals.push((target.container, signal)),
                _ => {}
            }
        }
    }

    pub fn ask(&mut self, request: Request) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.feed(Event::Request { id, request });
        id
    }

    /// Creates and starts a container of ctr, which `change` may turn into another kind.
    pub fn run(&mut self, name: &str, change: impl FnOnce(&mut ContainerSpec)) {
        self.create(name, change);
        self.ask(Request::Start(Target::init(name.into())));
    }

    /// Creates a container of ctr, which `change` may turn into another kind.
    pub fn create(&mut self, name: &str, change: impl FnOnce(&mut ContainerSpec)) {
        let plan = pod_spec::parse(self.keys.iter().copied()).expect("a plan").plan;
        let mut spec = ContainerSpec {
            name: name.to_owned(),
            kind: TaskKind::Container,
            caller: Caller::Other,
            kubelet_type: None,
            start_barrier: StartBarrier::None,
            kubelet: None,
            pid_namespace: PidNamespace::Private,
            kubelet_grace: None,
            oom_score_adj: None,
            origin: Origin::Program,
            plan,
        };
        change(&mut spec);
        self.ask(Request::Create { container: name.into(), spec: Box::new(spec) });
    }

    pub fn signal(&mut self, name: &str, signal: Signal) {
        let target = Target::init(name.into());
        self.ask(Request::Kill { target, signal, reach: Reach::Process });
    }

    /// Sends a tick that long after the start, whatever was due before.
    pub fn tick_at(&mut self, milliseconds: u64) {
        self.sleep_until(milliseconds);
        self.feed(Event::Tick);
    }

    /// The next event comes that long after the start, before any tick.
    pub fn sleep_until(&mut self, milliseconds: u64) {
        self.now = PodTime::after_epoch(Duration::from_millis(milliseconds));
    }

    /// The containers to which the pod has sent signals, in that order.
    pub fn signalled(&self) -> Vec<&str> {
        self.signals.iter().map(|(container, _)| container.as_str()).collect()
    }

    /// The containers to which the pod has sent SIGKILL, in that order.
    pub fn killed(&self) -> Vec<&str> {
        let kills = self.signals.iter().filter(|(_, signal)| *signal == Signal::KILL);
        kills.map(|(container, _)| container.as_str()).collect()
    }
}
