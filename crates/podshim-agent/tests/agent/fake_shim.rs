//! A shim that shows what the test says, on the real control API. Never runs a pod.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, mpsc};
use std::time::{Duration, Instant, SystemTime};
use std::{fs, thread};

use async_trait::async_trait;
use control_api::container::{Role, State};
use control_api::event::Kind;
use control_api::{
    Container, Event, EventsRequest, EventsResponse, InspectRequest, InspectResponse, KubeletsOwnRequest,
    KubeletsOwnResponse, RestartRequest, RestartResponse, StopRequest, StopResponse, SwitchRequest,
    SwitchResponse, VERSION, create_pod,
};
use node_state::entry::Entry;
use tokio::sync::{Notify, oneshot};
use ttrpc::asynchronous::{Server, TtrpcContext};

struct Shown {
    pod: InspectResponse,
    events: Vec<Event>,
    /// When the holds that it shows began.
    since: Instant,
    /// How often it was inspected.
    inspected: usize,
    /// The values of the restarts that it was asked for.
    restarts: Vec<String>,
    /// The names of init and ephemeral containers that it got, each list by itself.
    kubelets_own: Vec<Vec<String>>,
    /// Why it refuses those.
    refusal: String,
}

#[derive(Clone)]
struct Service {
    shown: Arc<Mutex<Shown>>,
    happened: Arc<Notify>,
}

/// The shim; its end is that of its value.
pub struct FakeShim {
    service: Service,
    directory: PathBuf,
    end: Option<oneshot::Sender<()>>,
}

pub fn now_ms() -> i64 {
    #[expect(clippy::disallowed_methods, reason = "an event has the time of its machine")]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    i64::try_from(now.as_millis()).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a shim that shows how long a hold lasts")]
fn instant() -> Instant {
    Instant::now()
}

pub fn container(name: &str, role: Role, state: State) -> Container {
    let (id, name) = (format!("id-of-{name}"), name.to_owned());
    Container { id, name, role: role.into(), state: state.into(), ..Default::default() }
}

/// A main that has been held for so long.
pub fn held(name: &str, reason: &str, milliseconds: u64) -> Container {
    Container {
        held_for: reason.to_owned(),
        gate_wait_ms: Some(milliseconds),
        ..container(name, Role::MAIN, State::HELD)
    }
}

impl FakeShim {
    /// A shim of the pod `prod/web` with that uid.
    pub fn start(root: &Path, id: &str, uid: &str, containers: Vec<Container>) -> Self {
        Self::named("web", root, id, uid, containers)
    }

    /// The same of `prod/<name>`.
    pub fn named(name: &str, root: &Path, id: &str, uid: &str, containers: Vec<Container>) -> Self {
        let pod = InspectResponse {
            version: VERSION,
            id: id.to_owned(),
            namespace: "k8s.io".to_owned(),
            pod_name: name.to_owned(),
            pod_namespace: "prod".to_owned(),
            pod_uid: uid.to_owned(),
            started_at_ms: now_ms(),
            restart_request: Some(String::new()),
            containers,
            ..Default::default()
        };
        let shown = Shown {
            pod,
            events: Vec::new(),
            since: instant(),
            inspected: 0,
            restarts: Vec::new(),
            kubelets_own: Vec::new(),
            refusal: String::new(),
        };
        let service = Service { shown: Arc::new(Mutex::new(shown)), happened: Arc::new(Notify::new()) };
        let directory = root.join("k8s.io").join(id);
        fs::create_dir_all(&directory).unwrap();
        let (end, ended) = oneshot::channel();
        serve(service.clone(), &directory, ended);
        let entry = Entry {
            version: VERSION,
            id: id.to_owned(),
            namespace: "k8s.io".to_owned(),
            socket: directory.join("socket"),
            pod_name: name.to_owned(),
            pod_namespace: "prod".to_owned(),
            ..Entry::default()
        };
        entry.write_to(&directory).unwrap();
        Self { service, directory, end: Some(end) }
    }

    /// What is so from now on.
    pub fn shows(&self, containers: Vec<Container>) {
        self.change(|pod| pod.containers = containers);
    }

    /// Changes what it shows.
    pub fn change(&self, change: impl FnOnce(&mut InspectResponse)) {
        let mut shown = self.service.shown();
        change(&mut shown.pod);
        shown.since = instant();
    }

    /// How often it was inspected.
    pub fn inspected(&self) -> usize {
        self.service.shown().inspected
    }

    /// The restarts that it was asked for.
    pub fn restarts(&self) -> Vec<String> {
        self.service.shown().restarts.clone()
    }

    /// The names of init and ephemeral containers that it got, each list by itself.
    pub fn kubelets_own(&self) -> Vec<Vec<String>> {
        self.service.shown().kubelets_own.clone()
    }

    /// It refuses restarts and names from now on.
    pub fn refuses(&self, why: &str) {
        why.clone_into(&mut self.service.shown().refusal);
    }

    /// Something happens.
    pub fn happens(&self, kind: Kind, name: &str, fill: impl FnOnce(&mut Event)) {
        let mut shown = self.service.shown();
        let mut event = Event {
            sequence: shown.events.len() as u64 + 1,
            wall_ms: now_ms(),
            kind: kind.into(),
            name: name.to_owned(),
            ..Default::default()
        };
        if !name.is_empty() {
            event.id = format!("id-of-{name}");
        }
        fill(&mut event);
        shown.events.push(event);
        drop(shown);
        self.service.happened.notify_waiters();
    }
}

impl Drop for FakeShim {
    fn drop(&mut self) {
        Entry::remove_from(&self.directory);
        drop(self.end.take());
        let _ = fs::remove_dir_all(&self.directory);
    }
}

fn serve(service: Service, directory: &Path, ended: oneshot::Receiver<()>) {
    let address = format!("unix://{}", directory.join("socket").display());
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let service = create_pod(Arc::new(service));
            let mut server = Server::new().bind(&address).unwrap().register_service(service);
            server.start().await.unwrap();
            ready.send(()).unwrap();
            let _ = ended.await;
        });
    });
    is_ready.recv().unwrap();
}

