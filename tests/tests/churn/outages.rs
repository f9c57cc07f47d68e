//! containerd is killed and started again while pods come and go. Owns when; what that does to a pod's caller is in
//! `lanes.rs`.

use std::cell::Cell;
use std::time::Duration;

use anyhow::Result;
use e2e::durations::AMPLE;
use e2e::{Containerd, wait};

const INTERVAL: Duration = Duration::from_millis(50);

/// The outages of one containerd. All futures that use it run on one thread.
#[derive(Debug, Default)]
pub(crate) struct Outages {
    count: Cell<usize>,
    state: Cell<State>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Serves,
    IsAway,
}

impl Outages {
    /// How many have begun.
    pub(crate) fn count(&self) -> usize {
        self.count.get()
    }

    /// Waits until containerd serves.
    pub(crate) async fn wait_over(&self) -> Result<()> {
        wait::until_seen_every(INTERVAL, "containerd to be back", AMPLE, async || {
            Ok((self.state.get() == State::Serves).then_some(()))
        })
        .await
    }

    /// One outage. Another one that goes on is waited for instead.
    pub(crate) async fn happen(&self, node: &Containerd) -> Result<()> {
        if self.state.get() == State::IsAway {
            return self.wait_over().await;
        }
        self.state.set(State::IsAway);
        self.count.set(self.count.get() + 1);
        node.kill().await?;
        node.start_again().await?;
        self.state.set(State::Serves);
        Ok(())
    }
}
