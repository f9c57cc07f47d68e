//! The publisher against an Events server that comes and goes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use async_trait::async_trait;
use containerd_shim_protos::api::Empty;
use containerd_shim_protos::events::task::TaskStart;
use containerd_shim_protos::shim_async::{Events, create_events};
use protobuf::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use ttrpc::asynchronous::transport::Listener;
use ttrpc::asynchronous::{Server, TtrpcContext};

use super::*;

/// A deadline no healthy run comes near.
const LIMIT: Duration = Duration::from_secs(20);

/// containerd's end: hands on what arrives, refuses topic `/bad`, and first answers `BUSY` to each event of topic `/busy`.
struct Containerd {
    received: UnboundedSender<Envelope>,
    answered_busy: AtomicUsize,
}

/// Statuses of a containerd that cannot take an event now.
const BUSY: [Code; 4] = [Code::UNAVAILABLE, Code::DEADLINE_EXCEEDED, Code::CANCELLED, Code::ABORTED];

#[async_trait]
impl Events for Containerd {
    async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
        let envelope = request.envelope.unwrap();
        if envelope.topic == "/bad" {
            return Err(ttrpc::error::get_rpc_status(Code::INVALID_ARGUMENT, "invalid topic"));
        }
        if envelope.topic == "/busy"
            && let Some(code) = BUSY.get(self.answered_busy.fetch_add(1, Ordering::Relaxed))
        {
            return Err(ttrpc::error::get_rpc_status(*code, "not now"));
        }
        self.received.send(envelope).unwrap();
        Ok(Empty::default())
    }
}

async fn start_containerd(path: &Path, received: &UnboundedSender<Envelope>) -> Server {
    let _ = std::fs::remove_file(path);
    let listener = std::os::unix::net::UnixListener::bind(path).unwrap();
    let service = create_events(Arc::new(Containerd {
        received: received.clone(),
        answered_busy: AtomicUsize::new(0),
    }));
    let mut server =
        Server::new().add_listener(Listener::try_from(listener).unwrap()).register_service(service);
    server.start().await.unwrap();
    server
}

fn publish_numbers(publisher: &Publisher, numbers: std::ops::Range<u32>) {
    for pid in numbers {
        publisher.publish("/tasks/start", &TaskStart { pid, ..TaskStart::default() });
    }
}

async fn next(received: &mut UnboundedReceiver<Envelope>) -> Envelope {
    tokio::time::timeout(LIMIT, received.recv()).await.expect("an event in time").unwrap()
}

async fn next_number(received: &mut UnboundedReceiver<Envelope>) -> u32 {
    TaskStart::parse_from_bytes(&next(received).await.event.value).unwrap().pid
}

#[tokio::test]
async fn an_envelope_is_what_containerd_validates() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("containerd.sock.ttrpc");
    let (sender, mut received) = unbounded_channel();
    let _server = start_containerd(&path, &sender).await;
    let publisher = Publisher::new(path.to_str().unwrap(), "k8s.io");
    publish_numbers(&publisher, 7..8);
    let envelope = next(&mut received).await;
    assert_eq!((envelope.namespace.as_str(), envelope.topic.as_str()), ("k8s.io", "/tasks/start"));
    assert_eq!(envelope.event.type_url, "containerd.events.TaskStart");
    assert!(envelope.timestamp.seconds > 0);
}

/// CONTRACT §6, DESIGN §5: order survives containerd's restarts; nothing is lost and nothing comes twice.
#[tokio::test]
async fn order_survives_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("containerd.sock.ttrpc");
    let (sender, mut received) = unbounded_channel();
    let address = format!("unix://{}", path.display());
    // containerd is not there yet.
    let publisher = Publisher::new(&address, "k8s.io");
    publish_numbers(&publisher, 0..50);
    let mut expected = 0;
    for round in 1..=3 {
        let mut server = start_containerd(&path, &sender).await;
        publish_numbers(&publisher, round * 50..round * 50 + 25);
        while expected < round * 50 + 25 {
            assert_eq!(next_number(&mut received).await, expected);
            expected += 1;
        }
        server.shutdown().await.unwrap();
        drop(server);
        publish_numbers(&publisher, round * 50 + 25..(round + 1) * 50);
    }
    let _server = start_containerd(&path, &sender).await;
    assert_eq!(publisher.flush(LIMIT).await, 0);
    while expected < 200 {
        assert_eq!(next_number(&mut received).await, expected);
        expected += 1;
    }
    assert!(received.try_recv().is_err(), "an event came twice");
}

/// A poisoned head must not block the queue for ever.
#[tokio::test]
async fn a_refused_event_does_not_stop_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("containerd.sock.ttrpc");
    let (sender, mut received) = unbounded_channel();
    let _server = start_containerd(&path, &sender).await;
    let publisher = Publisher::new(path.to_str().unwrap(), "k8s.io");
    publisher.publish("/bad", &TaskStart::default());
    publish_numbers(&publisher, 1..2);
    assert_eq!(next_number(&mut received).await, 1);
}

/// An answer of a containerd that is busy, restarting or shutting down is no refusal: the event comes again, in its place.
#[tokio::test]
async fn an_event_that_containerd_cannot_take_now_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("containerd.sock.ttrpc");
    let (sender, mut received) = unbounded_channel();
    let _server = start_containerd(&path, &sender).await;
    let publisher = Publisher::new(path.to_str().unwrap(), "k8s.io");
    publisher.publish("/busy", &TaskStart { pid: 7, ..TaskStart::default() });
    publish_numbers(&publisher, 8..9);
    assert_eq!(next_number(&mut received).await, 7);
    assert_eq!(next_number(&mut received).await, 8);
}

/// Without containerd the shim goes on: publish returns at once, the overflow is counted, flush gives up.
#[tokio::test]
async fn without_containerd_the_queue_is_bounded() {
    let publisher = Publisher::new("/no/such/socket", "default");
    publish_numbers(&publisher, 0..CAPACITY as u32 + 10);
    assert_eq!(publisher.dropped.load(Ordering::Relaxed), 10);
    assert_eq!(publisher.flush(Duration::from_millis(20)).await, CAPACITY as u64);
}
