//! `*=main` without a kubelet (S8): each container has a name of its own, and none is kept once it is gone.

use pod_lifecycle::{
    Action, Caller, ContainerId, ContainerSpec, Event, Exit, Operation, Origin, Outcome, PidNamespace, Pod,
    PodTime, Reach, Request, RequestId, Target, TaskKind, WallTime,
};
use pod_spec::Signal;

/// A pod whose operations all succeed at once.
struct Driver {
    pod: Pod,
    requests: u64,
}

impl Driver {
    fn new() -> Self {
        Self { pod: Pod::new(), requests: 0 }
    }

    fn feed(&mut self, event: Event) {
        self.pod.handle(PodTime::ZERO, event);
        while let Some(action) = self.pod.next_action() {
            if let Action::Run { op, operation, .. } = action {
                let outcome = match operation {
                    Operation::Create => Outcome::Process { pid: 1000 },
                    _ => Outcome::Ok,
                };
                self.pod.handle(PodTime::ZERO, Event::Done { op, outcome, at: WallTime::default() });
            }
        }
    }

    fn ask(&mut self, request: Request) {
        self.requests += 1;
        self.feed(Event::Request { id: RequestId(self.requests), request });
    }

    fn run(&mut self, name: &str) {
        let plan = pod_spec::parse([("podshim.io/plan", "s1=sidecar, *=main")]).expect("a plan").plan;
        let spec = ContainerSpec {
            name: name.to_owned(),
            kind: TaskKind::Container,
            caller: Caller::Other,
            kubelet_type: None,
            kubelet: None,
            pid_namespace: PidNamespace::Private,
            kubelet_grace: None,
            oom_score_adj: None,
            origin: Origin::Program,
            plan,
        };
        let container = ContainerId::from(name);
        self.ask(Request::Create { container: container.clone(), spec: Box::new(spec) });
        self.ask(Request::Start(Target::init(container)));
    }

    /// It ends, after a stop signal of its caller if there is one, and is deleted.
    fn end(&mut self, name: &str, signal: Option<Signal>) {
        let target = Target::init(name.into());
        if let Some(signal) = signal {
            self.ask(Request::Kill { target: target.clone(), signal, reach: Reach::Process });
        }
        self.feed(Event::Exited { target: target.clone(), exit: Exit::default() });
        self.ask(Request::Delete(target));
    }

    fn names(&self) -> Vec<String> {
        self.pod.inspect(PodTime::ZERO).containers.into_iter().map(|container| container.name).collect()
    }
}

/// Whatever ran and is gone is nobody's business any more.
#[test]
fn s8_an_unnamed_main_is_forgotten_with_its_container() {
    let mut driver = Driver::new();
    driver.run("s1");
    driver.run("web");
    for number in 0..1000 {
        let name = format!("job-{number}");
        driver.run(&name);
        assert_eq!(driver.names(), ["s1", "web", &name]);
        driver.end(&name, None);
    }
    assert_eq!(driver.names(), ["s1", "web"]);
    driver.end("web", None);
    driver.run("other");
    assert_eq!(driver.names(), ["s1", "other"]);
}

/// T12: that a main was asked to stop is known for as long as it matters, by the newest one alone.
#[test]
fn s8_t12_one_main_that_was_stopped_is_remembered() {
    let mut driver = Driver::new();
    driver.run("s1");
    driver.run("web");
    for number in 0..1000 {
        let name = format!("job-{number}");
        driver.run(&name);
        driver.end(&name, Some(Signal::TERM));
        assert!(driver.names().len() <= 3, "{:?}", driver.names());
    }
    assert!(!driver.pod.is_stopping());
    driver.ask(Request::Kill {
        target: Target::init("s1".into()),
        signal: Signal::TERM,
        reach: Reach::Process,
    });
    assert!(driver.pod.is_stopping(), "a main and a sidecar were asked");
}