fn refused(why: &str) -> ttrpc::Error {
    ttrpc::Error::RpcStatus(ttrpc::get_status(ttrpc::Code::FAILED_PRECONDITION, why))
}

impl Service {
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap()
    }
}

#[async_trait]
impl control_api::Pod for Service {
    async fn inspect(&self, _: &TtrpcContext, _: InspectRequest) -> ttrpc::Result<InspectResponse> {
        let mut shown = self.shown();
        shown.inspected += 1;
        let mut pod = shown.pod.clone();
        let more = u64::try_from(shown.since.elapsed().as_millis()).unwrap();
        for container in &mut pod.containers {
            container.gate_wait_ms = container.gate_wait_ms.map(|time| time + more);
        }
        Ok(pod)
    }

    async fn events(&self, _: &TtrpcContext, request: EventsRequest) -> ttrpc::Result<EventsResponse> {
        let wait = Duration::from_millis(request.wait_ms);
        let newer = || {
            let events = self.shown().events.clone();
            events.into_iter().filter(|event| event.sequence > request.after).collect::<Vec<_>>()
        };
        let mut happened = std::pin::pin!(self.happened.notified());
        happened.as_mut().enable();
        let mut events = newer();
        if events.is_empty() {
            let _ = tokio::time::timeout(wait, happened).await;
            events = newer();
        }
        Ok(EventsResponse { version: VERSION, events, ..Default::default() })
    }

    async fn stop(&self, _: &TtrpcContext, _: StopRequest) -> ttrpc::Result<StopResponse> {
        panic!("the agent does not ask for this");
    }

    async fn restart(&self, _: &TtrpcContext, restart: RestartRequest) -> ttrpc::Result<RestartResponse> {
        let mut shown = self.shown();
        shown.restarts.push(restart.request.clone());
        if shown.pod.restart_request.as_ref() != Some(&restart.request) {
            shown.pod.restart_refusal = shown.refusal.clone();
            (shown.pod.restart_request, shown.pod.restart_request_ms) = (Some(restart.request), now_ms());
        }
        match shown.refusal.as_str() {
            "" => Ok(RestartResponse { version: VERSION, ..Default::default() }),
            why => Err(refused(why)),
        }
    }

    async fn kubelets_own(
        &self,
        _: &TtrpcContext,
        request: KubeletsOwnRequest,
    ) -> ttrpc::Result<KubeletsOwnResponse> {
        let mut shown = self.shown();
        shown.kubelets_own.push(request.names.clone());
        if !shown.refusal.is_empty() {
            return Err(refused(&shown.refusal));
        }
        if let Some(own) = shown.pod.kubelets_own.as_mut() {
            own.names.extend(request.names);
        }
        Ok(KubeletsOwnResponse { version: VERSION, ..Default::default() })
    }

    async fn switch(&self, _: &TtrpcContext, _: SwitchRequest) -> ttrpc::Result<SwitchResponse> {
        panic!("the agent does not ask for this");
    }
}
