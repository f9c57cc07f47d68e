//! The shims of the node: finds them in the run directory, and waits for each with one connection.
//!
//! Owns the watch of the directory, the connections, and that an idle pod costs nothing: the wait for the next event is the shim's. A shim
//! that is dead, silent or too old delays no other. All that it asks of a shim is what its caller names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use control_api::client::ClientError;
use control_api::waiting::WaitingClient;
use control_api::{Event, InspectResponse};
use node_state::entry::Entry;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::directory::{DirectoryError, Watch};
use crate::story::Question;

/// How long a shim may take to answer: it answers from its tables.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// A shim's own limit: an idle pod wakes the agent as seldom as that. A shim that hangs is found when something is due of its pod.
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
    /// The directory was read: these entries are new in it. It comes before all else of their shims.
    Found(Vec<Entry>),
    /// A shim's answer, and what has happened since its last one.
    Seen(Box<InspectResponse>, Vec<Event>),
    /// The shim of that id has ended.
    Gone(String),
}

/// A shim that is waited for.
struct Followed {
    asked: Arc<Asked>,
    task: JoinHandle<()>,
}

/// What a shim is asked next.
#[derive(Default)]
struct Asked {
    wake: Notify,
    restart: Pending<String>,
    kubelets_own: Pending<BTreeSet<String>>,
}

impl Asked {
    fn ask(&self, question: Question) {
        match question {
            Question::Inspect => {}
            Question::Restart(value) => self.restart.set(value),
            Question::KubeletsOwn(names) => self.kubelets_own.set(names),
        }
        self.wake.notify_one();
    }
}

/// What a shim has not answered yet: of two the newer one counts.
#[derive(Default)]
struct Pending<T>(Mutex<Option<T>>);

impl<T: Clone + PartialEq> Pending<T> {
    fn lock(&self) -> MutexGuard<'_, Option<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, wanted: T) {
        *self.lock() = Some(wanted);
    }

    fn get(&self) -> Option<T> {
        self.lock().clone()
    }

    fn answered(&self, wanted: &T) {
        self.lock().take_if(|newest| newest == wanted);
    }
}

/// The shims that are waited for, by their ids.
pub struct Shims {
    root: PathBuf,
    watch: Watch,
    followed: BTreeMap<String, Followed>,
    scans: Scans,
    found: mpsc::Sender<FromShims>,
}

/// Whether the directory was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scans {
    None,
    Some,
}

impl Shims {
    /// Of that run directory.
    ///
    /// # Errors
    /// The directory cannot be watched.
    pub fn new(root: &Path, found: mpsc::Sender<FromShims>) -> Result<Self, DirectoryError> {
        Ok(Self {
            root: root.to_owned(),
            watch: Watch::new(root)?,
            followed: BTreeMap::new(),
            scans: Scans::None,
            found,
        })
    }

    /// Follows all shims that come, and asks those that are named, until the other end of `asked` is gone.
    ///
    /// # Errors
    /// The directory cannot be watched or read any more.
    pub async fn run(
        mut self,
        mut asked: mpsc::Receiver<Vec<(String, Question)>>,
    ) -> Result<(), DirectoryError> {
        loop {
            self.refresh().await?;
            loop {
                tokio::select! {
                    changed = self.watch.changed() => {
                        changed?;
                        sleep(DIRECTORY_SETTLE).await;
                        break;
                    }
                    questions = asked.recv() => match questions {
                        Some(questions) => self.ask(questions),
                        None => return Ok(()),
                    },
                }
            }
        }
    }

    async fn refresh(&mut self) -> Result<(), DirectoryError> {
        self.watch.renew()?;
        let entries = Entry::list_with_directories(&self.root)
            .map_err(|source| DirectoryError::of(&self.root, source))?;
        // A shim that ends removes its entry first: its task finds the end of the connection.
        let ids: BTreeSet<&String> = entries.iter().map(|(_, entry)| &entry.id).collect();
        self.followed.retain(|id, followed| ids.contains(id) || !followed.task.is_finished());
        let new: Vec<(PathBuf, Entry)> =
            entries.into_iter().filter(|(_, entry)| !self.followed.contains_key(&entry.id)).collect();
        if !new.is_empty() || self.scans == Scans::None {
            self.scans = Scans::Some;
            let entries = new.iter().map(|(_, entry)| entry.clone()).collect();
            let _ = self.found.send(FromShims::Found(entries)).await;
        }
        for (directory, entry) in new {
            let (id, asked, found) = (entry.id.clone(), Arc::new(Asked::default()), self.found.clone());
            let task = tokio::spawn(Follower { entry, directory, asked: asked.clone(), found }.run());
            self.followed.insert(id, Followed { asked, task });
        }
        Ok(())
    }

