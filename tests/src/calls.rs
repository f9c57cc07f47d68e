//! The system calls of a pod's head, as ptrace(2) shows them: which call, and what it was on. For the table of docs/trust.md; it
//! judges nothing itself.

mod names;
mod objects;
mod tracee;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::Containerd;

use self::names::name_of;
use self::objects::Objects;
use self::tracee::{Stop, Tracee};

/// How often the table of processes is looked at for a new shim: a shim's first calls are missed.
const POLL: Duration = Duration::from_millis(1);

/// A call by its plain name, without `at`, `p` or a number, and the kind of what it was on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Such as `read`.
    pub name: &'static str,
    /// Such as `eventfd`.
    pub kind: String,
}

/// Each call that a head has made, with how often, and the first one as an example.
pub type Calls = BTreeMap<Call, (usize, String)>;

/// The trace of one pod's head, from its beginning to its end.
#[derive(Debug)]
pub struct HeadTrace {
    thread: JoinHandle<Result<Calls>>,
    is_given_up: Arc<AtomicBool>,
}

impl HeadTrace {
    /// Waits on a thread of its own for the shim of the sandbox whose spec contains `word`, and traces its first thread. Begin it before
    /// the sandbox.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn of_sandbox_with(node: &Containerd, word: &str) -> Result<Self> {
        let bundles = node.directory_inside()?.join("state/io.containerd.runtime.v2.task/k8s.io");
        let word = word.to_owned();
        let is_given_up = Arc::new(AtomicBool::new(false));
        let given_up = is_given_up.clone();
        let thread = std::thread::spawn(move || {
            let head = loop {
                if given_up.load(Ordering::Relaxed) {
                    anyhow::bail!("no shim has {word:?} in its sandbox's spec");
                }
                if let Some(head) = shim_with(&bundles, &word) {
                    break head;
                }
                std::thread::sleep(POLL);
            };
            trace(&Tracee::seize(head)?)
        });
        Ok(Self { thread, is_given_up })
    }

    /// All calls, once the shim has ended. Blocks until then.
    ///
    /// # Errors
    /// If there was no such shim, or ptrace's error.
    pub fn calls(self) -> Result<Calls> {
        self.is_given_up.store(true, Ordering::Relaxed);
        self.thread.join().ok().context("the tracer panicked")?
    }
}

/// The server of a pod: `start` and `delete` have their action as an argument.
fn shim_with(bundles: &Path, word: &str) -> Option<libc::pid_t> {
    let of = |entry: std::fs::DirEntry| {
        let pid: libc::pid_t = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line);
        let words: Vec<_> = line.split('\0').collect();
        let is_action = words.iter().any(|word| ["start", "delete"].contains(word));
        if is_action || !words.first()?.ends_with("containerd-shim-podshim-v2") {
            return None;
        }
        let id = words.iter().skip_while(|word| **word != "-id").nth(1)?;
        let spec = std::fs::read_to_string(bundles.join(id).join("config.json")).ok()?;
        spec.contains(word).then_some(pid)
    };
    std::fs::read_dir("/proc").ok()?.flatten().find_map(of)
}

fn trace(tracee: &Tracee) -> Result<Calls> {
    let mut calls = Calls::new();
    let mut objects = Objects::of(tracee);
    let mut entered = None;
    while let Some(stop) = tracee.next()? {
        match stop {
            Stop::Entry { number, arguments } => {
                let name = name_of(number);
                let kind = objects.kind(name, &arguments);
                let (name, kind) = objects::plain(name, kind, &arguments);
                let example = || format!("{number} {arguments:x?}: {}", objects.described(&arguments));
                calls.entry(Call { name, kind }).or_insert_with(|| (0, example())).0 += 1;
                entered = Some((name_of(number), arguments));
            }
            Stop::Exit { value } => {
                if let Some((name, arguments)) = entered.take() {
                    objects.learn(name, &arguments, value);
                }
            }
        }
    }
    Ok(calls)
}
