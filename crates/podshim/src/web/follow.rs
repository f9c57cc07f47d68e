//! Keeps the board up to date as long as the page has a reader: one thread, which waits for all shims of the node in one poll.
//!
//! Owns the connections to the shims and their times. The wait for the next event is the shim's, so a pod to which nothing happens
//! costs nothing. A shim that is dead or silent delays no other. Never asks a shim to change anything.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control_api::client::ClientError;
use control_api::container::State;
use control_api::polled::{Answer, PolledClient};
use control_api::{Container, Event, EventsResponse, InspectResponse};
use node_state::entry::{Entry, FILE};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::board::Board;
use super::shown;
use crate::shims::ANSWER_LIMIT;

/// How often the directory is read for pods that have come or gone.
const SCAN: Duration = Duration::from_secs(1);
/// How long a shim waits for an event before it answers without one.
const WAIT: Duration = Duration::from_secs(30);
/// Events come in groups: so long after some the next ones are asked for.
const SETTLE: Duration = Duration::from_millis(100);
/// That no caller creates a container becomes a fault without an event.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// When a shim that gave no answer is asked once more.
const RETRY: Duration = Duration::from_secs(5);
/// A shim keeps as many events, of some 200 bytes each.
const EVENTS: usize = 256;
/// How many bytes of them are kept, whatever a shim sends.
const EVENT_BYTES: usize = 256 << 10;

/// Follows the pods below that directory, for ever.
pub(super) fn run(root: &Path, board: &Board) {
    loop {
        board.wait_for_viewer();
        let mut shims = Shims { root, board, followed: BTreeMap::new() };
        while board.has_viewers() {
            shims.scan();
            let next_scan = now() + SCAN;
            while now() < next_scan {
                shims.step(next_scan);
            }
        }
        board.clear();
    }
}

#[allow(clippy::disallowed_methods, reason = "a command that waits; no decision about a pod is made here")]
fn now() -> Instant {
    Instant::now()
}

struct Shims<'a> {
    root: &'a Path,
    board: &'a Board,
    /// By the pod's directory.
    followed: BTreeMap<PathBuf, Followed>,
}

impl Shims<'_> {
    /// Finds pods that have come or gone. Entries of pods that are known are not read again.
    fn scan(&mut self) {
        let found: Vec<_> = below(self.root).iter().flat_map(|namespace| below(namespace)).collect();
        self.followed.retain(|directory, followed| {
            let is_there = found.contains(directory) && directory.join(FILE).exists();
            if !is_there {
                self.board.remove(&followed.key);
            }
            is_there
        });
        for directory in found {
            if self.followed.contains_key(&directory) {
                continue;
            }
            if let Some(entry) = entry_in(&directory) {
                self.followed.insert(directory.clone(), Followed::new(directory, entry));
            }
        }
    }

    /// Asks what is to be asked, waits for answers, at most until then, and shows what came.
    fn step(&mut self, until: Instant) {
        let mut next = until;
        for shim in self.followed.values_mut() {
            shim.act(self.board);
            next = next.min(shim.next_act());
        }
        if self.followed.values().all(|shim| shim.is_known) {
            self.board.complete();
        }
        let ready: Vec<bool> = {
            let sockets = self.followed.values().filter_map(|shim| shim.client.as_ref());
            let mut descriptors: Vec<_> =
                sockets.map(|client| PollFd::from_borrowed_fd(client.as_fd(), PollFlags::IN)).collect();
            let left = next.saturating_duration_since(now()) + Duration::from_millis(1);
            let time = Timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            // Where it fails nothing is ready, and the next step tries again.
            let _ = poll(&mut descriptors, Some(&time));
            descriptors.iter().map(|descriptor| !descriptor.revents().is_empty()).collect()
        };
        let connected = self.followed.values_mut().filter(|shim| shim.client.is_some());
        for (shim, _) in connected.zip(ready).filter(|(_, is_ready)| *is_ready) {
            shim.read(self.board);
        }
    }
}

