//! The agent as a whole: what comes from shims and from the API server goes to `node`, and what `node` wants written to the outbox.
//!
//! Owns the tasks. All of them run on one thread. Decides nothing of what is written.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use kube::Client;
use kube::runtime::watcher;
use pod_spec::Node as NodeFile;
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::cluster::{Cluster, FromCluster, Shared};
use crate::directory::DirectoryError;
use crate::node::{FoundShim, Node, Write};
use crate::object::PodObject;
use crate::outbox::Outbox;
use crate::shims::{FromShims, Shims};
use crate::story::Now;

/// How much comes at once: what sends more waits, and a shim never waits for it.
const QUEUE: usize = 64;

/// Where the agent is, and what it reads.
#[derive(Debug)]
pub struct Settings {
    /// The node's name in Kubernetes.
    pub node: String,
    /// The directory of all pods' state.
    pub run_directory: PathBuf,
    /// The node's file.
    pub node_file: NodeFile,
}

/// Runs until the run directory cannot be watched.
///
/// # Errors
/// Why it cannot.
pub async fn run(settings: Settings, client: Client) -> Result<(), DirectoryError> {
    let clock = Clock::start();
    let shared = Arc::new(Shared::default());
    let (found_shims, mut shims) = mpsc::channel(QUEUE);
    let (found_pods, mut pods) = mpsc::channel(QUEUE);
    let (ask, asked) = mpsc::channel(QUEUE);
    let followed = Shims::new(&settings.run_directory, found_shims)?;
    let cluster = Cluster::new(client, &settings.node, clock, shared.clone(), found_pods);
    tokio::spawn(cluster.clone().watch_pods());
    tokio::spawn(cluster.clone().send_reports());
    tokio::spawn(cluster.send_conditions());
    let followed = tokio::spawn(followed.run(asked));
    let node_file = settings.node_file;
    let mut agent = Agent { node: Node::default(), node_file, listed: None, shared, dropped: 0 };
    loop {
        let due = agent.node.next_due(clock.now());
        let is_due = async {
            match due {
                Some(due) => clock.sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let writes = tokio::select! {
            Some(found) = pods.recv() => agent.of_cluster(found, clock.now()),
            found = shims.recv() => match found {
                Some(found) => agent.of_shims(found, clock.now()),
                // The watch has ended, and with it all that it followed.
                None => break,
            },
            () = is_due => {
                let due = agent.node.take_due(clock.now());
                if !due.is_empty() && ask.send(due).await.is_err() {
                    break;
                }
                agent.node.tick(clock.now())
            }
        };
        agent.write(writes);
    }
    followed.await.unwrap_or(Ok(()))
}

struct Agent {
    node: Node,
    node_file: NodeFile,
    /// The pods of a list that is under way.
    listed: Option<BTreeSet<String>>,
    shared: Arc<Shared>,
    /// How many reports the log says are not written.
    dropped: u64,
}

impl Agent {
    fn of_shims(&mut self, found: FromShims, now: Now) -> Vec<Write> {
        match found {
            FromShims::Found(entries) => {
                let found = entries.into_iter().map(|entry| FoundShim {
                    id: entry.id,
                    namespace: entry.pod_namespace,
                    name: entry.pod_name,
                });
                self.node.shims_found(found.collect(), now)
            }
            FromShims::Seen(seen, events) => self.node.shim_seen(&seen, &events, now),
            FromShims::Gone(id) => self.node.shim_gone(&id, now),
        }
    }

    fn of_cluster(&mut self, found: FromCluster, now: Now) -> Vec<Write> {
        let event = match found {
            FromCluster::Answered(patch) => {
                self.node.condition_answered(&patch, now);
                return Vec::new();
            }
            FromCluster::Pods(event) => *event,
        };
        match event {
            watcher::Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            watcher::Event::InitDone => {
                let listed = self.listed.take().unwrap_or_default();
                self.node.pods_listed(&listed, now)
            }
            watcher::Event::Delete(pod) => {
                pod.metadata.uid.map(|uid| self.node.pod_gone(&uid)).unwrap_or_default()
            }
            watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => {
                let uid = pod.metadata.uid.clone().unwrap_or_default();
                let Some(object) = PodObject::of(&pod, &self.node_file, self.node.object(&uid)) else {
                    return Vec::new();
                };
                if let Some(listed) = &mut self.listed {
                    listed.insert(uid);
                }
                self.node.pod_applied(object, now)
            }
        }
    }

    fn write(&mut self, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        let dropped = self.shared.change(|outbox| {
            writes.into_iter().for_each(|write| add(outbox, write));
            outbox.dropped()
        });
        // 1, 2, 4, ...: a line for each would be as many as the events.
        if dropped >= self.dropped.saturating_mul(2).max(1) {
            self.dropped = dropped;
            eprintln!(
                "podshim-agent: {dropped} events were not written, because of a bound or because they were too old"
            );
        }
    }
}

fn add(outbox: &mut Outbox, write: Write) {
    match write {
        Write::Report(report) => outbox.add_report(report),
        Write::Withdraw(topic) => outbox.withdraw(&topic),
        Write::Condition(patch) => outbox.add_condition(patch),
        Write::Forget(uid) => outbox.forget(&uid),
        Write::Dropped => outbox.count_dropped(),
    }
}
