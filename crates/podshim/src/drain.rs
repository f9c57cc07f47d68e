//! Ending every pod of a node: all at the same time, each in its order (N7).
//!
//! Owns who has been asked and who has ended. A thread a pod, so that a shim that hangs delays no other. The order
//! is the shims' own affair.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use control_api::Container;
use control_api::client::{Client, ClientError};
use control_api::container::State;
use control_api::entry::Entry;

/// What an answer of a shim may take.
const CALL_LIMIT: Duration = Duration::from_secs(2);
/// How often it is looked for what has ended.
const INTERVAL: Duration = Duration::from_millis(100);
/// From the end of all patience to SIGKILL, and the kernel's and the OCI runtime's time after that (T6).
const LAST_CALL: Duration = Duration::from_secs(5);

/// How often a shim that goes may be met on its way out.
const LAST_LOOKS: usize = 20;

/// What became of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Its name in Kubernetes with its namespace, else its id with containerd's.
    pub pod: String,
    /// How long that took.
    pub after: Duration,
    /// How.
    pub end: End,
}

/// How a pod's drain went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It ended in time.
    InTime,
    /// Its time was cut short (T9), and then it ended.
    CutShort,
    /// It has not.
    Failed {
        /// Why, for people.
        reason: String,
    },
}

/// Ends the pods of the shims found below `state_root`; each is printed as it ends. Pods that were just being started are
/// found too: the caller has seen to it that no new ones begin. `timeout` is the patience with each pod's own grace.
///
/// # Errors
/// The state of the shims cannot be read.
#[allow(clippy::disallowed_methods, reason = "a command that waits; no decision about a pod is made here")]
pub fn drain(
    state_root: &Path,
    timeout: Option<Duration>,
    mut tell: impl FnMut(&Ended),
) -> std::io::Result<Vec<Ended>> {
    let begin = Instant::now();
    let (sender, ends) = channel();
    let mut asked: BTreeSet<PathBuf> = BTreeSet::new();
    let (mut answers, mut ended) = (0, Vec::new());
    loop {
        for entry in Entry::list(state_root)? {
            if asked.insert(entry.socket.clone()) {
                let sender = sender.clone();
                thread::spawn(move || {
                    let end = end_pod(&entry.socket, begin, timeout);
                    let end = end.map(|end| Ended { pod: title(&entry), after: begin.elapsed(), end });
                    // Who asked has gone: the process ends.
                    let _ = sender.send(end);
                });
            }
        }
        match ends.recv_timeout(INTERVAL) {
            Ok(end) => {
                answers += 1;
                end.iter().for_each(&mut tell);
                ended.extend(end);
            }
            // Only after a look that found no new pod.
            Err(_) if answers == asked.len() => return Ok(ended),
            Err(_) => {}
        }
    }
}

/// `None`: the shim was dead already, and its pod with it (N3).
#[allow(clippy::disallowed_methods, reason = "as above")]
fn end_pod(socket: &Path, begin: Instant, timeout: Option<Duration>) -> Option<End> {
    let failed = |error: ClientError| Some(End::Failed { reason: error.to_string() });
    match Client::connect(socket, CALL_LIMIT).and_then(|shim| shim.stop(None)) {
        Ok(()) => {}
        Err(ClientError::Dead { .. }) => return None,
        Err(error) => return failed(error),
    }
    let (mut end, mut last_looks) = (End::InTime, 0);
    loop {
        match Client::connect(socket, CALL_LIMIT).and_then(|shim| shim.inspect()) {
            // containerd has seen its end, and asked it to shut down.
            Err(ClientError::Dead { .. }) => return Some(end),
            Err(error) if error.may_be_its_end() && last_looks < LAST_LOOKS => last_looks += 1,
            Err(error) => return failed(error),
            Ok(pod) if pod.containers.iter().all(has_ended) => return Some(end),
            Ok(pod) => match timeout {
                Some(timeout) if end == End::InTime && begin.elapsed() >= timeout => {
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
                Some(timeout) if begin.elapsed() >= timeout + LAST_CALL => {
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
