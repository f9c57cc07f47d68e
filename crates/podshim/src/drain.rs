//! Ends every pod of a node, each in its own order (N7): class after class by their priorities, all pods of a class at
//! the same time (N11).
//!
//! Owns which shims have been asked to stop, and which pods have ended. Each pod has its own thread, so that a shim
//! that hangs delays no other. Decides nothing of the order within a pod, which its shim keeps.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use control_api::Container;
use control_api::client::{Client, ClientError};
use control_api::container::State;
use node_state::entry::Entry;
use pod_spec::Node;

/// How long a shim may take to answer.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// How often to look for new shims and for pods that have ended.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time after `timeout` until a pod counts as not ended: 2 s until SIGKILL (T6), and what the kernel and the OCI
/// runtime take after that.
const LAST_CALL: Duration = Duration::from_secs(5);

/// N11: into so many parts the time of a drain is divided at most, so that no number of classes leaves a pod without any.
pub const MOST_CLASSES: usize = 8;
/// How often a shim may answer as if it were about to exit, before that counts as a failure.
const MAX_END_ANSWERS: usize = 20;

/// How the drain of one pod ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// `namespace/name` in Kubernetes, or containerd's namespace with the beginning of the id.
    pub pod: String,
    /// The time since the drain began.
    pub after: Duration,
    /// The result.
    pub end: End,
}

/// How a pod's drain went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended in time.
    InTime,
    /// It ended after its class's part of `timeout`, which cut its time short (T9).
    CutShort,
    /// It has not ended, or its shim reported an error.
    Failed {
        /// The reason, for people.
        reason: String,
    },
}

/// Ends the pods of all shims below `state_root`, and calls `report` for each as it ends. It lists the directory
/// repeatedly, to find pods that were just being created too. `node` bounds the pods' own priorities. The caller must have made sure that no new pods begin.
/// A pod that has not ended when the time of its class is over has its time cut short (T9).
///
/// # Errors
/// The state of the shims cannot be read.
#[allow(clippy::disallowed_methods, reason = "a command that waits; no decision about a pod is made here")]
pub fn drain(
    state_root: &Path,
    node: &Node,
    timeout: Option<Duration>,
    mut report: impl FnMut(&Ended),
) -> std::io::Result<Vec<Ended>> {
    let priority_of = |entry: &Entry| node.drain_priority(entry.drain_priority);
    let begin = Instant::now();
    let (sender, ends) = channel();
    let mut asked: BTreeSet<PathBuf> = BTreeSet::new();
    let (mut answers, mut ended) = (0, Vec::new());
    let mut class: Option<Class> = None;
    loop {
        let entries = Entry::list(state_root)?;
        if class.is_none() {
            let waiting = entries.iter().filter(|entry| !asked.contains(&entry.socket));
            let waiting: BTreeSet<i32> = waiting.map(priority_of).collect();
            class = Class::first_of(&waiting, begin.elapsed(), timeout);
        }
        // Return only after a listing that found no new pod.
        let Some(current) = class else { return Ok(ended) };
        for entry in entries {
            if priority_of(&entry) <= current.priority && asked.insert(entry.socket.clone()) {
                let sender = sender.clone();
                thread::spawn(move || {
                    let end = end_pod(&entry.socket, begin, current.until);
                    let end = end.map(|end| Ended { pod: title(&entry), after: begin.elapsed(), end });
                    // Fails only if `drain` has returned an error: then the process ends.
                    let _ = sender.send(end);
                });
            }
        }
        match ends.recv_timeout(INTERVAL) {
            Ok(end) => {
                answers += 1;
                end.iter().for_each(&mut report);
                ended.extend(end);
            }
            Err(_) if answers == asked.len() => class = None,
            Err(_) => {}
        }
    }
}

/// The pods that end now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    /// Theirs, or below it.
    priority: i32,
    /// When their time is over, since the drain began.
    until: Option<Duration>,
}

