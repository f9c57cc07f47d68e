//! The shims of the node: finds them in the run directory, and waits for each with one connection.
//!
//! Owns the watch of the directory, the connections, and that an idle pod costs nothing: the wait for the next event is the shim's. A shim
//! that is dead, silent or too old delays no other. Never asks a shim to change anything.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use control_api::client::ClientError;
use control_api::waiting::WaitingClient;
use control_api::{Event, InspectResponse};
use node_state::entry::Entry;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::directory::{DirectoryError, Watch};

/// How long a shim may take to answer: it answers from its tables.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// The shim's own limit may be shorter: then it is asked again.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Events come in groups: a start is several. So long is waited for the rest of one.
const SETTLE: Duration = Duration::from_millis(200);
/// A shim that does not answer is tried again after this long, and then after twice as long, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// A shim whose socket no process listens at is dead, unless it has only begun: containerd then removes its entry.
const TRIES_OF_DEAD: u32 = 3;
/// Changes of the directory come in groups, too.
const DIRECTORY_SETTLE: Duration = Duration::from_millis(50);

/// What comes from the shims.
#[derive(Debug)]
pub enum FromShims {
    /// A shim's answer, and what has happened since its last one.
    Seen(Box<InspectResponse>, Vec<Event>),
    /// The shim of that id has ended.
    Gone(String),
}

/// A shim that is waited for.
struct Followed {
    ask: Arc<Notify>,
    task: JoinHandle<()>,
}

/// The shims that are waited for, by their ids.
pub struct Shims {
    root: PathBuf,
    watch: Watch,
    followed: BTreeMap<String, Followed>,
    found: mpsc::Sender<FromShims>,
}

impl Shims {
    /// Of that run directory.
    ///
    /// # Errors
    /// The directory cannot be watched.
    pub fn new(root: &Path, found: mpsc::Sender<FromShims>) -> Result<Self, DirectoryError> {
        Ok(Self { root: root.to_owned(), watch: Watch::new(root)?, followed: BTreeMap::new(), found })
    }

    /// Follows all shims that come, and asks those that are named, until the other end of `asked` is gone.
    ///
    /// # Errors
    /// The directory cannot be watched or read any more.
    pub async fn run(mut self, mut asked: mpsc::Receiver<Vec<String>>) -> Result<(), DirectoryError> {
        loop {
            self.refresh()?;
            loop {
                tokio::select! {
                    changed = self.watch.changed() => {
                        changed?;
                        sleep(DIRECTORY_SETTLE).await;
                        break;
                    }
                    ids = asked.recv() => match ids {
                        Some(ids) => self.ask(&ids),
                        None => return Ok(()),
                    },
                }
            }
        }
    }

    fn refresh(&mut self) -> Result<(), DirectoryError> {
        self.watch.renew()?;
        let entries = Entry::list(&self.root).map_err(|source| DirectoryError::of(&self.root, source))?;
        // A shim that ends removes its entry first: its task finds the end of the connection.
        self.followed.retain(|id, followed| {
            let is_there = entries.iter().any(|entry| entry.id == *id);
            is_there || !followed.task.is_finished()
        });
        for entry in entries {
            if self.followed.contains_key(&entry.id) {
                continue;
            }
            let (id, ask) = (entry.id.clone(), Arc::new(Notify::new()));
            let (root, found) = (self.root.clone(), self.found.clone());
            let task = tokio::spawn(Follower { entry, root, ask: ask.clone(), found }.run());
            self.followed.insert(id, Followed { ask, task });
        }
        Ok(())
    }

    fn ask(&self, ids: &[String]) {
        for followed in ids.iter().filter_map(|id| self.followed.get(id)) {
            followed.ask.notify_one();
        }
    }
}

/// What waits for one shim.
struct Follower {
    entry: Entry,
    root: PathBuf,
    ask: Arc<Notify>,
    found: mpsc::Sender<FromShims>,
}

impl Follower {
    async fn run(self) {
        let (mut after, mut tries) = (0, 0);
        loop {
            let before = after;
            match self.answers(&mut after).await {
                // The agent ends.
                Ok(()) => return,
                Err(_) if self.has_ended() => break,
                Err(ClientError::Dead { .. }) if tries >= TRIES_OF_DEAD => break,
                Err(ClientError::Dead { .. }) => {}
                Err(error) => eprintln!("podshim-agent: {}: {error}", self.title()),
            }
            tries = if after > before { 0 } else { tries + 1 };
            sleep(PAUSE.saturating_mul(1 << tries.min(16)).min(LONGEST_PAUSE)).await;
        }
        let _ = self.found.send(FromShims::Gone(self.entry.id)).await;
    }

    fn title(&self) -> String {
        format!("{}/{}", self.entry.pod_namespace, self.entry.pod_name)
    }

    /// Whether its entry is gone: a shim that ends removes it.
    fn has_ended(&self) -> bool {
        let entries = Entry::list(&self.root).unwrap_or_default();
        !entries.iter().any(|entry| entry.id == self.entry.id && entry.socket == self.entry.socket)
    }

    /// The next events. An answer without any is that of a shim whose own limit is shorter.
    async fn next(&self, client: &WaitingClient, after: u64) -> Result<Vec<Event>, ClientError> {
        loop {
            let events = client.events(after, LONGEST_WAIT).await?.events;
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// Passes on what the shim shows, until it cannot be asked any more or the agent ends.
    async fn answers(&self, after: &mut u64) -> Result<(), ClientError> {
        let client = WaitingClient::connect(&self.entry.socket, ANSWER_LIMIT).await?;
        let mut events = client.events(*after, Duration::ZERO).await?.events;
        loop {
            *after = events.last().map_or(*after, |event| event.sequence);
            let seen = Box::new(client.inspect().await?);
            if self.found.send(FromShims::Seen(seen, events)).await.is_err() {
                return Ok(());
            }
            events = tokio::select! {
                answer = self.next(&client, *after) => answer?,
                () = self.ask.notified() => Vec::new(),
            };
            if !events.is_empty() {
                sleep(SETTLE).await;
                let newest = events.last().map_or(*after, |event| event.sequence);
                events.extend(client.events(newest, Duration::ZERO).await?.events);
            }
        }
    }
}
