//! The streams of one incarnation that is about to be made and may still fail, as the head has them.
//!
//! Owns the loan of its three descriptors from the hand: the head starts the OCI runtime with them and closes its copies, and only
//! then the hand may close its own.

use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use threads::hand::{AT_ONCE, Guard, HandError, Held, LATE, Pulse, Reply};
use tokio::time::Instant;
use tracing::warn;

use crate::stdio::{self, ChildEnd, ChildStdio, Excess, Stdio, StdioError};

/// For so long a hand has to be away until its streams are done without.
const AWAY: Duration = Duration::from_secs(1);
/// Until a hand that does not answer is looked at again.
const PAUSE: Duration = Duration::from_millis(200);

/// Streams for an incarnation that is about to be made.
#[derive(Debug)]
pub struct Attempt {
    /// The streams with which the OCI runtime is started.
    pub child: ChildStdio,
    /// For [`Streams::accept`](super::Streams::accept) when the runtime has succeeded. Dropping it discards what the runtime wrote.
    pub held_back: HeldBack,
}

/// What a process that is being made writes, until it exists.
#[derive(Debug)]
pub struct HeldBack(Held<stdio::HeldBack>);

impl HeldBack {
    /// The process exists: starts moving what it writes.
    pub fn begin(&self) {
        self.0.tell(stdio::HeldBack::begin);
    }

    /// Waits until everything written has been moved, for at most `limit`; then cuts it.
    pub async fn end_within(self, limit: Duration) {
        let ended = self.0.ask_within(limit + LATE, move |mut held_back| async move {
            held_back.end_by(Instant::now() + limit).await;
        });
        if let Err(error) = ended.await {
            warn!(%error, "a process's output is not waited for any more");
        }
    }

    pub(super) fn into_held(self) -> Held<stdio::HeldBack> {
        self.0
    }
}

/// What the hand says of three descriptors that it lends: which of them are not `/dev/null`.
#[derive(Debug)]
struct Loan {
    is_lent: [bool; 3],
    excess: Option<Excess>,
}

/// Streams that the hand is making. Dropping this gives them up.
#[derive(Debug)]
pub struct PendingAttempt(Option<Pending>);

#[derive(Debug)]
struct Pending {
    reply: Result<Reply<io::Result<Loan>>, HandError>,
    lent: Held<Vec<OwnedFd>>,
    held_back: Held<stdio::HeldBack>,
}

impl PendingAttempt {
    pub(super) fn of(stdio: &Rc<Held<Stdio>>, make: fn(&Stdio) -> io::Result<stdio::Attempt>) -> Self {
        let (lent, held_back) = (stdio.reserve(), stdio.reserve());
        let (lent_key, held_back_key) = (lent.key(), held_back.key());
        let reply = stdio.ask(move |stdio| async move { lend(&stdio, make, lent_key, held_back_key) });
        Self(Some(Pending { reply, lent, held_back }))
    }

    /// The streams, once the hand has made them.
    ///
    /// # Errors
    /// No descriptors are left, or the hand is away.
    pub async fn ready(mut self) -> Result<Attempt, StdioError> {
        match self.0.take() {
            Some(pending) => pending.ready().await,
            None => Err(HandError::Closed.into()),
        }
    }

    /// The same for a caller that can do without them: it is not kept waiting for a hand that has been away for a second (H1).
    ///
    /// # Errors
    /// As of [`Self::ready`]; [`StdioError::is_of_a_hand_that_is_away`] tells the last one.
    pub async fn ready_unless_away(self) -> Result<Attempt, StdioError> {
        let Some(pulse) = self.0.as_ref().map(|pending| pending.lent.hand().pulse()) else {
            return self.ready().await;
        };
        tokio::select! {
            biased;
            ready = self.ready() => ready,
            () = is_away(&pulse) => Err(HandError::Away { limit: AWAY }.into()),
        }
    }
}

async fn is_away(pulse: &Pulse) {
    while pulse.away_for().is_none_or(|time| time < AWAY) {
        tokio::time::sleep(PAUSE).await;
    }
}

impl Pending {
    async fn ready(self) -> Result<Attempt, StdioError> {
        let Self { reply, lent, held_back } = self;
        let Loan { is_lent, excess } = reply?.within(AT_ONCE).await?.map_err(StdioError::Process)?;
        let mut borrowed = lent.hand().borrowed(lent.key()).map_err(StdioError::Process)?.into_iter();
        let [stdin, stdout, stderr] =
            is_lent.map(|is_lent| ChildEnd::of(if is_lent { borrowed.next() } else { None }));
        let child = ChildStdio { stdin, stdout, stderr, excess, lent: Some(lent) };
        Ok(Attempt { child, held_back: HeldBack(held_back) })
    }
}

impl Drop for PendingAttempt {
    fn drop(&mut self) {
        // What is on its way has to be received and closed, before the hand closes its copies.
        if let Some(pending) = self.0.take() {
            tokio::task::spawn_local(pending.ready());
        }
    }
}

fn lend(
    stdio: &Guard<Stdio>,
    make: fn(&Stdio) -> io::Result<stdio::Attempt>,
    lent: u64,
    held_back_key: u64,
) -> io::Result<Loan> {
    let stdio::Attempt { child, held_back } = make(stdio)?;
    let ChildStdio { stdin, stdout, stderr, excess, .. } = child;
    let ends = [stdin, stdout, stderr].map(ChildEnd::into_inner);
    let is_lent = ends.each_ref().map(Option::is_some);
    stdio.lend(lent, ends.into_iter().flatten().collect())?;
    stdio.place(held_back_key, held_back);
    Ok(Loan { is_lent, excess })
}