impl Class {
    /// N11: the lowest of some classes, which gets an equal part of the time that is left to all: what it leaves over, the next
    /// ones get. Of more than [`MOST_CLASSES`] the lowest ones are one.
    fn first_of(waiting: &BTreeSet<i32>, elapsed: Duration, timeout: Option<Duration>) -> Option<Self> {
        let parts = waiting.len().min(MOST_CLASSES);
        let priority = *waiting.iter().nth(waiting.len() - parts)?;
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        let until = timeout.map(|timeout| elapsed + timeout.saturating_sub(elapsed) / parts);
        Some(Self { priority, until })
    }
}

/// Stops one pod and waits for its end. `None`: the shim was already dead, and N3 ends its pod.
#[allow(clippy::disallowed_methods, reason = "as above")]
fn end_pod(socket: &Path, begin: Instant, until: Option<Duration>) -> Option<End> {
    let failed = |error: ClientError| Some(End::Failed { reason: error.to_string() });
    match Client::connect(socket, CALL_LIMIT).and_then(|shim| shim.stop(None)) {
        Ok(()) => {}
        Err(ClientError::Dead { .. }) => return None,
        Err(error) => return failed(error),
    }
    let (mut end, mut end_answers) = (End::InTime, 0);
    loop {
        match Client::connect(socket, CALL_LIMIT).and_then(|shim| shim.inspect()) {
            // containerd has seen the pod's end, and asked the shim to shut down.
            Err(ClientError::Dead { .. }) => return Some(end),
            Err(error) if error.may_be_its_end() && end_answers < MAX_END_ANSWERS => end_answers += 1,
            Err(error) => return failed(error),
            Ok(pod) if pod.containers.iter().all(has_ended) => return Some(end),
            Ok(pod) => match until {
                Some(until) if end == End::InTime && begin.elapsed() >= until => {
                    end = End::CutShort;
                    let shorter =
                        Client::connect(socket, CALL_LIMIT).and_then(|shim| shim.stop(Some(Duration::ZERO)));
                    match shorter {
                        Err(ClientError::Dead { .. }) => return Some(end),
                        Err(error) if error.may_be_its_end() => {}
                        Err(error) => return failed(error),
                        Ok(()) => {}
                    }
                }
                Some(until) if begin.elapsed() >= until + LAST_CALL => {
                    let left = pod.containers.iter().filter(|container| !has_ended(container));
                    let left: Vec<_> = left.map(|container| container.name.as_str()).collect();
                    return Some(End::Failed { reason: format!("not killed: {}", left.join(", ")) });
                }
                _ => {}
            },
        }
        thread::sleep(INTERVAL);
    }
}

fn has_ended(container: &Container) -> bool {
    matches!(container.state.enum_value(), Ok(State::NOT_CREATED | State::STOPPED))
}

fn title(entry: &Entry) -> String {
    match entry.pod_name.as_str() {
        "" => format!("{}/{}", entry.namespace, entry.id.get(..13).unwrap_or(&entry.id)),
        name => format!("{}/{name}", entry.pod_namespace),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N11: the lowest class comes first, with an equal part of what is left.
    #[test]
    fn n11_classes_share_the_time_that_is_left() {
        let seconds = Duration::from_secs;
        let waiting = BTreeSet::from([1000, -1, 0]);
        let first = |elapsed, timeout| Class::first_of(&waiting, seconds(elapsed), timeout);
        assert_eq!(first(0, Some(seconds(300))), Some(Class { priority: -1, until: Some(seconds(100)) }));
        assert_eq!(first(60, Some(seconds(300))), Some(Class { priority: -1, until: Some(seconds(140)) }));
        assert_eq!(first(400, Some(seconds(300))), Some(Class { priority: -1, until: Some(seconds(400)) }));
        assert_eq!(first(60, None), Some(Class { priority: -1, until: None }));
        assert_eq!(Class::first_of(&BTreeSet::new(), seconds(0), None), None);
    }

    /// N11: a hundred classes leave a pod an eighth of the time all the same; the lowest ones end together.
    #[test]
    fn n11_found_h8_no_number_of_classes_takes_all_the_time() {
        let waiting: BTreeSet<i32> = (1..=100).collect();
        let (elapsed, timeout) = (Duration::ZERO, Some(Duration::from_secs(24)));
        let first = Class::first_of(&waiting, elapsed, timeout);
        assert_eq!(first, Some(Class { priority: 93, until: Some(Duration::from_secs(3)) }));
    }
}