fn below(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn entry_in(directory: &Path) -> Option<Entry> {
    Entry::parse(&fs::read(directory.join(FILE)).ok()?)
}

/// A shim that is followed.
struct Followed {
    directory: PathBuf,
    entry: Entry,
    /// What the board calls it.
    key: String,
    client: Option<PolledClient>,
    /// When it is connected to, or the events are asked for.
    next: Instant,
    /// Until when the answers under way must have come.
    events_until: Option<Instant>,
    inspect_until: Option<Instant>,
    /// When the pod is asked for.
    inspect_at: Option<Instant>,
    /// How often it has failed since it answered.
    failures: u32,
    pod: Option<InspectResponse>,
    events: VecDeque<Event>,
    /// The last event that came.
    after: u64,
    /// Whether the board has it.
    is_known: bool,
}

impl Followed {
    fn new(directory: PathBuf, entry: Entry) -> Self {
        Self {
            directory,
            key: shown::key(&entry),
            entry,
            client: None,
            next: now(),
            events_until: None,
            inspect_until: None,
            inspect_at: None,
            failures: 0,
            pod: None,
            events: VecDeque::new(),
            after: 0,
            is_known: false,
        }
    }

    /// When there is something to do besides reading.
    fn next_act(&self) -> Instant {
        let events = self.events_until.unwrap_or(self.next);
        let inspect = if self.client.is_some() { self.inspect_until.or(self.inspect_at) } else { None };
        inspect.map_or(events, |at| at.min(events))
    }

    fn act(&mut self, board: &Board) {
        let now = now();
        let is_late = |until: Option<Instant>| until.is_some_and(|until| until <= now);
        if is_late(self.events_until) || is_late(self.inspect_until) {
            return self.fail(ClientError::NoAnswer { limit: ANSWER_LIMIT }, board);
        }
        if let Err(error) = self.ask(now) {
            self.fail(error, board);
        }
    }

    fn ask(&mut self, now: Instant) -> Result<(), ClientError> {
        let is_due = |at: Instant| at <= now;
        if self.client.is_none() && is_due(self.next) {
            self.entry = entry_in(&self.directory).unwrap_or_else(|| self.entry.clone());
            self.client = Some(PolledClient::connect(&self.entry.socket, ANSWER_LIMIT)?);
            self.inspect_at = Some(now);
            // The pod may be another one by now, under the same id.
            (self.pod, self.events, self.after) = (None, VecDeque::new(), 0);
        }
        let Some(client) = &mut self.client else { return Ok(()) };
        // First: what has happened by then is in the answer to Inspect too.
        if self.events_until.is_none() && is_due(self.next) {
            // The first answer comes at once.
            let wait = if self.pod.is_some() { WAIT } else { Duration::ZERO };
            client.ask_events(self.after, wait)?;
            self.events_until = Some(now + wait + ANSWER_LIMIT);
        }
        if self.inspect_until.is_none() && self.inspect_at.is_some_and(is_due) {
            client.ask_inspect()?;
            (self.inspect_at, self.inspect_until) = (None, Some(now + ANSWER_LIMIT));
        }
        Ok(())
    }

    fn read(&mut self, board: &Board) {
        let Some(client) = &mut self.client else { return };
        match client.read() {
            Ok(answers) => answers.into_iter().for_each(|answer| self.take(answer, board)),
            Err(error) => self.fail(error, board),
        }
    }

    fn take(&mut self, answer: Answer, board: &Board) {
        let now = now();
        self.failures = 0;
        match answer {
            Answer::Events(answer) => {
                (self.events_until, self.next) = (None, now + SETTLE);
                if let Some(last) = answer.events.last() {
                    self.after = last.sequence;
                    self.events.extend(answer.events);
                    forget_oldest(&mut self.events);
                    self.inspect_at = Some(now);
                }
            }
            Answer::Inspect(pod) => {
                self.inspect_until = None;
                let is_missing = |it: &Container| it.state.enum_value_or_default() == State::NOT_CREATED;
                if self.inspect_at.is_none() && pod.containers.iter().any(is_missing) {
                    self.inspect_at = Some(now + ASK_AGAIN);
                }
                self.pod = Some(*pod);
            }
        }
        if let (Some(pod), None) = (&self.pod, self.inspect_until) {
            let events =
                EventsResponse { events: self.events.iter().cloned().collect(), ..Default::default() };
            board.show(&self.key, &shown::summary(&self.entry, pod.clone(), events).to_string());
            self.is_known = true;
        }
    }

    /// The shim is dead, silent or too old, or its pod has ended.
    fn fail(&mut self, error: ClientError, board: &Board) {
        let was_connected = self.client.take().is_some();
        (self.events_until, self.inspect_until, self.inspect_at) = (None, None, None);
        // A connection that breaks is often the pod's end. Its entry goes a moment later, and the next try shows whether it has.
        let may_be_end = was_connected && self.failures == 0 && error.may_be_its_end();
        self.failures = self.failures.saturating_add(1);
        let is_end = may_be_end || self.has_ended();
        self.next = now() + if is_end { SCAN } else { RETRY };
        if !is_end {
            board.show(&self.key, &shown::summary_of_silent(self.entry.clone(), error).to_string());
            self.is_known = true;
        }
    }

    /// Whether the entry is gone, or another pod's.
    fn has_ended(&self) -> bool {
        entry_in(&self.directory).is_none_or(|entry| entry.socket != self.entry.socket)
    }
}

/// Keeps the newest, within both bounds.
fn forget_oldest(events: &mut VecDeque<Event>) {
    let size = |event: &Event| {
        size_of::<Event>() + event.id.len() + event.name.len() + event.text.len() + event.failure.len()
    };
    let mut bytes = 0;
    let kept = events.iter().rev().take(EVENTS).take_while(|event| {
        bytes += size(event);
        bytes <= EVENT_BYTES
    });
    let surplus = events.len() - kept.count();
    events.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shim_that_sends_too_much_is_kept_within_bounds() {
        let events = |count: u64, length: usize| -> VecDeque<Event> {
            let event = |sequence| Event { sequence, text: "x".repeat(length), ..Default::default() };
            (1..=count).map(event).collect()
        };
        for (count, length, most) in [(10, 200, 10), (1000, 200, EVENTS), (1000, 100_000, 2), (1, 1 << 20, 0)]
        {
            let mut kept = events(count, length);
            forget_oldest(&mut kept);
            assert_eq!(kept.len(), most, "{count} events of {length} bytes");
            assert!(kept.back().is_none_or(|last| last.sequence == count), "the newest ones stay");
        }
    }
}
