//! The loop that sees to the shim's dead children: records an exit, then frees the pid.
//!
//! Owns the order of these, and what is looked at when one of them takes long or there are too many.

use std::io;
use std::pin::pin;
use std::time::Duration;

use nix::unistd::Pid;
use threads::busy;
use tokio::signal::unix::Signal as SignalStream;
use tokio::time::Instant;
use tracing::{debug, error};

use super::children::Next;
use super::pace::{Pace, REST, Step};
use super::seen::{Seen, peek};
use super::{EarlyExit, Exit, Reaper, children, release, traced};

/// How many processes that are nothing to podshim are reaped at a time.
const STRANGERS_AT_A_TIME: usize = 1024;

/// What a look at the children has found.
#[derive(Debug, Clone, Copy)]
enum Found {
    Dead(Dead),
    Traced(Pid),
}

/// A process whose exit is recorded and whose pid is not free.
#[derive(Debug, Clone, Copy)]
struct Dead {
    pid: Pid,
    whose: Whose,
}

/// Whose process it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// One of the shim's own commands, which no container gives the kernel work with.
    Own,
    /// A container's, whose exit a caller waits for.
    Callers,
    /// A container's, as far as is known by now.
    Unknown,
}

impl Reaper {
    pub(super) async fn run(self, mut signals: SignalStream) {
        let mut pace = Pace::default();
        loop {
            self.reap_all(&mut signals, &mut pace).await;
            // SIGCHLDs coalesce: one wake-up may stand for many exits, so reap_all takes them all.
            if signals.recv().await.is_none() {
                return;
            }
        }
    }

    async fn reap_all(&self, signals: &mut SignalStream, pace: &mut Pace) {
        let mut was_known = false;
        loop {
            let began = Instant::now();
            let found = match busy::during("exits", || self.record_next()) {
                Ok(Some(found)) => found,
                Ok(None) if pace.is_deaf() => {
                    pace.rest().await;
                    continue;
                }
                Ok(None) => {
                    // Nothing has ended: a child has stopped or goes on. Without an end a container could keep the thread at that.
                    if !was_known {
                        self.rest(began, signals, pace).await;
                    }
                    match pace.is_deaf() {
                        true => continue,
                        false => return,
                    }
                }
                Err(error) => {
                    error!(%error, "waitid failed: the shim looks for exits again at the next SIGCHLD");
                    *pace = Pace::default();
                    return;
                }
            };
            match found {
                Found::Dead(dead) => {
                    let released = match dead.whose {
                        Whose::Unknown => self.release_strangers(dead.pid, signals, pace).await,
                        Whose::Own | Whose::Callers => self.release(dead, signals, pace).await,
                    };
                    if let Err(error) = released {
                        // Continuing would spin: the same zombie comes first again.
                        error!(pid = %dead.pid, %error, "cannot reap an exited process: the shim tries again at the next SIGCHLD");
                        *pace = Pace::default();
                        return;
                    }
                    match dead.whose {
                        Whose::Unknown => self.rest(began, signals, pace).await,
                        Whose::Own | Whose::Callers => was_known = true,
                    }
                }
                Found::Traced(pid) => {
                    if let Err(error) = busy::during("exits", || traced::let_go(pid)) {
                        // As a rule it has just been killed: its exit comes with a signal of its own.
                        debug!(%pid, %error, "cannot let a traced process go");
                        pace.rest().await;
                        self.release_watched(signals, pace).await;
                        if !pace.is_deaf() {
                            return;
                        }
                        continue;
                    }
                    self.rest(began, signals, pace).await;
                }
            }
        }
    }

    /// After what is nothing to podshim. Whether a process that a caller waits for has ended is looked at one by one, as such a child may
    /// come first in each look at all of them.
    async fn rest(&self, began: Instant, signals: &mut SignalStream, pace: &mut Pace) {
        if pace.count(began).await == Step::Rested {
            self.release_watched(signals, pace).await;
        }
    }

    async fn release_watched(&self, signals: &mut SignalStream, pace: &mut Pace) {
        for dead in busy::during("exits", || self.record_watched()) {
            if let Err(error) = self.release(dead, signals, pace).await {
                error!(pid = %dead.pid, %error, "cannot reap an exited process: the shim tries again at the next SIGCHLD");
            }
        }
    }

