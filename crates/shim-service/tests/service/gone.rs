//! Callers that go away with their connection: their requests are not kept (DESIGN §3).

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use containerd_shim_protos::shim::shim::WaitRequest;
use containerd_shim_protos::shim_async::{Client, TaskClient};
use tokio::time::timeout;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{context, with_pod};

/// Counts the abandoned requests that the pod was fed.
#[derive(Clone, Default)]
struct Abandoned(Arc<AtomicUsize>);

impl Visit for Abandoned {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "event" && format!("{value:?}").starts_with("Abandoned") {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Subscriber for Abandoned {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("shim_service")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Each restart of containerd leaves a Wait for each container behind. It is dropped with its connection, not kept until the
/// container ends. A caller that still waits gets its answer.
#[test]
fn a_wait_goes_with_its_callers_connection() {
    let abandoned = Abandoned::default();
    let _subscriber = tracing::subscriber::set_default(abandoned.clone());
    with_pod(async |pod| {
        pod.run("c", "exec sleep 60", &[]).await;
        let address = format!("unix://{}", pod.directory.path().join("shim").display());
        for restarts in 1..=3 {
            let containerd = TaskClient::new(Client::connect(&address).await.unwrap());
            let wait = WaitRequest { id: "c".to_owned(), ..Default::default() };
            let unanswered = timeout(Duration::from_millis(100), containerd.wait(context(), &wait)).await;
            assert!(unanswered.is_err(), "{unanswered:?}");
            assert_eq!(abandoned.0.load(Ordering::Relaxed), restarts - 1);
            drop(containerd);
            let noticed = timeout(Duration::from_secs(10), async {
                while abandoned.0.load(Ordering::Relaxed) < restarts {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            });
            assert!(noticed.await.is_ok(), "the Wait of containerd {restarts} is kept");
        }
        let (waited, killed) = tokio::join!(pod.wait("c"), pod.kill("c", 9));
        killed.unwrap();
        assert_eq!(waited.unwrap().exit_status, 137);
    });
}