    fn ask(&self, questions: Vec<(String, Question)>) {
        for (id, question) in questions {
            if let Some(followed) = self.followed.get(&id) {
                followed.asked.ask(question);
            }
        }
    }
}

/// What waits for one shim.
struct Follower {
    entry: Entry,
    /// Its pod's.
    directory: PathBuf,
    asked: Arc<Asked>,
    found: mpsc::Sender<FromShims>,
}

/// How far it has come.
#[derive(Default)]
struct Progress {
    /// The number of the newest event that was passed on.
    after: u64,
    /// What the shim showed last.
    seen: Option<Box<InspectResponse>>,
    /// How often it has not answered, since it last did.
    tries: u32,
}

impl Follower {
    async fn run(self) {
        let mut progress = Progress::default();
        loop {
            match self.answers(&mut progress).await {
                // The agent ends.
                Ok(()) => return,
                Err(_) if self.has_ended() => break,
                Err(ClientError::Dead { .. }) if progress.tries >= TRIES_OF_DEAD => break,
                Err(ClientError::Dead { .. }) => {}
                Err(error) => eprintln!("podshim-agent: {}: {error}", self.title()),
            }
            sleep(PAUSE.saturating_mul(1 << progress.tries.min(16)).min(LONGEST_PAUSE)).await;
            progress.tries += 1;
        }
        let _ = self.found.send(FromShims::Gone(self.entry.id)).await;
    }

    fn title(&self) -> String {
        format!("{}/{}", self.entry.pod_namespace, self.entry.pod_name)
    }

    /// Whether its entry is gone: a shim that ends removes it.
    fn has_ended(&self) -> bool {
        let entry = Entry::read_from(&self.directory);
        entry.is_none_or(|entry| entry.socket != self.entry.socket)
    }

    /// The next events. An answer without any is that of a shim whose limit is over.
    async fn next(&self, client: &WaitingClient, after: u64) -> Result<Vec<Event>, ClientError> {
        loop {
            let events = client.events(after, LONGEST_WAIT).await?.events;
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }

    /// The rest of a group of events, and what the shim shows after them.
    async fn settled(
        &self,
        client: &WaitingClient,
        events: &mut Vec<Event>,
    ) -> Result<Box<InspectResponse>, ClientError> {
        if let Some(newest) = events.last().map(|event| event.sequence) {
            sleep(SETTLE).await;
            events.extend(client.events(newest, Duration::ZERO).await?.events);
        }
        Ok(Box::new(client.inspect().await?))
    }

    /// Passes on what is wanted of the shim, if there is something. What it refuses it is not asked for again.
    async fn pass_on(&self, client: &WaitingClient) -> Result<(), ClientError> {
        if let Some(names) = self.asked.kubelets_own.get() {
            match client.kubelets_own(names.iter().cloned().collect()).await {
                Ok(()) => {}
                Err(error @ ClientError::Refused { .. }) => {
                    eprintln!("podshim-agent: {}: {error}", self.title());
                }
                Err(error) => return Err(error),
            }
            self.asked.kubelets_own.answered(&names);
        }
        if let Some(value) = self.asked.restart.get() {
            match client.restart(&value).await {
                // The shim shows it.
                Ok(()) | Err(ClientError::Refused { .. }) => self.asked.restart.answered(&value),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Passes on what the shim shows, until it cannot be asked any more or the agent ends.
    async fn answers(&self, progress: &mut Progress) -> Result<(), ClientError> {
        let client = WaitingClient::connect(&self.entry.socket, ANSWER_LIMIT).await?;
        let mut events = client.events(progress.after, Duration::ZERO).await?.events;
        loop {
            self.pass_on(&client).await?;
            let settled = self.settled(&client, &mut events).await;
            let failure = match settled {
                Ok(seen) => {
                    (progress.seen, progress.tries) = (Some(seen), 0);
                    None
                }
                Err(error) => Some(error),
            };
            // What a shim reports just before it ends, as the kills of a stop, is passed on with what it showed before.
            let is_worth = failure.is_none() || !events.is_empty();
            if let Some(seen) = progress.seen.clone().filter(|_| is_worth) {
                progress.after = events.last().map_or(progress.after, |event| event.sequence);
                if self.found.send(FromShims::Seen(seen, events)).await.is_err() {
                    return Ok(());
                }
            }
            if let Some(failure) = failure {
                return Err(failure);
            }
            events = tokio::select! {
                answer = self.next(&client, progress.after) => answer?,
                () = self.asked.wake.notified() => Vec::new(),
            };
        }
    }
}