    /// The next child that the kernel shows.
    fn record_next(&self) -> io::Result<Option<Found>> {
        Ok(match peek(libc::P_ALL, 0)? {
            None => None,
            Some(Seen::Traced(pid)) => Some(Found::Traced(pid)),
            Some(Seen::Exited(pid, exit, used)) => Some(Found::Dead(self.record(pid, exit, used))),
        })
    }

    async fn release(&self, dead: Dead, signals: &mut SignalStream, pace: &mut Pace) -> io::Result<()> {
        match dead.whose {
            Whose::Own => {
                let released = busy::during("exits", || release::now(dead.pid));
                self.table.borrow_mut().recorded.remove(&dead.pid);
                released
            }
            Whose::Callers | Whose::Unknown => self.release_beside(vec![dead.pid], signals, pace).await,
        }
    }

    /// Many at a time: one by one, each would cost the shim as much as it has cost its container.
    async fn release_strangers(
        &self,
        first: Pid,
        signals: &mut SignalStream,
        pace: &mut Pace,
    ) -> io::Result<()> {
        let mut pids = vec![first];
        busy::during("exits", || {
            children::of_this_thread(|pid| {
                let table = self.table.borrow();
                let is_known = table.watched.contains_key(&pid) || table.recorded.contains(&pid);
                drop(table);
                if !is_known
                    && let Ok(Some(Seen::Exited(_, exit, used))) =
                        peek(libc::P_PID, pid.as_raw().unsigned_abs())
                {
                    self.record(pid, exit, used);
                    pids.push(pid);
                }
                if pids.len() < STRANGERS_AT_A_TIME { Next::Show } else { Next::Stop }
            });
        });
        debug!(count = pids.len(), %first, "reaped orphans");
        self.release_beside(pids, signals, pace).await
    }

    /// Frees pids of a container's processes, which may take seconds (H3). It hides other dead processes from a look at all of them
    /// meanwhile; those that a caller waits for are looked at one by one: at once, as one SIGCHLD may stand for two exits, and then at
    /// each further one.
    async fn release_beside(
        &self,
        pids: Vec<Pid>,
        signals: &mut SignalStream,
        pace: &mut Pace,
    ) -> io::Result<()> {
        let released = self.release_on_thread(pids.clone(), signals, pace).await;
        let mut table = self.table.borrow_mut();
        for pid in pids {
            table.recorded.remove(&pid);
        }
        released
    }

    async fn release_on_thread(
        &self,
        pids: Vec<Pid>,
        signals: &mut SignalStream,
        pace: &mut Pace,
    ) -> io::Result<()> {
        let mut released = pin!(async {
            self.let_go_of(|table| table.holds == 0).await;
            self.releases.release(pids).await
        });
        loop {
            let began = Instant::now();
            busy::during("exits", || self.record_watched());
            let used = began.elapsed();
            tokio::select! {
                biased;
                result = &mut released => return result,
                () = tokio::time::sleep(REST), if pace.is_deaf() => {}
                signal = signals.recv() => match signal {
                    Some(()) => drop(pace.count(Instant::now() - used).await),
                    None => return released.await,
                },
            }
        }
    }

    /// Those that have ended, and not been recorded before.
    fn record_watched(&self) -> Vec<Dead> {
        let watched: Vec<Pid> = self.table.borrow().watched.keys().copied().collect();
        let ended =
            watched.into_iter().filter_map(|pid| match peek(libc::P_PID, pid.as_raw().unsigned_abs()) {
                Ok(Some(Seen::Exited(_, exit, used))) => Some(self.record(pid, exit, used)),
                _ => None,
            });
        ended.collect()
    }

    fn record(&self, pid: Pid, exit: Exit, used: Duration) -> Dead {
        let mut table = self.table.borrow_mut();
        let mut dead = Dead { pid, whose: Whose::Callers };
        if !table.recorded.insert(pid) {
            return dead;
        }
        if let Some(charge) = table.own.remove(&pid) {
            table.charge(charge, used);
            dead.whose = Whose::Own;
        }
        match table.watched.remove(&pid) {
            // The watcher may have been dropped; that is no error.
            Some(watcher) => drop(watcher.send(exit)),
            None if !table.subscriptions.is_empty() => {
                table.early_exits.insert(pid, EarlyExit { exit, used });
                dead.whose = Whose::Unknown;
            }
            None => dead.whose = Whose::Unknown,
        }
        dead
    }
}
